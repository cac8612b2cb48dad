import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.tuples import RetrievalExample, read_tuples


@pytest.fixture
def put(tmp_path):
    def write(*rows):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / "rows.jsonl")

    return write


def only(source, **how):
    (example,) = read_tuples(source, **how)
    return example


@pytest.mark.parametrize(
    ("row", "negatives"),
    [
        ({"query": "q", "positive": "p"}, ()),
        ({"anchor": " q ", "positive": "p", "negative": "a"}, ("a",)),
        (
            {"negative_10": "c", "negative_2": "b", "negative_1": "a", "Query": "q", "positive": "p"},
            ("a", "b", "c"),
        ),
        ({"query": "q", "positive": "p", "negatives": ["a", "b"], "negative": None}, ("a", "b")),
        ({"query": "q", "positive": "p", "negatives": ["a", "", None, "b"]}, ("a", "b")),
        ({"question": "q", "context": "p", "answers": {"text": []}}, ()),
        ({"input": "q", "output": "p", "score": 0.5, "margin": 1.1}, ()),
        ({"sentence1": "q", "sentence2": "p"}, ()),
        ({"query": "q", "positive": "p", "title": None}, ()),
    ],
)
def test_the_columns_that_texts_may_stand_in(put, row, negatives):
    assert only(put(row)) == RetrievalExample("q", "p", negatives)


@pytest.mark.parametrize(
    ("given", "scores"),
    [
        ({"score": 3.0, "scores": [2.0, 1.0]}, (3.0, 2.0, 1.0)),
        ({"scores": [3, 2, 1]}, (3.0, 2.0, 1.0)),
        ({"label": [3, 2, 1]}, (3.0, 2.0, 1.0)),
        ({"score": [1.0, 2.5]}, (0.0, -1.0, -2.5)),
        ({"score": None, "scores": None, "label": [0.5, 1]}, (0.0, -0.5, -1.0)),
    ],
)
def test_the_scores_of_the_positive_and_of_two_negatives(put, given, scores):
    row = {"query": "q", "positive": "p", "negative_1": "a", "negative_2": "b", **given}
    assert only(put(row), scored=True) == RetrievalExample("q", "p", ("a", "b"), scores)
    assert only(put(row)).scores == ()


def test_a_single_number_is_the_lead_over_the_only_negative(put, tmp_path):
    row = {"query": "q", "positive": "p", "negative": "a", "score": 4.5}
    assert only(put(row), scored=True).scores == (0.0, -4.5)
    (tmp_path / "rows.tsv").write_text("query\tpositive\tnegative\tscore\nq\tp\ta\t4.5\n")
    assert only(str(tmp_path / "rows.tsv"), scored=True).scores == (0.0, -4.5)


def test_a_blank_negative_is_left_out_with_its_score(put):
    row = {"query": "q", "positive": "p", "negatives": ["a", " ", "b"], "scores": [4, 3, 2, 1]}
    assert only(put(row), scored=True) == RetrievalExample("q", "p", ("a", "b"), (4.0, 3.0, 1.0))


def test_rows_of_a_parquet_file_with_lists(tmp_path):
    table = pa.table(
        {"query": ["q"], "positive": ["p"], "negatives": [["a"]], "score": [2.0], "scores": [[1.0]]}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    assert only(str(tmp_path / "rows.parquet"), scored=True) == RetrievalExample("q", "p", ("a",), (2.0, 1.0))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": " ", "positive": "p"}, "rows.jsonl:1: query is blank; give both texts or drop the row"),
        ({"query": "q", "positive": None}, "rows.jsonl:1: positive is blank"),
        ({"query": "q"}, "has none of the columns positive, context, .*; it has: query"),
        ({"text": "q"}, "has none of the columns query, question, anchor, input"),
        ({"query": "q", "positive": "p", "title": "\ud800"}, "column 'title' holds half a character"),
        (
            {"query": "q", "positive": "p", "negatives": [1]},
            "rows.jsonl:1: column 'negatives' holds a number, not",
        ),
    ],
)
def test_rows_that_lack_a_text(put, row, message):
    with pytest.raises(InputError, match=message):
        list(read_tuples(put(row)))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "rows.jsonl:1: the row has no scores; expected a column scores, score or label"),
        (
            {"scores": [1, 2, 3]},
            "scores has 3 numbers and the row 1 negative; expected the scores of the positive and",
        ),
        ({"scores": [10**400, 1]}, "scores is .*; expected a number or a list of numbers"),
        (
            {"scores": ["x", 1]},
            r"rows.jsonl:1: scores is \"\['x', 1\]\"; expected a number or a list of numbers",
        ),
        ({"score": float("nan")}, "score is 'nan'; expected a number"),
        (
            {"score": 1, "negative": None},
            "the row has no negative, whose score could be learned; add one or drop the row",
        ),
    ],
)
def test_rows_that_lack_scores(put, more, message):
    with pytest.raises(InputError, match=message):
        list(read_tuples(put({"query": "q", "positive": "p", "negative": "a", **more}), scored=True))


def test_pairs_with_a_score_and_no_negatives_are_refused_where_scores_are_learned(put):
    with pytest.raises(InputError, match="the row has no negative, whose score could be learned"):
        list(read_tuples(put({"input": "q", "output": "p", "score": 0.5, "margin": 1.1}), scored=True))


def test_the_title_of_the_positive_stands_before_it(put):
    row = {"query": "q", "positive": "p", "title": " a\n title ", "negative": "n"}
    assert only(put(row)) == RetrievalExample("q", "a title\np", ("n",))
    row["Title"] = row.pop("title")
    assert only(put(row)) == RetrievalExample("q", "a title\np", ("n",))


def test_a_title_that_is_no_text_is_none(put):
    assert only(put({"query": "q", "positive": "p", "title": 3})) == RetrievalExample("q", "p")


def test_each_of_several_positives_is_an_example(put):
    examples = list(read_tuples(put({"query": "q", "pos": ["a", "b"], "negative": "n"})))
    assert examples == [RetrievalExample("q", "a", ("n",)), RetrievalExample("q", "b", ("n",))]


def test_pairs_with_a_grade_are_no_queries_with_answers(put):
    with pytest.raises(
        InputError, match="has a column score, so in some of its pairs sentence2 may not answer sentence1"
    ):
        list(read_tuples(put({"sentence1": "q", "sentence2": "p", "score": 0.1})))


def test_no_rows(put):
    with pytest.raises(InputError, match=r"rows\.jsonl holds no examples"):
        list(read_tuples(put()))
