"""The export formats: each turns rows into the files of another tool, as file names and contents."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pairsmith.core.errors import SettingsError
from pairsmith.data.kinds import QUESTIONS, WITH_NEGATIVES, Row, RowKind
from pairsmith.data.readers import text_id
from pairsmith.tools.export.annotation import argilla_files, label_studio_files
from pairsmith.tools.export.files import Files, MakeObjects, Splits, json_line, json_lines
from pairsmith.tools.export.negatives import (
    flag_embedding,
    refuse_other_query,
    scored_tuples,
    tevatron,
    triplets,
    tuples,
)
from pairsmith.tools.export.table import jsonl_files
from pairsmith.tools.settings import FormName

RowForm = Callable[[Splits, RowKind], Files]

_BELONG = {
    "questions with answers": ("question", "context"),
    "pairs of inputs and outputs": ("input", "output"),
    "documents with summaries": ("summary", "document"),
}
"""By kind of rows whose two texts belong together: the column of the query, and of the document."""
_SCORED_OR_LABELLED = ("scored pairs", "labelled pairs")


def jsonl(splits: Splits, kind: RowKind) -> Files:  # noqa: ARG001 - rows of all kinds are written alike
    """JSON Lines: one row per line, with all of its columns."""
    return jsonl_files(splits)


def squad(splits: Splits, kind: RowKind) -> Files:
    """SQuAD 1.1: articles by title, each with its passages and their questions."""
    if kind is not QUESTIONS:
        raise SettingsError(f"--form squad is for {QUESTIONS.name}; these rows are {kind.name}")
    for split, rows in splits.items():
        articles: dict[str, dict[str, list[Row]]] = {}  # rows by title and passage, as they first appear
        for row in rows:
            articles.setdefault(_title(row), {}).setdefault(str(row["context"]), []).append(row)
        data = [
            {"title": title, "paragraphs": [_paragraph(*passage) for passage in passages.items()]}
            for title, passages in articles.items()
        ]
        yield f"{split}.json", [json.dumps({"version": "1.1", "data": data}, ensure_ascii=False)]


def beir(splits: Splits, kind: RowKind) -> Files:
    """BEIR: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Texts with the same id become one document, and so do equal texts of rows without such ids. Only the
    positives of queries with negatives are relevant.
    """
    columns = None if kind is WITH_NEGATIVES else _belonging(kind, "beir")
    queries: dict[str, str] = {}
    documents: dict[str, tuple[str, str]] = {}  # title and text
    relevant: dict[str, dict[tuple[str, str], None]] = {split: {} for split in splits}
    for split, rows in splits.items():
        for row in rows:
            if columns:
                query, document = (text_id(str(row[column])) for column in columns)
                queries[query] = str(row[columns[0]])
                documents[document] = _title(row), row[columns[1]]
            else:
                query, document = row["query_id"], row["positive_id"]
                refuse_other_query(row, queries.setdefault(query, row["query"]))
                names, texts = [document, *row["negative_ids"]], [row["positive"], *row["negatives"]]
                for name, text in zip(names, texts, strict=True):
                    documents.setdefault(name, ("", text))
            relevant[split][query, document] = None
    corpus = ({"_id": name, "title": title, "text": text} for name, (title, text) in documents.items())
    yield "corpus.jsonl", map(json_line, corpus)
    yield "queries.jsonl", (json_line({"_id": name, "text": text}) for name, text in queries.items())
    for split, pairs in relevant.items():
        lines = (f"{query}\t{document}\t1" for query, document in pairs)
        yield f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *lines]


def sentence_transformers(splits: Splits, kind: RowKind) -> Files:
    """sentence-transformers: columns in the order that its losses expect.

    Pairs have two sentences and a score or label; other rows have an anchor and a positive, and those with
    negatives also the columns ``negative_1``, ``negative_2`` …. The losses take no names of labels: if all
    labels are numbers they are written as such, else as their places in ``label_names``, and ``labels.json``
    holds the names in this order.
    """
    if kind is WITH_NEGATIVES:
        yield from json_lines(splits, tuples)
        return
    if kind.name in _SCORED_OR_LABELLED:
        names = {name: name for name in (*kind.texts, kind.claim)}
    else:
        query_column, document_column = _belonging(kind, "sentence-transformers", _SCORED_OR_LABELLED)
        names = {query_column: "anchor", document_column: "positive"}
    labels = label_names(splits) if kind.claim == "label" else []
    numbers: dict[str, float] = {name: number for number, name in enumerate(labels)}
    if labels and (values := label_values(labels)):
        numbers, labels = values, []

    def objects(rows: Sequence[Row]) -> Iterator[Row]:
        for row in rows:
            columns = {name: row[column] for column, name in names.items()}
            yield {**columns, "label": numbers[row["label"]]} if numbers else columns

    yield from json_lines(splits, objects)
    if labels:
        yield "labels.json", [json.dumps(labels, ensure_ascii=False)]


def label_names(splits: Splits) -> list[str]:
    """The labels of all rows, sorted by name."""
    return sorted({row["label"] for rows in splits.values() for row in rows})


def label_values(labels: Sequence[str]) -> dict[str, float]:
    """The number that each label is, if all of them are finite numbers; else empty."""
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return {}
    if not all(map(math.isfinite, values.values())):
        return {}
    return {label: int(value) if value.is_integer() else value for label, value in values.items()}


def _of_negatives(form: FormName, objects: MakeObjects) -> RowForm:
    """The format ``form`` of queries with negatives, of which ``objects`` makes lines; others are refused."""

    def files(splits: Splits, kind: RowKind) -> Files:
        if kind is not WITH_NEGATIVES:
            raise SettingsError(f"--form {form} is for {WITH_NEGATIVES.name}; these rows are {kind.name}")
        return json_lines(splits, objects)

    return files


FORMS: Mapping[FormName, RowForm] = {
    "jsonl": jsonl,
    "squad": squad,
    "beir": beir,
    "sentence-transformers": sentence_transformers,
    "triplets": _of_negatives("triplets", triplets),
    "scored-tuples": _of_negatives("scored-tuples", scored_tuples),
    "tevatron": _of_negatives("tevatron", tevatron),
    "flag-embedding": _of_negatives("flag-embedding", flag_embedding),
    "label-studio": label_studio_files,
    "argilla": argilla_files,
}


def _belonging(kind: RowKind, form: str, other_kinds: Sequence[str] = ()) -> tuple[str, str]:
    """The columns of the query and of the document.

    ``other_kinds`` are the names of further kinds of rows that the format takes, for the message.
    """
    if kind.name not in _BELONG:
        names = ", ".join([*other_kinds, *_BELONG, WITH_NEGATIVES.name])
        raise SettingsError(f"--form {form} is for {names}; these rows are {kind.name}")
    return _BELONG[kind.name]


def _title(row: Row) -> str:
    return str(row.get("title") or "")


def _paragraph(context: str, rows: Iterable[Row]) -> dict[str, Any]:
    questions = []
    for row in rows:
        answers = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        questions.append(
            {
                "id": row["id"],
                "question": row["question"],
                "answers": [{"text": text, "answer_start": start} for text, start in answers],
            }
        )
    return {"context": context, "qas": questions}
