"""Rows with labels or scores from files that pairsmith did not write."""

import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.labelled_rows import read_labelled_rows
from pairsmith.data.schemas import LABELLED_PAIR, LABELLED_TEXT, SCORED_PAIR


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_columns_say_which_kind_of_rows_they_are(tmp_path):
    pair = {"sentence1": "a", "sentence2": "b"}
    for row, schema in (
        ({**pair, "score": "0.5"}, SCORED_PAIR),
        ({**pair, "label": "yes"}, LABELLED_PAIR),
        ({"text": "a", "label": 1}, LABELLED_TEXT),
        ({**pair, "score": 1, "label": "yes", "note": "x"}, SCORED_PAIR),
    ):
        kind, rows = read_labelled_rows(written(tmp_path / "rows.jsonl", [row]))
        assert kind == schema
        assert len(rows) == 1
    assert rows[0].score == 1.0


def test_a_number_is_the_name_of_a_label(tmp_path):
    labels = [1.0, 0.5, 3, "2.0", "1.5", True]
    rows = [{"text": f"a {label}", "label": label} for label in labels]
    _, labelled_rows = read_labelled_rows(written(tmp_path / "rows.jsonl", rows))
    assert [row.label for row in labelled_rows] == ["1", "0.5", "3", "2", "1.5", "true"]


def test_ids_are_those_of_the_file_or_of_the_texts_and_each_is_another(tmp_path):
    rows = [{"text": "a", "label": "x"}] * 2 + [{"text": "b", "label": "x", "id": 7}] * 2
    _, labelled_rows = read_labelled_rows(written(tmp_path / "rows.jsonl", rows))
    first, second, third, fourth = (row.id for row in labelled_rows)
    assert second == f"{first}-2"
    assert (third, fourth) == ("7", "7-2")
    rows = [{"text": str(number), "label": "x", "id": name} for number, name in enumerate(["x", "x", "x-2"])]
    _, labelled_rows = read_labelled_rows(written(tmp_path / "rows.jsonl", rows))
    assert len({row.id for row in labelled_rows}) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows.jsonl holds no rows"),
        (
            [{"text": "a", "stars": 3}],
            "rows.jsonl has the columns text, stars; expected the columns of one of",
        ),
        ([{"sentence1": "a", "sentence2": "b", "score": "high"}], "rows.jsonl:1: the score is 'high'"),
        (
            [{"sentence1": " ", "sentence2": "b", "score": 1}],
            "rows.jsonl:1: sentence1 is blank; fill it in or",
        ),
        ([{"text": "a", "label": None}], "rows.jsonl:1: the label is 'None'; give a word or a number"),
        ([{"text": "a", "label": float("nan")}], "rows.jsonl:1: the label is 'nan'"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_labelled_rows(written(tmp_path / "rows.jsonl", rows))
