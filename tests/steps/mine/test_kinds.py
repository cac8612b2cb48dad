"""Mining of each kind: answers in passages, sentences of documents; groups, style, indexes, parts of the search."""

import json
import re
import shutil
from collections import Counter
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests import fingerprints
from tests.conftest import make_bert
from tests.folders import write_folder
from tests.heard import Heard
from tests.training.few import PEOPLE, PLAYS, document, passage, write

from pairsmith.core.errors import FolderError, InputError, SettingsError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.mining import candidates
from pairsmith.methods.mining.style import StyleClassifier
from pairsmith.runs import DatasetFolder, Run
from pairsmith.search.selection import PairFile
from pairsmith.steps import search_parts
from pairsmith.steps.corpora import corpus as corpora
from pairsmith.steps.corpora import indexes, search
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded, encoded_schema
from pairsmith.steps.mine import route
from pairsmith.steps.mine import search as mine_search
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.search import find_neighbours, scored_candidates
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import SearchBlock, cut_search, parts_by_index

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    ("kind", "sources", "changes", "of_inputs", "of_outputs"),
    [
        (
            "pairs",
            ("questions.jsonl", "documents.jsonl"),
            {"vector_dtype": "float16"},
            "39a7c36ac13ac0fb9c292260d2696d2262580cb8862445502714ca6bc2f788ca",
            "6f15d63497b18c8cee087bdf387d90dca1102879522b7854d344d66fd19af065",
        ),
        (
            "reading",
            ("questions.jsonl", "passages.jsonl"),
            {"window": 20, "max_length": 40},
            "db1ef235d278dd9fc096c044415b0093ab80430648fbdce60864c454e7c4ee8f",
            "2d36ef52c49e6c9aac7faf1b06e84b49337def4ea579155ca58de05784cc262a",
        ),
        (
            "summaries",
            ("documents.jsonl", "documents.jsonl"),
            {"group_column": "day", "min_sentences": 2},
            "c3dce413b65fa63e576ad1ed7ab73dbc5bc70a6e0a3582cf77800ca038c45f51",
            "2b73d6070863198efe4cb89e4b50fde537ed37829be1d11f2c5cc0132eda1ba2",
        ),
    ],
)
def test_encoded_corpora_that_are_there_are_recognised(world, kind, sources, changes, of_inputs, of_outputs):
    tmp, settings = world
    mine(settings(kind, *sources, dtype="float32", shard_size=5, **changes), Run(tmp / "out", Silent()))
    assert fingerprints.of_settings(tmp / "out" / "inputs") == of_inputs
    assert fingerprints.of_settings(tmp / "out" / "outputs") == of_outputs


def rejects(folder):
    return [(row["filter"], json.loads(row["row"])) for row in folder.rejects().to_pylist()]


def test_answers_and_their_passages(world):
    tmp, settings = world
    folder = mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    rows = folder.table().to_pylist()
    assert rows
    for row in rows:
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start:].startswith(answer)
        assert row["output"] == f"{answer}: {row['context']}"
        assert answer.casefold() not in row["input"]
    outputs = DatasetFolder.open(tmp / "out" / "outputs").table()
    answers = set(outputs["answer"].to_pylist())
    assert {"Ann", "1900", "Rome"} <= answers


def test_an_answer_in_the_question_is_no_candidate(world, capsys):
    tmp, settings = world
    write(tmp / "asked.jsonl", [{"question": f"{play}: {' '.join(PEOPLE)}?"} for play in PLAYS])
    folder = mine(
        settings("reading", "asked.jsonl", "passages.jsonl", k=3, retrieval="candidates"),
        Run(tmp / "out", Progress()),
    )
    rows = folder.table().to_pylist()
    assert min(Counter(row["input"] for row in rows).values()) >= 3  # names take no place of other answers
    assert all(row["answers"]["text"][0].casefold() not in row["input"].casefold() for row in rows)
    assert "nearer neighbours are left out on purpose: " in capsys.readouterr().err
    assert (
        "neighbours left out: one text, or its answer, contains the other"
        in (tmp / "out/README.md").read_text()
    )


def test_own_sentences_take_no_place_of_a_document(world):
    tmp, settings = world
    given = settings("summaries", "documents.jsonl", "documents.jsonl", k=3, retrieval="candidates")
    rows = mine(given, Run(tmp / "out", Silent())).table().to_pylist()
    of_document = Counter(row["input"] for row in rows)
    assert set(of_document) == {document(n) for n in range(12)}
    assert min(of_document.values()) >= 3
    assert not any(row["output"] in row["input"].split("\n") for row in rows)


def test_a_document_with_more_own_sentences_than_were_looked_up_is_searched_again(world, monkeypatch):
    tmp, settings = world
    given = settings("summaries", "documents.jsonl", "documents.jsonl", k=3, retrieval="candidates")
    at_once = mine(given, Run(tmp / "at-once", Silent())).table().to_pylist()
    searches, real = [], candidates.nearest

    def counting(queries, others, more):
        searches.append((len(queries), more))
        return real(queries, others, more)

    monkeypatch.setattr(candidates, "nearest", counting)
    monkeypatch.setattr(mine_search, "SPARE_OF_SUMMARIES", {"x": 0, "y": 0})
    again = mine(given, Run(tmp / "again", Silent())).table().to_pylist()
    assert searches
    assert {row["id"] for row in again} == {row["id"] for row in at_once}
    margins = {row["id"]: row["margin"] for row in at_once}
    assert all(row["margin"] == pytest.approx(margins[row["id"]], abs=1e-5) for row in again)


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
    mined = mine(given, Run(tmp / "out", Silent()))
    rows = mined.table().to_pylist()
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


def test_texts_of_days_that_only_one_corpus_has_are_counted(world):
    tmp, settings = world
    write(tmp / "one-day.jsonl", [{"document": document(n), "day": "2020-01-01T11:00"} for n in (0, 3, 6)])
    given = settings("summaries", "documents.jsonl", "one-day.jsonl", group_column="day", k=20)
    heard = Heard()
    mine(given, Run(tmp / "out", heard))
    assert "inputs of groups without outputs, which are in no pair: 8" in heard.lines
    card = (tmp / "out" / "README.md").read_text()
    assert "| inputs of groups without outputs | 8 |" in card
    assert "| outputs of groups without inputs | 0 |" in card


def test_a_text_of_two_days_that_is_paired_on_one_is_in_a_pair(world):
    tmp, settings = world
    rows = [{"document": document(n), "day": day} for n in range(3) for day in ("a", "b")]
    write(tmp / "both.jsonl", rows)
    write(tmp / "one.jsonl", [{"document": document(n), "day": "a"} for n in range(3, 6)])
    heard = Heard()
    folder = mine(
        settings("summaries", "both.jsonl", "one.jsonl", group_column="day", k=5), Run(tmp / "out", heard)
    )
    assert folder.rows
    assert not any("which are in no pair" in line for line in heard.lines)


def test_inputs_whose_every_neighbour_stands_in_them_are_counted(world):
    tmp, settings = world
    write(tmp / "own.jsonl", [{"document": document(0)}])
    heard = Heard()
    given = settings("summaries", "documents.jsonl", "own.jsonl", k=20, retrieval="candidates")
    mine(given, Run(tmp / "out", heard))
    assert "inputs without a candidate, which are in no pair: 1" in heard.lines


def test_a_sentence_of_two_days_is_there_on_both(world):
    tmp, settings = world
    rows = [{"document": document(n), "day": day} for n in range(4) for day in ("a", "b")]
    write(tmp / "twice.jsonl", rows)
    given = settings("summaries", "twice.jsonl", "twice.jsonl", group_column="day", k=2)
    pairs = mine(given, Run(tmp / "out", Silent())).table().to_pylist()
    for column in ("id", "input", "output"):  # each is taken once all the same
        assert len({row[column] for row in pairs}) == len(pairs) > 0
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


def test_short_documents_and_those_without_a_day_are_rejected(world, capsys):
    tmp, settings = world
    rows = [{"document": document(n), "day": "2020-01-01"} for n in range(4)]
    write(
        tmp / "mixed.jsonl",
        [
            *rows,
            {"document": "Too short.", "day": "2020-01-01"},
            {"document": document(5), "day": None},
            *[{"document": blank, "day": "2020-01-01"} for blank in (" ", None)],
        ],
    )
    given = settings("summaries", "mixed.jsonl", "mixed.jsonl", group_column="day", k=2)
    mine(given, Run(tmp / "out", Progress()))
    assert sorted(name for name, _ in rejects(DatasetFolder.open(tmp / "out" / "inputs"))) == [
        "no group",
        "too short",
    ]
    said, card = capsys.readouterr().err, (tmp / "out" / "README.md").read_text()
    assert "inputs: 2 of 6 texts are left out before the search (1 no group: " in said
    assert re.search(r"\| inputs left out before the search, too short: 1 sentence, .* \| 1 \|", card)
    assert "inputs: rows without a text, which are skipped: 2" in said
    assert "| rows of inputs without a text | 2 |" in card


def test_corpora_without_a_common_day_and_a_column_that_is_not_there(world):
    tmp, settings = world
    write(tmp / "other.jsonl", [{"document": document(n), "day": "1999"} for n in range(4)])
    with pytest.raises(
        InputError, match=r"no group of the inputs \(2020-01-01, .*\) is also in the outputs \(1999"
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
def test_another_style_is_pruned_before_the_search(world, tmp_path, kind, side, capsys):
    tmp, settings = world
    encoder = make_bert(tmp_path / "encoder")
    weight = np.random.default_rng(1).normal(size=16).astype(np.float32)
    StyleClassifier(weight - weight.mean(), 0.0).save(encoder)
    inputs, outputs = ("questions.jsonl", "passages.jsonl") if kind == "reading" else ("documents.jsonl",) * 2
    for threshold in (0.0, 0.5):
        given = settings(kind, inputs, outputs, encoder=str(encoder), style=threshold, dtype="float32")
        with suppress(InputError):  # all but one are pruned
            mine(given, Run(tmp / f"out{threshold}", Progress()))
        messages = capsys.readouterr().err
        folder = DatasetFolder.open(tmp / f"out{threshold}" / side)
        lost = [row for row in folder.rejects().to_pylist() if row["filter"] == "style"]
        assert bool(lost) == (threshold > 0)
        much = len(lost) > 0.2 * (len(lost) + folder.rows)
        assert (f"to keep {side} of every style, give --style 0" in messages) == much
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
    assert "index IVF4,Flat: finds at least 100.0% of the nearest" in capsys.readouterr().err
    several = given.model_copy(update={"index_rows": 2})
    assert exact.table().equals(mine(several, Run(tmp / "several", Progress())).table())
    capsys.readouterr()
    again = several.model_copy(update={"best": 1})  # the search is kept, and what it finds said again
    assert mine(again, Run(tmp / "several", Progress(), fresh=True)).table().equals(exact.table().slice(0, 1))
    assert "index IVF4,Flat: finds at least 100.0%" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="IVF4,Flatt"):
        mine(given.model_copy(update={"index": "IVF4,Flatt"}), Run(tmp / "c", Silent()))


def test_parts_have_so_many_inputs_or_little_more():
    all_parts = cut_search([(n, 3) for n in (5, 1, 2, 9)], 4, "both")
    assert [part.number for part in all_parts] == list(range(len(all_parts)))
    blocks = [block for part in all_parts for block in part.blocks]
    assert [(p.group, *p.queries) for p in blocks] == [
        (0, 0, 4), (0, 4, 5), (1, 0, 1), (2, 0, 2), (3, 0, 4), (3, 4, 8), (3, 8, 9),
    ]  # fmt: skip
    assert {p.others for p in blocks} == {(0, 3)}
    assert [part.size for part in all_parts] == [4, 4, 4, 4, 1]
    assert {block.side for block in blocks} == {"both"}


def test_indexes_are_of_equal_size_and_a_part_each(monkeypatch):
    sizes = [(5, 3), (2, 1)]
    all_parts = parts_by_index(sizes, 2, 0, {"x": 4, "y": 4})
    assert [part.number for part in all_parts] == list(range(7))
    assert [part.blocks for part in all_parts] == [
        (block,) for block in (
            SearchBlock(0, "x", (0, 5), (0, 1)), SearchBlock(0, "x", (0, 5), (1, 3)),
            SearchBlock(0, "y", (0, 3), (0, 1)), SearchBlock(0, "y", (0, 3), (1, 3)), SearchBlock(0, "y", (0, 3), (3, 5)),
            SearchBlock(1, "x", (0, 2), (0, 1)), SearchBlock(1, "y", (0, 1), (0, 2)),
        )
    ]  # fmt: skip
    monkeypatch.setattr(search_parts, "SAVED_QUERIES", 3)
    queries = [part.blocks[0].queries for part in parts_by_index(sizes[:1], 5, 0, {"x": 4, "y": 4})]
    assert queries == [(0, 2), (2, 5), (0, 3)]
    monkeypatch.setattr(search_parts, "SAVED", 2_048)
    queries = [part.blocks[0].queries for part in parts_by_index(sizes[:1], 5, 0, {"x": 1_024, "y": 900})]
    assert queries == [(0, 1), (1, 3), (3, 5), (0, 1), (1, 3)]


@pytest.mark.parametrize(("count", "sizes"), [(11, [5, 6]), (9, [9]), (4, [4]), (20, [5, 5, 5, 5])])
def test_no_index_is_made_of_fewer_texts_than_it_is_trained_on(count, sizes):
    parts = parts_by_index([(1, count)], 3, 5, {"x": 4, "y": 4})
    held = [part.blocks[0].others for part in parts if part.blocks[0].side == "x"]
    assert [stop - start for start, stop in held] == sizes


@pytest.mark.parametrize("index_rows", [12_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_trained_indexes_of_several_stretches_find_what_one_does(tmp_path, index_rows, monkeypatch, capsys):
    """Clustered vectors, 20,000 to 500; the nearest of the smaller side are found in two indexes, or one."""
    pytest.importorskip("faiss")
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(100, 16, generator=generator)

    def side(name, count):
        vectors = centres[torch.randint(100, (count,), generator=generator)]
        vectors = vectors + 0.3 * torch.randn(count, 16, generator=generator)
        rows = (vectors / vectors.norm(dim=1, keepdim=True)).numpy()
        table = pa.table(
            {
                "id": [f"{name}{n}" for n in range(count)],
                "text": [str(n) for n in range(count)],
                "group": [""] * count,
                "context": pa.nulls(count),
                "answer": pa.nulls(count),
                "answer_start": pa.nulls(count),
                "vector": pa.array(list(rows), pa.list_(pa.float32())),
            }
        ).cast(encoded_schema("float32"))
        folder = write_folder(tmp_path / name, {"train": table}, step="encode")
        return Encoded.of(folder, tmp_path / f"{name}.vectors")

    x, y = side("x", 500), side("y", 20_000)
    monkeypatch.setattr(search_parts, "SAVED_QUERIES", 400)
    given = {"inputs": ["x"], "outputs": ["y"], "encoder": "none", "device": "cpu"}
    texts = CorpusTexts(x.texts(), tmp_path / "x.texts"), CorpusTexts(y.texts(), tmp_path / "y.texts")

    def of(settings, name):
        near, groups = find_neighbours(x, y, settings, {}, Run(tmp_path / name, Progress()))
        files = PairFile(tmp_path / f"{name}-ahead"), PairFile(tmp_path / f"{name}-back")
        scored_candidates(near.shards(), groups, (x, y), texts, settings, files, tmp_path)
        return [file[:] for file in files]

    exact, by_index = (
        of(settings, name)
        for name, settings in (
            ("exact", MineSettings(**given)),
            ("index", MineSettings(**given, index="IVF64,Flat", index_rows=index_rows)),
        )
    )
    said = capsys.readouterr().err
    assert "its training needs 9,984 vectors; 50 of 5" in said  # the 500, to which all outputs are held
    of_x = 4 * 500
    pairs = set(zip(by_index[0].x.tolist(), by_index[0].y.tolist(), strict=True))
    true = set(zip(exact[0].x.tolist(), exact[0].y.tolist(), strict=True))
    assert len(pairs) == len(true) == of_x
    assert len(pairs & true) > 0.93 * of_x
    assert torch.allclose(by_index[1].similarity.sort().values, exact[1].similarity.sort().values, atol=1e-6)

    before = files(tmp_path / "index" / "search")
    shutil.rmtree(tmp_path / "index" / "search")
    monkeypatch.setattr(indexes, "_load_training", pytest.fail)  # the index is there
    of(MineSettings(**given, index="IVF64,Flat", index_rows=index_rows), "index")
    assert files(tmp_path / "index" / "search") == before


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_a_search_stopped_between_parts_goes_on_to_the_same_rows(world, monkeypatch):
    tmp, settings = world
    given = settings("reading", "questions.jsonl", "passages.jsonl", search_rows=5)
    mine(given, Run(tmp / "whole", Silent()))
    calls, real = [], search.two_way_search

    def failing(*args, **more):
        calls.append(len(args[0]))
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(*args, **more)

    monkeypatch.setattr(search, "two_way_search", failing)
    with pytest.raises(StorageError):
        mine(given, Run(tmp / "out", Silent()))
    mine(given, Run(tmp / "out", Silent()))
    assert calls == [5, 5, 5, 2]
    assert files(tmp / "out") == files(tmp / "whole")


def test_other_settings_do_not_cost_parts_that_are_finished(world, monkeypatch):
    tmp, settings = world
    given = settings("reading", "questions.jsonl", "passages.jsonl")

    def failing(*_, **__):
        raise StorageError("no space left")

    monkeypatch.setattr(search, "two_way_search", failing)
    with pytest.raises(StorageError):
        mine(given, Run(tmp / "out", Silent()))
    encoded = files(tmp / "out")
    assert encoded
    for changes in ({"window": 20}, {"search_rows": 7}):
        with pytest.raises(FolderError, match="holds an unfinished run of mine with other settings"):
            mine(given.model_copy(update=changes), Run(tmp / "out", Silent()))
    assert files(tmp / "out") == encoded


def test_pairs_are_saved_in_shards_and_go_on_between_them(world, monkeypatch):
    tmp, settings = world
    given = settings("reading", "questions.jsonl", "passages.jsonl")
    whole = mine(given, Run(tmp / "whole", Silent()))
    monkeypatch.setattr(route, "SHARD_ROWS", 2)
    calls, real = [], route.split_by_threshold

    def failing(*args):
        calls.append(0)
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(*args)

    monkeypatch.setattr(route, "split_by_threshold", failing)
    with pytest.raises(StorageError):
        mine(given, Run(tmp / "out", Silent()))
    folder = mine(given, Run(tmp / "out", Silent()))
    assert len(folder.shard_rows()) == len(calls) - 1 >= 3
    assert folder.table().equals(whole.table())
    key = [("id", "ascending"), ("filter", "ascending"), ("row", "ascending")]
    assert folder.rejects().sort_by(key).equals(whole.rejects().sort_by(key))


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
        settings("reading", "questions.jsonl", "passages.jsonl", search_rows=2),
        Run(tmp / "two", Silent()),
    )
    assert one.table().equals(two.table())


@pytest.mark.parametrize("index", [None, "IVF4,Flat"])
def test_vectors_in_float16_are_half_as_large_and_are_what_is_compared(world, index):
    if index:
        pytest.importorskip("faiss")
    tmp, settings = world
    sides = []
    for dtype in ("float32", "float16"):
        given = settings("reading", "questions.jsonl", "passages.jsonl", index=index, vector_dtype=dtype)
        mined = mine(given, Run(tmp / dtype, Silent()))
        folders = [DatasetFolder.open(tmp / dtype / name) for name in ("inputs", "outputs")]
        sides.append([Encoded.of(folder, tmp / f"{dtype}-{folder.path.name}") for folder in folders])
    for long, short in zip(*sides, strict=True):
        assert short.vectors.tensor().equal(long.vectors.tensor().half())
        sizes = [side.vectors.file.stat().st_size - side.vectors.start for side in (long, short)]
        assert sizes[0] == 2 * sizes[1]
    products = (sides[1][0].vectors.tensor().double() @ sides[1][1].vectors.tensor().double().T).float()
    scores = torch.tensor(mined.table()["score"].to_pylist())
    assert len(scores)
    assert (scores[:, None, None] == products).any(dim=2).any(dim=1).all()


def test_vectors_on_another_machine_are_read_from_the_folder(world):
    tmp, settings = world
    mine(settings("reading", "questions.jsonl", "passages.jsonl"), Run(tmp / "out", Silent()))
    there = Encoded.of(DatasetFolder.open(tmp / "out" / "outputs"), tmp / "vectors")
    every = np.arange(len(there))
    before = there.vectors.select(every).clone()
    assert there.local() is there
    (tmp / "vectors").unlink()
    copy = there.local()
    assert copy.vectors.file != there.vectors.file
    assert copy.vectors.select(every).equal(before)
    some = np.array([0, 3, 7])
    assert copy.vectors.select(some).equal(before[some])
    copy.vectors.file.unlink()


def test_an_encoder_that_was_trained_for_another_kind_is_told(world, tiny_bert, tmp_path, capsys):
    _, settings = world
    encoder = tmp_path / "encoder"
    shutil.copytree(tiny_bert, encoder)
    told = f"{encoder} was trained with --kind reading, and mines pairs of --kind pairs"
    for number, chosen in enumerate(({"kind": "reading"}, {"kind": "pairs"}, {}, [])):
        write_record(encoder, chosen)
        given = settings("pairs", "questions.jsonl", "documents.jsonl", encoder=str(encoder))
        mine(given, Run(tmp_path / f"out-{number}", Progress()))
        assert (told in capsys.readouterr().err) == (number == 0)


def write_record(folder, settings):
    record = {"step": "train-biencoder", "complete": True, "settings": settings}
    (folder / "training.json").write_text(json.dumps(record))
