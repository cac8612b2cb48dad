"""The step ``filter``, with a random cross-encoder."""

import json

import numpy as np
import pytest
from tests.training.few import PEOPLE, PLAYS

from pairsmith.encoders.cross import load_cross_encoder, score_pairs
from pairsmith.errors import FolderError, InputError, ModelError, StorageError
from pairsmith.mine import filter as filtering
from pairsmith.mine.filter import filter_pairs
from pairsmith.mine.settings import FilterSettings
from pairsmith.progress import Progress, Silent
from pairsmith.records import (
    LABELLED_TEXT,
    MINED_PAIR,
    REJECT,
    SCORED_PAIR,
    LabelledText,
    MinedPair,
    ScoredPair,
    to_table,
)
from pairsmith.runs import Card, FolderWriter, Run

ROWS = [
    MinedPair(f"r{n}", f"who plays the {PLAYS[n]}?", f"{PEOPLE[n]} does", 2.0 - n / 10, 0.5)
    for n in range(12)
]
CARD = Card(title="Pairs", description="Some.")


def folder_of(path, rows, schema):
    run = Run(path, Silent())
    writer = FolderWriter.start(run, step="test", schema=schema, settings={}, inputs={}, models={})
    writer.commit(0, {"train": to_table(rows, schema)}, to_table([], REJECT))
    return writer.finish(CARD)


@pytest.fixture(scope="module")
def judge(tmp_path_factory, tiny_bert):
    """A cross-encoder with a random head."""
    folder = tmp_path_factory.mktemp("judge") / "model"
    cross = load_cross_encoder(str(tiny_bert), device="cpu", fresh_head=True, seed=1)
    cross.model.save_pretrained(folder)
    cross.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def world(tmp_path, judge):
    folder_of(tmp_path / "pairs", ROWS, MINED_PAIR)

    def settings(**changes):
        given = {"pairs": str(tmp_path / "pairs"), "model": judge, "dtype": "float32", "shard_size": 5}
        return FilterSettings(**{**given, **changes})

    return tmp_path, settings


def test_the_best_are_kept_in_the_order_of_their_scores(world, judge):
    tmp, settings = world
    found = filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    cross = load_cross_encoder(judge, device="cpu")
    scores = score_pairs(cross, [row.input for row in ROWS], [row.output for row in ROWS])
    order = np.argsort(-scores, kind="stable")
    rows = found.table().to_pylist()
    assert [row["id"] for row in rows] == [ROWS[i].id for i in order[:4]]
    assert [row["score"] for row in rows] == pytest.approx(scores[order[:4]].tolist(), abs=1e-5)
    assert [row["margin"] for row in rows] == [ROWS[i].margin for i in order[:4]]
    lost = found.rejects().to_pylist()
    assert [row["id"] for row in lost] == [ROWS[i].id for i in order[4:]]
    assert {row["filter"] for row in lost} == {"score"}
    assert {row["reason"] for row in lost} == {"not among the best"}
    assert json.loads(lost[0]["row"])["score"] == pytest.approx(scores[order[4]], abs=1e-5)
    assert json.loads(lost[0]["row"])["input"] == ROWS[order[4]].input


def test_a_threshold(world):
    tmp, settings = world
    every = filter_pairs(settings(), Run(tmp / "every", Silent())).table().to_pylist()
    assert len(every) == 12
    border = (every[6]["score"] + every[7]["score"]) / 2
    found = filter_pairs(settings(threshold=border), Run(tmp / "out", Silent()))
    assert found.table().to_pylist() == every[:7]
    assert filter_pairs(settings(threshold=1e9), Run(tmp / "none", Silent())).rows == 0


def test_stopped_it_goes_on_to_the_same_bytes(world, monkeypatch):
    tmp, settings = world
    filter_pairs(settings(best=4), Run(tmp / "whole", Silent()))
    calls, real = [], filtering.score_pairs

    def failing(cross, inputs, outputs, **more):
        calls.append(len(inputs))
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(cross, inputs, outputs, **more)

    monkeypatch.setattr(filtering, "score_pairs", failing)
    with pytest.raises(StorageError):
        filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    found = filter_pairs(settings(best=4), Run(tmp / "out", Silent()))
    assert calls == [5, 5, 5, 2]
    for path in (tmp / "whole").rglob("*.parquet"):
        assert path.read_bytes() == (tmp / "out" / path.relative_to(tmp / "whole")).read_bytes()
    assert filter_pairs(settings(best=4), Run(tmp / "out", Silent())).rows == found.rows
    with pytest.raises(FolderError, match="best"):
        filter_pairs(settings(best=5), Run(tmp / "out", Silent()))


def test_two_workers_write_the_same_bytes(world):
    tmp, settings = world
    one = filter_pairs(settings(), Run(tmp / "one", Silent()))
    two = filter_pairs(settings(workers=2), Run(tmp / "two", Silent()))
    assert one.table().equals(two.table())


def test_other_pairs_keep_their_labels(world):
    tmp, settings = world
    rows = [ScoredPair(f"r{n}", f"the {PLAYS[n]}", f"a {PLAYS[n]}", 1.0) for n in range(4)]
    folder_of(tmp / "scored", rows, SCORED_PAIR)
    found = filter_pairs(settings(pairs=str(tmp / "scored"), best=2), Run(tmp / "out", Progress()))
    assert [row["score"] for row in found.table().to_pylist()] == [1.0, 1.0]


def test_no_pairs_make_no_rows(world):
    tmp, settings = world
    folder_of(tmp / "empty", [], MINED_PAIR)
    assert filter_pairs(settings(pairs=str(tmp / "empty")), Run(tmp / "out", Silent())).rows == 0


def test_what_cannot_be_filtered_is_said(world, tiny_bert):
    tmp, settings = world
    folder_of(tmp / "texts", [LabelledText("a", "b", "c")], LABELLED_TEXT)
    with pytest.raises(InputError, match="found id, text, label"):
        filter_pairs(settings(pairs=str(tmp / "texts")), Run(tmp / "out", Silent()))
    with pytest.raises(ModelError, match="has no head for classification"):
        filter_pairs(settings(model=str(tiny_bert)), Run(tmp / "other", Silent()))
