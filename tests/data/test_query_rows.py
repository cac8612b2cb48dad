import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.beir import REPEATED, UNKNOWN_DOCUMENTS
from pairsmith.data.query_rows import read_query_rows


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


def test_documents_are_known_by_id_or_by_text(tmp_path, corpus):
    data = lines(
        tmp_path / "rows.jsonl",
        {"query": "what sails", "chunk": "a", "positive": "another text"},
        {"query": "what stands", "chunk": None, "positive": "They stand."},
        {"query": "what sails", "chunk": "b", "positive": ""},
        {"query": "what sails", "chunk": "a", "positive": ""},
        {"query": "what flies", "chunk": "c", "positive": "They fly."},
    )
    found = read_query_rows(data, corpus)
    assert found.documents == {"b": "They stand.", "a": "Boats They sail."}
    assert list(found.documents) == ["b", "a"]
    by_text = {found.queries[query]: relevant for query, relevant in found.relevance.items()}
    assert by_text == {"what sails": {"a": 1, "b": 1}, "what stands": {"b": 1}}
    assert {fault: len(ids) for fault, ids in found.faults.items()} == {REPEATED: 1, UNKNOWN_DOCUMENTS: 1}
    assert found.faults[UNKNOWN_DOCUMENTS] == ["c"]


def test_queries_of_another_corpus_are_refused(tmp_path, corpus):
    with pytest.raises(InputError, match="none of its queries has its text"):
        read_query_rows(lines(tmp_path / "rows.jsonl", {"query": "who", "positive": "Nobody."}), corpus)
    with pytest.raises(InputError, match="query is blank"):
        read_query_rows(lines(tmp_path / "rows.jsonl", {"query": " ", "positive": "They stand."}), corpus)
