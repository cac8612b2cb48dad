import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    LabelledPair,
    LabelledText,
    Reject,
    ScoredPair,
    as_columns,
    from_table,
    length_before_cut,
    to_table,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCORE = st.floats(allow_nan=False)


def test_column_names_are_the_ecosystems():
    assert SCORED_PAIR.names == ["id", "sentence1", "sentence2", "score"]
    assert SCORED_PAIR.field("score").type == pa.float64()
    assert LABELLED_PAIR.names == ["id", "sentence1", "sentence2", "label"]
    assert LABELLED_TEXT.names == ["id", "text", "label"]
    assert LABELLED_TEXT.field("label").type == pa.string()
    assert REJECT.names == ["id", "filter", "reason", "row"]


@given(st.lists(st.builds(ScoredPair, TEXT, TEXT, TEXT, SCORE)))
def test_scored_pairs_survive_a_table(rows):
    table = to_table(rows, SCORED_PAIR)
    assert table.schema.equals(SCORED_PAIR)
    assert from_table(table, ScoredPair) == rows


@pytest.mark.parametrize(
    ("row", "schema"),
    [
        (LabelledPair("a", "x", "y", "entailment"), LABELLED_PAIR),
        (LabelledText("a", "x", "sport"), LABELLED_TEXT),
        (Reject("a", "copy", "equal", "{}"), REJECT),
    ],
)
def test_every_row_type_survives_a_table(row, schema):
    assert from_table(to_table([row, row], schema), type(row)) == [row, row]


def test_a_reject_holds_the_beginning_of_a_text_of_megabytes():
    row = {"text": "some words " * 400_000, "where": "a.jsonl:1", "score": 0.5, "other": "é" * 100_000}
    nested = {"negatives": ["a", row["text"]], "answers": {"text": (row["text"],), "answer_start": [3]}}
    stored = json.loads(Reject.of("1", "too long", "more tokens than the model reads", row | nested).row)
    cut = row["text"][:10_000] + " [… 4,390,000 more characters]"
    nested = {"negatives": ["a", cut], "answers": {"text": [cut], "answer_start": [3]}}
    assert stored == row | {"text": cut} | nested
    assert length_before_cut(cut) == len(row["text"])
    assert length_before_cut(row["other"]) == len(row["other"])


def test_no_rows_make_an_empty_table_with_the_columns():
    table = to_table([], LABELLED_TEXT)
    assert table.num_rows == 0
    assert table.schema.equals(LABELLED_TEXT)


def test_rows_of_another_schema_are_refused():
    with pytest.raises(TypeError, match=r"a LabelledText has the columns \['id', 'text', 'label'\]"):
        to_table([LabelledText("a", "x", "y")], SCORED_PAIR)


def test_a_table_that_lacks_a_column_is_refused():
    with pytest.raises(TypeError, match=r"a ScoredPair needs \['score'\]"):
        from_table(to_table([], LABELLED_PAIR), ScoredPair)


def test_columns_a_row_type_lacks_are_left_out():
    table = to_table([ScoredPair("a", "x", "y", 0.5)], SCORED_PAIR).append_column("extra", pa.array([1]))
    assert from_table(table, ScoredPair) == [ScoredPair("a", "x", "y", 0.5)]


def test_a_reject_holds_its_row_as_json_with_one_spelling():
    row = ScoredPair("a", 'Ä " x', "y", 0.5)
    columns = as_columns(row)
    reject = Reject.of("a", "copy", "equal", columns)
    assert reject == Reject.of("a", "copy", "equal", dict(reversed(columns.items())))
    assert "Ä" in reject.row
    assert json.loads(reject.row) == columns
