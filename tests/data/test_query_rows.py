import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.beir import REPEATED, UNKNOWN_DOCUMENTS
from pairsmith.data.chunk_rows import QueryExample, read_query_examples
from pairsmith.data.query_columns import pick_pair, positive_column
from pairsmith.data.query_rows import read_corpus, read_query_rows


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    return [
        lines(
            tmp_path / "corpus.jsonl",
            {"id": "a", "title": "Boats", "text": "They sail."},
            {"id": "b", "title": "", "text": "They stand."},
        )
    ]


def test_a_title_is_no_text_that_is_left_unread(tmp_path):
    said = []
    rows = lines(tmp_path / "rows.jsonl", {"Title": "Boats and ships", "Text": "They sail."})
    (passage,) = read_corpus([rows], say=said.append).values()
    assert (passage.whole, said) == ("Boats and ships\nThey sail.", [])


def test_documents_are_known_by_id_or_by_text(tmp_path, corpus):
    data = lines(
        tmp_path / "rows.jsonl",
        {"query": "what sails", "chunk": "a", "positive": "another text"},
        {"query": "what stands", "chunk": None, "positive": "They stand."},
        {"query": "what sails", "chunk": "b", "positive": ""},
        {"query": "what sails", "chunk": "a", "positive": ""},
        {"query": "what flies", "chunk": "c", "positive": "They fly."},
    )
    retrieval_set = read_query_rows(data, corpus)
    assert retrieval_set.documents == {"b": "They stand.", "a": "Boats\nThey sail."}
    assert list(retrieval_set.documents) == ["a", "b"]
    by_text = {retrieval_set.queries[query]: relevant for query, relevant in retrieval_set.relevance.items()}
    # A document that is not there is a relevant one that nothing finds.
    assert by_text == {"what sails": {"a": 1, "b": 1}, "what stands": {"b": 1}, "what flies": {"c": 1}}
    assert {fault: len(ids) for fault, ids in retrieval_set.faults.items()} == {
        REPEATED: 1,
        UNKNOWN_DOCUMENTS: 1,
    }
    assert retrieval_set.faults[UNKNOWN_DOCUMENTS] == ["c"]


def test_texts_that_answer_queries_are_found_in_any_letter_case(tmp_path, corpus):
    data = lines(tmp_path / "rows.jsonl", {"Query": "what stands", "Positive": "They stand."})
    (relevant,) = read_query_rows(data, corpus).relevance.values()
    assert relevant == {"b": 1}
    assert read_query_examples(data) == [QueryExample("what stands", "They stand.")]


def test_a_column_of_queries_is_none_of_answers():
    row = {"Document": "a query", "output": "a text"}
    assert positive_column(row, "Document") == "output"
    assert pick_pair(row, "rows", query="Document") == ("Document", "output")
    assert positive_column({"Document": "a query"}, "Document") is None


def test_the_answers_of_a_list_of_questions_are_its_positives():
    assert pick_pair({"Question": "who", "Answer": "They."}, "faq.csv") == ("Question", "Answer")
    assert pick_pair({"question": "who", "answer": "They", "context": "They stand."}, "rows")[1] == "context"


def test_queries_of_another_corpus_are_refused(tmp_path, corpus):
    with pytest.raises(InputError, match="1 of the 1 texts that its queries should find are not"):
        read_query_rows(lines(tmp_path / "rows.jsonl", {"query": "who", "positive": "Nobody."}), corpus)
    with pytest.raises(InputError, match="query is blank"):
        read_query_rows(lines(tmp_path / "rows.jsonl", {"query": " ", "positive": "They stand."}), corpus)


def test_a_document_may_have_the_number_0_as_its_id(tmp_path):
    corpus = lines(tmp_path / "corpus.jsonl", {"id": 0, "text": "They sail."}, {"id": 1, "text": "No."})
    retrieval_set = read_query_rows(lines(tmp_path / "rows.jsonl", {"query": "who", "chunk": 0}), [corpus])
    assert list(retrieval_set.relevance.values()) == [{"0": 1}]
    assert not retrieval_set.faults


def test_an_id_stands_for_one_text(tmp_path, corpus):
    data = lines(tmp_path / "rows.jsonl", {"query": "who", "chunk": "a"})
    again = lines(tmp_path / "again.jsonl", {"id": "a", "title": "Boats", "text": "They sail."})
    assert read_query_rows(data, [*corpus, again]).documents["a"] == "Boats\nThey sail."
    other = lines(tmp_path / "other.jsonl", {"id": "a", "text": "They fly."})
    with pytest.raises(InputError, match="has the id 'a', too"):
        read_query_rows(data, [*corpus, other])


@pytest.mark.parametrize("row", [{"chunk": None}, {"chunk": " ", "positive": ""}, {"positive": ["", None]}])
def test_a_query_without_a_document_is_refused(tmp_path, corpus, row):
    named = {"query": "what sails", "chunk": "a", "positive": ["", "They sail."]}
    data = lines(tmp_path / "rows.jsonl", named, named | {"chunk": None}, {"query": "what stands", **row})
    with pytest.raises(InputError) as caught:
        read_query_rows(data, corpus)
    assert str(caught.value) == (
        "rows.jsonl:3: neither chunk nor positive names a document that answers the query; give its id or its "
        "text, or drop the row"
    )
    assert read_query_rows(lines(tmp_path / "one.jsonl", named), corpus).faults == {}


def test_a_file_without_queries_is_told(tmp_path, corpus):
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="none.jsonl"):
        read_query_rows(str(tmp_path / "none.jsonl"), corpus)


def test_some_texts_that_are_not_there_are_counted_and_most_of_them_an_error(tmp_path, corpus):
    rows = [{"query": f"who {n}", "positive": "They stand." if n < 3 else f"No {n}."} for n in range(5)]
    retrieval_set = read_query_rows(lines(tmp_path / "rows.jsonl", *rows), corpus)
    assert len(retrieval_set.faults[UNKNOWN_DOCUMENTS]) == 2
    rows[0]["positive"] = "Nobody."
    with pytest.raises(
        InputError,
        match=r"3 of the 5 texts .* are not among .* \(the step chunk may have cut your documents\)",
    ):
        read_query_rows(lines(tmp_path / "more.jsonl", *rows), corpus)
