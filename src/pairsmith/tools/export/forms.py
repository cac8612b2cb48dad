"""Export formats: each turns rows of a kind into the files of another tool, as names and contents."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pairsmith.core.errors import SettingsError
from pairsmith.data.kinds import Kind, Row
from pairsmith.data.readers import text_id
from pairsmith.tools.export.settings import FormName

Splits = Mapping[str, Sequence[Row]]
"""Rows by split."""

Files = Iterator[tuple[str, Iterable[str]]]
"""File names, each with the lines of the file."""

RowForm = Callable[[Splits, Kind], Files]

_BELONG = {
    "questions with answers": ("question", "context"),
    "pairs of inputs and outputs": ("input", "output"),
    "documents with summaries": ("summary", "document"),
}
"""For kinds whose two texts belong together: the columns of the query and of the document."""


def jsonl(splits: Splits, kind: Kind) -> Files:
    """JSON Lines: one row per line, with the columns of its kind."""
    for split, rows in splits.items():
        yield f"{split}.jsonl", [_line({name: row[name] for name in kind.schema.names}) for row in rows]


def squad(splits: Splits, kind: Kind) -> Files:
    """SQuAD 1.1: articles by title, each with its passages and their questions."""
    if kind.name != "questions with answers":
        raise SettingsError(f"--form squad is for questions with answers; these are {kind.name}")
    for split, rows in splits.items():
        ordered = sorted(rows, key=_place_of(rows))
        articles = [
            {"title": title, "paragraphs": [_paragraph(*each) for each in groupby(some, _context)]}
            for title, some in groupby(ordered, _title)
        ]
        yield f"{split}.json", [json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False)]


def beir(splits: Splits, kind: Kind) -> Files:
    """BEIR: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``; equal texts are one document."""
    asked, found = _belonging(kind, "beir")
    every = [row for rows in splits.values() for row in rows]
    queries = {text_id(str(row[asked])): str(row[asked]) for row in every}
    documents = {text_id(str(row[found])): row for row in every}
    corpus = ({"_id": name, "title": _title(row), "text": row[found]} for name, row in documents.items())
    yield "corpus.jsonl", map(_line, corpus)
    yield "queries.jsonl", (_line({"_id": name, "text": text}) for name, text in queries.items())
    for split, rows in splits.items():
        pairs = dict.fromkeys((text_id(str(row[asked])), text_id(str(row[found]))) for row in rows)
        lines = [f"{query}\t{document}\t1" for query, document in pairs]
        yield f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *lines]


def sentence_transformers(splits: Splits, kind: Kind) -> Files:
    """Columns in the order that losses expect: anchor and positive, or two sentences with score or label."""
    if kind.name == "scored pairs":
        names = {"sentence1": "sentence1", "sentence2": "sentence2", "score": "score"}
    elif kind.name == "labelled pairs":
        names = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
    else:
        asked, found = _belonging(kind, "sentence-transformers")
        names = {asked: "anchor", found: "positive"}
    for split, rows in splits.items():
        yield f"{split}.jsonl", [_line({name: row[column] for column, name in names.items()}) for row in rows]


FORMS: Mapping[FormName, RowForm] = {
    "jsonl": jsonl,
    "squad": squad,
    "beir": beir,
    "sentence-transformers": sentence_transformers,
}


def _belonging(kind: Kind, form: str) -> tuple[str, str]:
    if kind.name not in _BELONG:
        known = ", ".join(_BELONG)
        raise SettingsError(f"--form {form} is for {known}; these are {kind.name}")
    return _BELONG[kind.name]


def _place_of(rows: Sequence[Row]) -> Callable[[Row], tuple[int, int]]:
    """A sort key that groups rows by title and passage, in order of first appearance."""
    titles: dict[str, int] = {}
    passages: dict[tuple[str, str], int] = {}
    for row in rows:
        title = _title(row)
        titles.setdefault(title, len(titles))
        passages.setdefault((title, _context(row)), len(passages))

    def place(row: Row) -> tuple[int, int]:
        title = _title(row)
        return titles[title], passages[title, _context(row)]

    return place


def _title(row: Row) -> str:
    return str(row.get("title") or "")


def _context(row: Row) -> str:
    return str(row["context"])


def _paragraph(context: str, rows: Iterable[Row]) -> dict[str, Any]:
    return {
        "context": context,
        "qas": [
            {
                "id": row["id"],
                "question": row["question"],
                "answers": [
                    {"text": text, "answer_start": start}
                    for text, start in zip(
                        row["answers"]["text"], row["answers"]["answer_start"], strict=True
                    )
                ],
            }
            for row in rows
        ],
    }


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), ensure_ascii=False)
