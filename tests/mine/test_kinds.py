"""Mining of each kind: answers in passages, sentences of documents; groups, style, indexes, parts of the search."""

import json
from contextlib import suppress

import numpy as np
import pytest
from tests.conftest import make_bert
from tests.training.few import PEOPLE, PLAYS, document, passage, write

from pairsmith.encoders.style import Style
from pairsmith.errors import InputError, SettingsError, StorageError
from pairsmith.mine import corpus as corpora
from pairsmith.mine import neighbours
from pairsmith.mine.encoded import Encoded
from pairsmith.mine.neighbours import Cell, Piece, parts, parts_by_index
from pairsmith.mine.route import mine
from pairsmith.mine.settings import MineSettings
from pairsmith.progress import Progress, Silent
from pairsmith.runs import DatasetFolder, Run


@pytest.fixture
def world(tmp_path, tiny_bert):
    write(tmp_path / "questions.jsonl", [{"question": f"who plays the {play}?"} for play in PLAYS])
    write(tmp_path / "passages.jsonl", [{"text": passage(n)} for n in range(12)])
    write(
        tmp_path / "documents.jsonl",
        [{"document": document(n), "day": f"2020-01-0{1 + n % 3}T10:00"} for n in range(12)],
    )

    def settings(kind, inputs, outputs, **changes):
        given = {"kind": kind, "inputs": str(tmp_path / inputs), "outputs": str(tmp_path / outputs)}
        return MineSettings(**given, **{"encoder": str(tiny_bert), "k": 3, **changes})

    return tmp_path, settings


def rejects(folder):
    return [(row["filter"], json.loads(row["row"])) for row in folder.rejects().to_pylist()]


def test_answers_and_their_passages(world):
    tmp, settings = world
    found = mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    rows = found.table().to_pylist()
    assert rows
    for row in rows:
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start:].startswith(answer)
        assert row["output"] == f"{answer}: {row['context']}"
        assert answer.casefold() not in row["input"]
    outputs = DatasetFolder.open(tmp / "out" / "outputs").table()
    answers = set(outputs["answer"].to_pylist())
    assert {"Ann", "1900", "Rome"} <= answers


def test_an_answer_in_the_question_is_rejected(world):
    tmp, settings = world
    names = " ".join([*PEOPLE, "Rome"])
    write(tmp / "asked.jsonl", [{"question": f"{play}: {names}?"} for play in PLAYS])
    found = mine(settings("reading", "asked.jsonl", "passages.jsonl", k=40), Run(tmp / "out", Silent()))
    lost = [row for name, row in rejects(found) if name == "verbatim"]
    assert lost
    assert all(row["answers"]["text"][0].casefold() in row["input"].casefold() for row in lost)
    assert all(
        row["answers"]["text"][0].casefold() not in row["input"].casefold()
        for row in found.table().to_pylist()
    )


def test_long_passages_are_cut_and_those_without_an_answer_rejected(world):
    tmp, settings = world
    write(tmp / "long.jsonl", [{"text": " ".join(map(passage, range(12)))}, {"text": "nothing is here"}])
    mine(settings("reading", "questions.jsonl", "long.jsonl", window=12), Run(tmp / "out", Silent()))
    outputs = DatasetFolder.open(tmp / "out" / "outputs")
    assert len(set(outputs.table()["context"].to_pylist())) > 5
    assert [name for name, _ in rejects(outputs)] == ["no answer"]


def test_sentences_of_the_documents_of_one_day(world):
    tmp, settings = world
    given = settings("summaries", "documents.jsonl", "documents.jsonl", group_column="day", k=20)
    found = mine(given, Run(tmp / "out", Silent()))
    rows = found.table().to_pylist()
    assert rows
    days = {document(n): n % 3 for n in range(12)}
    said = {line: n % 3 for n in range(12) for line in document(n).split("\n")}
    common = "People came to see it."  # in all of them, so never of another document
    for row in rows:
        assert row["output"] not in row["input"]
        assert row["output"] != common
        assert said[row["output"]] == days[row["input"]]
    folder = DatasetFolder.open(tmp / "out" / "search")
    assert len(set(folder.table()["cell"].to_pylist())) == 3


def test_a_sentence_of_two_days_is_there_on_both(world):
    tmp, settings = world
    rows = [{"document": document(n), "day": day} for n in range(4) for day in ("a", "b")]
    write(tmp / "twice.jsonl", rows)
    given = settings("summaries", "twice.jsonl", "twice.jsonl", group_column="day", k=2)
    mine(given, Run(tmp / "out", Silent()))
    near = DatasetFolder.open(tmp / "out" / "search").table()
    sides = [(row["cell"], row["side"]) for row in near.to_pylist()]
    assert sides.count((0, "x")) == sides.count((1, "x")) == 4
    assert sides.count((0, "y")) == sides.count((1, "y")) == 13  # three of each document, and one of all


def test_questions_are_taken_from_rows_that_have_passages_too(world):
    tmp, settings = world
    rows = [{"context": passage(n), "question": f"who plays the {PLAYS[n]}?"} for n in range(12)]
    write(tmp / "both.jsonl", rows)
    mine(settings("reading", "both.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    inputs = DatasetFolder.open(tmp / "out" / "inputs").table()["text"].to_pylist()
    assert inputs == [row["question"] for row in rows]


def test_short_documents_and_those_without_a_day_are_rejected(world):
    tmp, settings = world
    rows = [{"document": document(n), "day": "2020-01-01"} for n in range(4)]
    write(
        tmp / "mixed.jsonl",
        [*rows, {"document": "Too short.", "day": "2020-01-01"}, {"document": document(5), "day": None}],
    )
    given = settings("summaries", "mixed.jsonl", "mixed.jsonl", group_column="day", k=2)
    mine(given, Run(tmp / "out", Silent()))
    assert sorted(name for name, _ in rejects(DatasetFolder.open(tmp / "out" / "inputs"))) == [
        "no group",
        "too short",
    ]


def test_corpora_without_a_common_day_and_a_column_that_is_not_there(world):
    tmp, settings = world
    write(tmp / "other.jsonl", [{"document": document(n), "day": "1999"} for n in range(4)])
    with pytest.raises(
        InputError, match=r"no group of the inputs \(2020-01-01, .*\) is one of the outputs \(1999"
    ):
        mine(
            settings("summaries", "documents.jsonl", "other.jsonl", group_column="day"),
            Run(tmp / "a", Silent()),
        )
    with pytest.raises(InputError, match="has no column 'date'"):
        mine(
            settings("summaries", "documents.jsonl", "other.jsonl", group_column="date"),
            Run(tmp / "b", Silent()),
        )


@pytest.mark.parametrize(("kind", "side"), [("reading", "inputs"), ("summaries", "outputs")])
def test_another_style_is_pruned_before_the_search(world, tmp_path, kind, side):
    tmp, settings = world
    encoder = make_bert(tmp_path / "encoder")
    weight = np.random.default_rng(1).normal(size=16).astype(np.float32)
    Style(weight - weight.mean(), 0.0).save(encoder)
    inputs, outputs = ("questions.jsonl", "passages.jsonl") if kind == "reading" else ("documents.jsonl",) * 2
    for threshold in (0.0, 0.5):
        given = settings(kind, inputs, outputs, encoder=str(encoder), style=threshold, dtype="float32")
        with suppress(InputError):  # all but one are pruned
            mine(given, Run(tmp / f"out{threshold}", Silent()))
        folder = DatasetFolder.open(tmp / f"out{threshold}" / side)
        lost = [row for row in folder.rejects().to_pylist() if row["filter"] == "style"]
        assert bool(lost) == (threshold > 0)
        assert all(json.loads(row["row"])["likelihood"] < threshold for row in lost)
        if threshold:
            assert lost
            kept = folder.table()["text"].to_pylist()
            assert not set(kept) & {json.loads(row["row"])["text"] for row in lost}


@pytest.mark.parametrize("retrieval", ["max", "forward"])
def test_an_index_finds_the_same_in_corpora_this_small(world, retrieval, capsys):
    pytest.importorskip("faiss")
    tmp, settings = world
    exact = mine(
        settings("reading", "questions.jsonl", "passages.jsonl", retrieval=retrieval),
        Run(tmp / "a", Silent()),
    )
    given = settings("reading", "questions.jsonl", "passages.jsonl", retrieval=retrieval, index="IVF4,Flat")
    approximate = mine(given, Run(tmp / "b", Progress()))
    assert exact.table().to_pylist() == approximate.table().to_pylist()
    assert "index IVF4,Flat: finds 100.0% of the 3 nearest" in capsys.readouterr().err
    several = given.model_copy(update={"index_rows": 2, "workers": 2})
    assert exact.table().equals(mine(several, Run(tmp / "several", Progress())).table())
    capsys.readouterr()
    again = several.model_copy(update={"best": 1})  # the search is kept, and what it finds said again
    assert mine(again, Run(tmp / "several", Progress(), fresh=True)).table().equals(exact.table().slice(0, 1))
    assert "index IVF4,Flat: finds 100.0%" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="IVF4,Flatt"):
        mine(given.model_copy(update={"index": "IVF4,Flatt"}), Run(tmp / "c", Silent()))


def test_parts_have_so_many_inputs_or_little_more():
    cells = [Cell(np.arange(n), np.arange(3)) for n in (5, 1, 2, 9)]
    found = parts(cells, 4)
    assert [part.number for part in found] == list(range(len(found)))
    pieces = [piece for part in found for piece in part.pieces]
    assert [(p.cell, p.start, p.stop) for p in pieces] == [
        (0, 0, 4), (0, 4, 5), (1, 0, 1), (2, 0, 2), (3, 0, 4), (3, 4, 8), (3, 8, 9),
    ]  # fmt: skip
    assert [part.size for part in found] == [4, 4, 4, 4, 1]
    assert {piece.side for piece in pieces} == {"both"}


def test_indexes_are_of_equal_size_and_a_part_each():
    found = parts_by_index([Cell(np.arange(5), np.arange(3)), Cell(np.arange(2), np.arange(1))], 2)
    assert [(part.number, *part.pieces) for part in found] == [
        (0, Piece(0, 0, 1, "x", 5)), (1, Piece(0, 1, 3, "x", 5)),
        (2, Piece(0, 0, 1, "y", 3)), (3, Piece(0, 1, 3, "y", 3)), (4, Piece(0, 3, 5, "y", 3)),
        (5, Piece(1, 0, 1, "x", 2)), (6, Piece(1, 0, 2, "y", 1)),
    ]  # fmt: skip


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_a_search_stopped_between_parts_goes_on_to_the_same_rows(world, monkeypatch):
    tmp, settings = world
    given = settings("reading", "questions.jsonl", "passages.jsonl", search_rows=5)
    mine(given, Run(tmp / "whole", Silent()))
    calls, real = [], neighbours.two_way_search

    def failing(*args, **more):
        calls.append(len(args[0]))
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(*args, **more)

    monkeypatch.setattr(neighbours, "two_way_search", failing)
    with pytest.raises(StorageError):
        mine(given, Run(tmp / "out", Silent()))
    mine(given, Run(tmp / "out", Silent()))
    assert calls == [5, 5, 5, 2]
    assert files(tmp / "out") == files(tmp / "whole")


def test_what_is_begun_afresh_and_stopped_goes_on_without_being_asked_to_begin_afresh(world, monkeypatch):
    tmp, settings = world
    mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    given = settings("reading", "questions.jsonl", "passages.jsonl", k=2, window=20)
    mine(given, Run(tmp / "whole", Silent()))

    def failing(*_, **__):
        raise StorageError("no space left")

    real = corpora.encode_texts
    monkeypatch.setattr(corpora, "encode_texts", failing)
    with pytest.raises(StorageError):
        mine(given, Run(tmp / "out", Silent(), fresh=True))
    monkeypatch.setattr(corpora, "encode_texts", real)
    mine(given, Run(tmp / "out", Silent()))
    assert files(tmp / "out") == files(tmp / "whole")


def test_cut_otherwise_the_rows_are_the_same(world):
    tmp, settings = world
    one = mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "one", Silent()))
    two = mine(
        settings("reading", "questions.jsonl", "passages.jsonl", search_rows=2, workers=2),
        Run(tmp / "two", Silent()),
    )
    assert one.table().equals(two.table())


def test_vectors_on_another_machine_are_read_from_the_folder(world):
    tmp, settings = world
    mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    there = Encoded.of(DatasetFolder.open(tmp / "out" / "outputs"), tmp / "vectors")
    every = np.arange(len(there))
    before = there.vectors(every).clone()
    assert there.here() is there
    (tmp / "vectors").unlink()
    here = there.here()
    assert here.file != there.file
    assert here.vectors(every).equal(before)
    some = np.array([0, 3, 7])
    assert here.vectors(some).equal(before[some])
    here.file.unlink()
