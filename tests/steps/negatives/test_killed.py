"""Kills at random instants: whatever was finished stays, and the rows come out the same."""

import multiprocessing
import os
import random
import signal
import time

import pytest
from tests.steps.negatives.conftest import lines, texts

from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.negatives import route
from pairsmith.steps.negatives.route import negatives

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kills"),
]

KILLS = int(os.environ.get("PAIRSMITH_KILLS", "3"))
PARTS = ("", "queries", "corpus", "positives", "search", "scores")


@pytest.fixture
def spawn(monkeypatch):
    """Starts functions in processes that have torch loaded already."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pairsmith.steps.negatives.route", "pairsmith.models.sentence_encoder"])

    def start(function, *arguments):
        process = context.Process(target=function, args=arguments)
        process.start()
        return process

    return start


def work(settings, out):
    route.SHARD_ROWS = 3
    negatives(settings, Run(out, Silent()))


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for part in PARTS
        for kind in ("data", "rejects")
        for path in sorted((folder / part / kind).glob("*.parquet"))
    }


@pytest.mark.long
def test_killed_at_random_instants_it_ends_with_the_same_bytes(spawn, tmp_path, words_encoder, world):
    _, settings, pairs, _ = world
    new = [{"query": query, "positive": f"{query} bal"} for query in texts(20, 3, 5)]
    given = settings(
        pairs=lines(tmp_path / "more.jsonl", [*pairs, *new]),
        judge=str(words_encoder),
        judge_kind="encoder",
        pick="random",
        shard_size=3,
        search_rows=3,
    )
    spawn(sum, (1, 2)).join()  # the first waits until torch is loaded
    begun = time.monotonic()
    whole = spawn(work, given, tmp_path / "whole")
    whole.join()
    seconds = time.monotonic() - begun
    assert whole.exitcode == 0
    chance, number = random.Random(1), 0
    kills = 0
    while kills < KILLS:
        process = spawn(work, given, tmp_path / f"killed-{number}")
        process.join(chance.uniform(0.02, 0.7) * seconds)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        number += process.exitcode == 0  # it got to its end; the next kills are for another run
    last = spawn(work, given, tmp_path / f"killed-{number}")
    last.join()
    assert last.exitcode == 0
    there = files(tmp_path / "whole")
    assert {path.parts[0] for path in there} == {"data", "rejects", *PARTS[1:]}
    for run in range(number + 1):
        assert files(tmp_path / f"killed-{run}") == there
        assert not list((tmp_path / f"killed-{run}").rglob("*.tmp"))
