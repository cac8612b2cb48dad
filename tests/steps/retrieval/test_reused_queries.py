"""``queries --reuse``: chunks that are unchanged keep their queries, and the folder is that of a run without it."""

import json
from zlib import crc32

import pytest
from tests.heard import Heard
from tests.runs.test_array_job import files, one_rank
from tests.steps.retrieval.test_queries_step import lines, model, settings  # noqa: F401 - model is a fixture

from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Silent
from pairsmith.methods.retrieval import queries
from pairsmith.methods.retrieval.queries import QueryWriter
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.retrieval import queries as step
from pairsmith.steps.retrieval.queries import write_queries


def chunk(name, place, text="", **more):
    return {"id": f"{name}-{place}", "title": name, "text": text or f"The {name} has part {place}.", **more}


OLD = [chunk(name, place, document=name) for name in ("boat", "house") for place in range(3)]
NEW = [
    *OLD[:3],
    *[chunk("tree", place, document="tree") for place in range(2)],
    *OLD[3:],
    chunk("house", 3, document="house"),  # a new neighbour of the one before
]


SHORT = {"max_tokens": 5, "tries": 2}


@pytest.fixture
def some_kept(monkeypatch):
    """Every other text that the model writes is kept; by the usual rules none would be, as it writes badly."""

    def fault_of(group, query, *_):
        return None if crc32(f"{query.id} {group.text}".encode()) % 2 else ("odd", "for the test")

    monkeypatch.setattr(queries, "_fault_of", fault_of)


@pytest.fixture
def world(model, tmp_path):  # noqa: F811 - the fixture
    """Queries for the old chunks, a list of the chunks that are written for, and a function for the new ones."""
    old, new = lines(tmp_path / "old.jsonl", OLD), lines(tmp_path / "new.jsonl", NEW)
    write_queries(settings(model, old, shard_size=4, **SHORT), Run(tmp_path / "old", Silent()))

    def write(name, progress=None, fresh=False, chunks=new, **more):
        given = settings(**{"model": model, "chunks": chunks, "shard_size": 2, **SHORT, **more})
        return write_queries(given, Run(tmp_path / name, progress or Silent(), fresh=fresh))

    return tmp_path, write


@pytest.fixture
def written_for(monkeypatch):
    """The ids of the chunks that the model writes for."""
    ids, write = [], QueryWriter.write

    def noting(self, chunks, *more):
        ids.extend(chunk.id for chunk in chunks)
        return write(self, chunks, *more)

    monkeypatch.setattr(QueryWriter, "write", noting)
    return ids


def test_only_chunks_that_changed_are_written_for_and_the_bytes_are_the_same(some_kept, world, written_for):
    tmp, write = world
    write("plain")
    written_for.clear()
    heard = Heard()
    folder = write("again", heard, reuse=str(tmp / "old"))
    assert written_for == ["tree-0", "tree-1", "house-2", "house-3"]
    assert f"5 of 9 chunks to do are as in {tmp / 'old'} and keep their queries" in heard.lines
    assert files(tmp / "again") == files(tmp / "plain")
    assert folder.manifest.fingerprint == json.loads((tmp / "plain/manifest.json").read_text())["fingerprint"]
    assert folder.rejects().num_rows
    assert folder.rows
    written_for.clear()
    write("third", reuse=str(tmp / "again"))  # a folder that was made with --reuse serves as well
    assert not written_for
    assert files(tmp / "third") == files(tmp / "plain")


def test_neighbours_count_only_if_queries_are_steered_away_from_them(world, written_for):
    tmp, write = world
    write("old-title", chunks=str(tmp / "old.jsonl"), against=["title"])
    written_for.clear()
    write("title", against=["title"], reuse=str(tmp / "old-title"))
    assert written_for == ["tree-0", "tree-1", "house-3"]


def test_a_stopped_run_goes_on_with_it_or_without(some_kept, world, monkeypatch):
    tmp, write = world
    write("plain")
    with monkeypatch.context() as patched:

        def stopping(self, chunks, *more):
            raise KeyboardInterrupt

        patched.setattr(QueryWriter, "write", stopping)
        for name in ("with", "without"):
            with pytest.raises(KeyboardInterrupt):
                write(name, reuse=str(tmp / "old"))
            assert len(list((tmp / name / "data").iterdir())) == 1  # the shard without new chunks
    write("with", reuse=str(tmp / "old"))
    write("without")
    assert files(tmp / "with") == files(tmp / "plain") == files(tmp / "without")


def test_a_larger_limit_keeps_the_chunks_of_a_smaller_one(some_kept, world, written_for):
    tmp, write = world
    write("three", limit=3)
    three = list(written_for)
    write("seven", limit=7)
    written_for.clear()
    write("grown", limit=7, reuse=str(tmp / "three"))
    assert len(written_for) == 4
    assert not set(three) & set(written_for)
    assert files(tmp / "grown") == files(tmp / "seven")


@pytest.mark.long
def test_workers_and_ranks_take_over_the_same(world, model):  # noqa: F811 - the fixture
    tmp, write = world
    write("plain")
    write("by-two", workers=2, reuse=str(tmp / "old"))
    given = settings(model, str(tmp / "new.jsonl"), shard_size=2, reuse=str(tmp / "old"), **SHORT)
    for number in range(2):
        one_rank(given, tmp / "ranks", number, 2, "queries")
    assert files(tmp / "by-two") == files(tmp / "plain") == files(tmp / "ranks")


def test_what_cannot_be_used_again_is_refused_in_a_line(world):
    tmp, write = world
    old = str(tmp / "old")

    def refusal(match, **more):
        with pytest.raises(FolderError, match=match) as refused:
            write("out", **{"reuse": old, **more})
        assert "\n" not in str(refused.value)
        assert not (tmp / "out").exists()

    refusal(
        "--reuse .*old: its queries were made with other settings or models: decay: 100.0 there, 5.0 here",
        decay=5.0,
    )
    refusal(
        "its queries were made with other settings or models: the model is another", model="pairsmith:tiny"
    )
    examples = lines(tmp / "examples.jsonl", [{"query": "who is it"}])
    refusal("input examples 1 .*absent there", examples=examples)
    other = tmp / "other"
    other.mkdir()
    refusal("is not a dataset folder", reuse=str(other))
    with pytest.raises(FolderError, match="--out .* is what --reuse reads"):
        write("old", reuse=old, fresh=True)

    contents = (tmp / "old/contents.json").read_text()
    (tmp / "old/contents.json").write_text(contents[:20])
    refusal("its file contents.json is damaged")
    (tmp / "old/contents.json").unlink()
    refusal("has no contents.json that records the texts its queries were written from")
    (tmp / "old/contents.json").write_text(contents)
    (tmp / "old/data/train-00000.parquet").write_bytes(b"PAR1")
    refusal("--reuse .*old has changed since it was written: data/train-00000.parquet")
    manifest = tmp / "old/manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    refusal("is unfinished")


def test_a_plan_counts_what_is_left(some_kept, world, model, written_for, monkeypatch):  # noqa: F811 - the fixture
    tmp, write = world
    tried = []

    def by_slice(work, rows_setting, chosen, before):
        assert chosen.reuse is None
        tried.append(chosen.limit)
        return Estimate(seconds=60.0, memory=1, disk=1_000_000, rows={"train": 8})

    monkeypatch.setattr(step, "plan_by_slice", by_slice)
    chosen = settings(model, str(tmp / "new.jsonl"), **SHORT)
    old = DatasetFolder.open(tmp / "old")
    partly = step.plan_write_queries(chosen.model_copy(update={"reuse": str(tmp / "old")}), {})
    assert tried == [4]  # of nine; see above
    assert partly.rows["train"] == 8 + round(old.rows * 5 / 6)
    assert 1_000_000 < partly.disk < 1_100_000
    all_queries = write("again")
    reused = step.plan_write_queries(chosen.model_copy(update={"reuse": str(tmp / "again")}), {})
    assert tried == [4]
    assert reused.rows["train"] == all_queries.rows
    assert reused.seconds < 60
    assert reused.sample.schema.names == all_queries.schema().names
    written_for.clear()
    write("drawn", reuse=str(tmp / "old"), limit=4)
    new = len(set(written_for))  # of the four that are drawn
    assert 0 < new < 4
    step.plan_write_queries(chosen.model_copy(update={"reuse": str(tmp / "old"), "limit": 4}), {})
    source = Estimate(seconds=1.0, memory=1, disk=1, rows={"train": 90}, sample=old.table().slice(0, 9))
    step.plan_write_queries(chosen.model_copy(update={"reuse": str(tmp / "old")}), {chosen.chunks: source})
    step.plan_write_queries(chosen, {})
    assert tried == [4, new, 40, None]


def test_a_plan_of_other_work_is_refused(world, model):  # noqa: F811 - the fixture
    tmp, _ = world
    given = settings(model, str(tmp / "new.jsonl"), reuse=str(tmp / "old"), decay=5.0, **SHORT)
    with pytest.raises(
        FolderError, match="its queries were made with other settings or models: decay: 100.0 there, 5.0 here"
    ):
        step.plan_write_queries(given, {})
