"""Documents with their summaries and groups: which columns are taken, and what becomes of their values."""

import gzip
import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError
from pairsmith.data.documents import DOCUMENT, DOCUMENT_COLUMNS, Document, read_documents, read_titled
from pairsmith.data.readers import text_id


@pytest.fixture
def put(tmp_path):
    def write(*rows, name="news.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def fault(source, **options):
    with pytest.raises(InputError) as caught:
        list(read_documents(source, **options))
    message = str(caught.value)
    assert message.count("\n") <= 1
    return message


def test_documents_with_summaries_and_where_they_stood(put):
    rows = [
        {"id": "7", "document": " First line.\nSecond. ", "summary": "Two lines. "},
        {"id": 8, "document": "Other.", "summary": None},
    ]
    assert list(read_documents(put(*rows))) == [
        Document("First line.\nSecond.", "news.jsonl:1", "7", summary="Two lines."),
        Document("Other.", "news.jsonl:2", "8"),
    ]


def test_plain_text_has_one_document_a_line(tmp_path):
    path = tmp_path / "news.txt.gz"
    path.write_bytes(gzip.compress(b"One.\n\nTwo.\n"))
    assert list(read_documents(path)) == [
        Document("One.", "news.txt.gz:1"),
        Document("Two.", "news.txt.gz:3"),
    ]


@pytest.mark.parametrize("given_id", [None, "", "  "])
def test_without_an_id_the_text_names_the_document(put, given_id):
    assert next(read_documents(put({"id": given_id, "text": "One."}))).id == text_id("One.")


def test_a_row_number_of_zero_is_an_id(put):
    assert next(read_documents(put({"id": 0, "text": "One."}))).id == "0"


@pytest.mark.parametrize("first", range(len(DOCUMENT_COLUMNS)))
def test_the_first_of_the_usual_columns_is_taken(put, first):
    row = {name: f"In {name}." for name in reversed(DOCUMENT_COLUMNS[first:])}
    assert next(read_documents(put(row))).text == f"In {DOCUMENT_COLUMNS[first]}."


def test_a_named_column_comes_before_the_usual_ones(put):
    path = put({"document": "a", "body": "b", "summary": "d"})
    document = next(read_documents(path, column="body"))
    assert (document.text, document.summary) == ("b", "d")


@pytest.mark.parametrize(
    ("row", "summary"),
    [
        ({"article": "a", "highlights": "h"}, "h"),
        ({"input": "a", "output": "o"}, "o"),
        ({"text": "a", "summary": "s", "highlights": "h", "output": "o"}, "s"),
        ({"Article": "a", "Summary": "s", "highlights": "h"}, "s"),
        ({"text": "a", "title": "t"}, ""),
    ],
)
def test_which_column_has_the_summary(put, row, summary):
    assert next(read_documents(put(row))).summary == summary


def test_the_column_of_the_documents_is_not_that_of_the_summaries(put):
    path = put({"summary": "A long one.", "highlights": "Short."})
    assert next(read_documents(path, column="summary")).summary == "Short."


def test_paragraphs_are_joined_by_line_breaks(put):
    row = {"title": "Head", "paragraphs": [" One. ", "", None, "Two."], "highlights": ["a", "b"]}
    document = next(read_documents(put(row)))
    assert (document.text, document.summary) == ("One.\nTwo.", "a\nb")


def test_a_title_is_read_in_any_letter_case(put):
    path = put({"TITLE": "Head", "Text": "One."}, {"Text": "Two."})
    assert [document.title for document in read_titled(path)] == ["Head", ""]
    assert next(read_titled(path, column="TITLE")).title == ""


def test_blank_documents_are_skipped(put):
    rows = [{"text": " "}, {"text": None}, {"text": []}, {"text": ["", " "]}, {"text": "One."}]
    assert [document.where for document in read_documents(put(*rows))] == ["news.jsonl:5"]


@pytest.mark.parametrize(
    ("value", "group"),
    [
        ("2021-03-04", "2021-03-04"),
        ("2021-03-04T23:59:59Z", "2021-03-04"),
        (" 2021-03-04 23:59 ", "2021-03-04"),
        ("2021-03-04-extra", "2021-03-04-extra"),
        ("26-FEB-1987 15:01", "26-FEB-1987 15:01"),
        ("sport", "sport"),
        (20210304, "20210304"),
        (0, "0"),
        (1.5, "1.5"),
        ("", ""),
        ("  ", ""),
        (None, ""),
    ],
)
def test_the_group(put, value, group):
    path = put({"text": "One.", "when": value})
    assert next(read_documents(path, group_column="when")).group == group
    assert next(read_documents(path)).group == ""


def test_a_row_without_the_group_column_has_none(put):
    path = put({"text": "One.", "when": "a"}, {"text": "Two."})
    assert [document.group for document in read_documents(path, group_column="when")] == ["a", ""]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (date(2021, 3, 4), pa.date32()),
        (datetime(2021, 3, 4, 23, 59), pa.timestamp("us")),
        (datetime(2021, 3, 4, 23, 59), pa.timestamp("ns")),
        (datetime(2021, 3, 4, 23, 59, tzinfo=UTC), pa.timestamp("s", tz="UTC")),
    ],
)
def test_dates_and_times_of_parquet_become_days(tmp_path, value, kind):
    table = pa.table({"text": pa.array(["One."]), "when": pa.array([value], kind)})
    pq.write_table(table, tmp_path / "news.parquet")
    assert next(read_documents(tmp_path / "news.parquet", group_column="when")).group == "2021-03-04"


def test_reading_is_a_stream(tmp_path):
    path = tmp_path / "news.jsonl"
    path.write_text('{"text": "One."}\nnonsense\n')
    documents = read_documents(path)
    assert next(documents).text == "One."
    with pytest.raises(InputError, match=r"news\.jsonl:2: not JSON"):
        next(documents)


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"title": "a"}, {}, "news.jsonl has none of the columns text, document, article"),
        ({"text": "a"}, {"column": "body"}, "news.jsonl has no column 'body'"),
        ({"text": 3}, {}, "news.jsonl:1: column 'text' holds a number, not text"),
        ({"text": ["a", 3]}, {}, "news.jsonl:1: column 'text' holds a number, not text"),
        ({"text": {"a": 1}}, {}, "news.jsonl:1: column 'text' holds an object, not text"),
        ({"text": "a", "summary": 3}, {}, "news.jsonl:1: column 'summary' holds a number, not text"),
        (
            {"text": "a", "day": [1]},
            {"group_column": "day"},
            "column 'day' holds a list; a group has to be text",
        ),
        ({"text": " "}, {}, "news.jsonl holds no documents"),
    ],
)
def test_what_is_wrong_is_said(put, row, options, message):
    assert message in fault(put(row), **options)


def test_a_source_that_is_not_there_fails_at_once(tmp_path):
    with pytest.raises(InputError, match=r"news\.jsonl does not exist"):
        read_documents(tmp_path / "news.jsonl")


def test_a_dataset_folder_of_the_schema(tmp_path):
    assert DOCUMENT.names == ["id", "document", "summary"]
    (tmp_path / "data").mkdir()
    table = pa.table({"id": ["a"], "document": ["One."], "summary": ["1"]}, schema=DOCUMENT)
    pq.write_table(table, tmp_path / "data" / "train-00000.parquet")
    assert list(read_documents(tmp_path)) == [Document("One.", "train-00000.parquet:1", "a", summary="1")]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_no_character_but_white_space_is_lost(tmp_path_factory, paragraphs):
    path = tmp_path_factory.mktemp("t") / "news.jsonl"
    path.write_text(json.dumps({"text": ["x", *paragraphs]}) + "\n", encoding="utf-8")
    assert next(read_documents(path)).text.split() == " ".join(["x", *paragraphs]).split()


def test_a_column_of_parquet_can_be_named(tmp_path):
    table = pa.table({"text": ["not this"], "body": ["this"], "feed": ["a"]})
    pq.write_table(table, tmp_path / "news.parquet")
    (document,) = read_documents(tmp_path / "news.parquet", column="body", group_column="feed")
    assert (document.text, document.group) == ("this", "a")
    assert "bdy" in fault(tmp_path / "news.parquet", column="bdy")
