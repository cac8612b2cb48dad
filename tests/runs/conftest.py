"""A dataset folder of two shards, and the small functions that write it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pairsmith.core.progress import Silent
from pairsmith.data.schemas import REJECT, SCORED_PAIR, Reject, ScoredPair, to_table
from pairsmith.runs import Card, FolderWriter, Identity, Run, lease

CARD = Card("Pairs", "Two sentences and a score.")
WORK = {
    "step": "generate",
    "settings": {"decay": 100.0, "seed": 7, "decoding": {"top_k": 5, "stop": ["a", "b"]}},
    "inputs": {"sentences.txt": "0" * 64},
    "models": {"pairsmith:tiny": "1" * 64},
}


def start(
    out, fresh=False, progress=None, schema=SCORED_PAIR, growth=None, planned=None, asked="", **changes
):
    identity = Identity.of(**{**WORK, **changes})
    run = Run(out, progress or Silent(), fresh)
    return FolderWriter.start(run, identity, schema, growth=growth, planned=planned, asked=asked)


def pairs(shard, count=2):
    return to_table(
        [ScoredPair(f"{shard}-{n}", f"x {n}", f"y {n}", n / 2) for n in range(count)], SCORED_PAIR
    )


def rejects(shard, count=1):
    return to_table([Reject.of(f"{shard}-r{n}", "copy", "equal", {"n": n}) for n in range(count)], REJECT)


def commit(writer, *shards):
    for shard in shards:
        if not writer.is_done(shard):
            writer.commit(shard, {"train": pairs(shard), "validation": pairs(shard, 1)}, rejects(shard))


def contents(out):
    files = {path.relative_to(out).as_posix(): path for path in Path(out).rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if name not in ("manifest.json", "log.jsonl") and not name.startswith("journal/")
    }


@pytest.fixture
def work():
    """The functions of this file; test modules cannot import each other."""
    return SimpleNamespace(
        card=CARD,
        settings=WORK["settings"],
        start=start,
        commit=commit,
        pairs=pairs,
        rejects=rejects,
        contents=contents,
    )


@pytest.fixture
def out(tmp_path):
    return tmp_path / "deep" / "out"


@pytest.fixture
def done(out):
    writer = start(out)
    commit(writer, 0, 1)
    writer.finish(CARD)
    return out


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when somebody sleeps; ``clock.each`` is called then."""

    class Clock:
        now = 0.0
        each = staticmethod(lambda: None)

        def sleep(self, seconds):
            self.now += seconds
            self.each()

    clock = Clock()
    monkeypatch.setattr(lease.time, "sleep", clock.sleep)
    monkeypatch.setattr(lease.time, "monotonic", lambda: clock.now)
    return clock
