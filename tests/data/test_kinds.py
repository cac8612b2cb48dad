"""Rows of each kind, as training reads them."""

import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.kinds import row_kind
from pairsmith.data.readers import text_id

WITH_NEGATIVES = {"query": "q", "positive": "p", "negatives": ["n", "m"]}


def read(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(row_kind(str(path)).read(str(path)))


@pytest.mark.parametrize("texts", [("text",), ("sentence1", "sentence2")])
def test_labels_that_are_numbers_are_read_as_by_every_reader(tmp_path, texts):
    labels = [1.0, 1, "1.0", True, 0.5, "x"]
    rows = [{**dict.fromkeys(texts, "a"), "label": label} for label in labels]
    results = read(tmp_path / "rows.jsonl", *rows)
    assert [row["label"] for row in results] == ["1", "1", "1", "true", "0.5", "x"]
    with pytest.raises(InputError, match=r"rows.jsonl:1: the label is .*; give a word or a number"):
        read(tmp_path / "rows.jsonl", {**rows[0], "label": ["x"]})


def test_columns_that_differ_only_in_case_are_named(tmp_path):
    with pytest.raises(InputError) as raised:
        read(tmp_path / "rows.jsonl", {"id": "1", "Label": "x", "Text ": "a"})
    assert str(raised.value) == (
        f"{tmp_path}/rows.jsonl: rename the columns 'Label' to 'label', 'Text ' to 'text'; names of columns "
        "are compared exactly"
    )
    with pytest.raises(InputError, match="rename the column 'SCORE' to 'score'; names"):
        read(tmp_path / "rows.jsonl", {"sentence1": "a", "sentence2": "b", "SCORE": 1})


def test_the_document_of_a_summary_is_in_the_column_document(tmp_path):
    row = {"document": "the document", "summary": "s", "text": "another text"}
    (result,) = read(tmp_path / "rows.jsonl", row)
    assert (result["document"], result["summary"]) == ("the document", "s")


def test_queries_with_negatives_need_no_ids_and_no_scores(tmp_path):
    bare, full = read(
        tmp_path / "rows.jsonl",
        WITH_NEGATIVES,
        {**WITH_NEGATIVES, "negative_ids": [7, None], "scores": [1, 0.5], "query_id": 0},
    )
    assert (bare["scores"], bare["negative_ids"]) == (None, [text_id("n"), text_id("m")])
    assert (full["scores"], full["negative_ids"]) == ([1.0, 0.5], ["7", text_id("m")])
    assert (bare["query_id"], full["query_id"]) == (text_id("q"), "0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"negatives": None}, "negatives has to be a list of texts"),
        ({"negatives": "n"}, "negatives has to be a list of texts"),
        ({"negatives": ["n", 3]}, "column 'negatives' holds a number, not text"),
        ({"negatives": ["n", " "]}, "negatives is blank; fill it in or drop the row"),
        ({"negatives": ["n", "\ud800"]}, "column 'negatives' holds half a character"),
        ({"scores": 0.5}, "scores has to be a list with an item for each of the 2 negatives"),
        ({"scores": [0.5]}, "scores has to be a list with an item for each of the 2 negatives"),
        ({"scores": [0.5, None]}, "the score is 'None', not a number"),
        ({"negative_ids": 3}, "negative_ids has to be a list with an item for each of the 2 negatives"),
        ({"negative_ids": ["a", "\ud800"]}, "column 'negative_ids' holds half a character"),
        ({"query_id": "\ud800"}, "column 'query_id' holds half a character"),
        ({"positive": " "}, "positive is blank; fill it in or drop the row"),
    ],
)
def test_faults_of_queries_with_negatives_are_told_with_their_place(tmp_path, change, message):
    with pytest.raises(InputError, match=f"rows.jsonl:2: {message}"):
        read(tmp_path / "rows.jsonl", WITH_NEGATIVES, WITH_NEGATIVES | change)


def test_a_row_without_negatives_is_told(tmp_path):
    with pytest.raises(InputError, match=r"rows.jsonl:2: negatives has to be a list of texts"):
        read(tmp_path / "rows.jsonl", WITH_NEGATIVES, {"query": "q", "positive": "p"})
