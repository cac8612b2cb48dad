"""The kinds of rows that trainings read. A source's kind is recognised by the columns of its first row."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, joined_names
from pairsmith.core.paths import place
from pairsmith.data.documents import DOCUMENT, read_documents
from pairsmith.data.filters import NO_ANSWER
from pairsmith.data.labelled_rows import row_value
from pairsmith.data.readers import filled_text, id_column, own_id, parse_score, text_id
from pairsmith.data.schemas import LABELLED_PAIR, LABELLED_TEXT, NEGATIVES, SCORED_PAIR, text_schema
from pairsmith.data.sources import Source, open_source
from pairsmith.data.squad import (
    QUESTION,
    official_squad,
    one_question_per_row,
    open_questions,
    read_questions,
)

Row = Mapping[str, Any]
INPUT_AND_OUTPUT = text_schema("id", "input", "output")


@dataclass(frozen=True, slots=True)
class RowKind:
    """A kind of rows."""

    name: str  # its name in messages
    schema: pa.Schema  # the schema of the rows, ``id`` first
    texts: tuple[str, ...]  # the columns with the texts; rows that are equal in them are duplicates
    claim: str  # the column with the annotation of the texts: a label, a score or an answer; empty for none
    # Yields the rows of a source, including questions without an answer (see ``is_complete``).
    read: Callable[[str | Source], Iterator[Row]]


def row_kind(source: str) -> RowKind:
    """The kind of a source's rows."""
    return QUESTIONS if official_squad(place(source)) else kind_with(_columns(source), source)


def has_kind(source: str) -> bool:
    """Whether a source's rows are of one of the kinds."""
    return official_squad(place(source)) is not None or _with_columns(_columns(source)) is not None


def _columns(source: str) -> Collection[str]:
    """The names of the first row's columns."""
    for _, row in one_question_per_row(open_source(source).rows):
        return row.keys()
    raise InputError(f"{source} has no rows")


def _with_columns(columns: Collection[str]) -> RowKind | None:
    return next((kind for needed, kind in _KINDS if needed <= set(columns)), None)


def kind_with(columns: Collection[str], source: str) -> RowKind:
    """The kind of rows that have these columns."""
    kind = _with_columns(columns)
    if kind is None:
        own_names = {name.strip().casefold(): name for name in columns}
        for needed, _ in _KINDS:
            if needed <= own_names.keys():
                renamed = {own_names[name]: name for name in sorted(needed) if own_names[name] != name}
                names = ", ".join(f"{name!r} to {new!r}" for name, new in renamed.items())
                column = "column" if len(renamed) == 1 else "columns"
                raise InputError(
                    f"{source}: rename the {column} {names}; names of columns are compared exactly"
                )
        sets = "; ".join(", ".join(sorted(needed)) for needed, _ in _KINDS)
        raise InputError(
            f"{source} has the columns {joined_names(columns)}; rename them to one of these sets: {sets}"
        )
    return kind


def read_with_other_columns(source: str, kind: RowKind) -> Iterator[Row]:
    """The rows of a source: the columns of the kind, followed by the source's other columns, unchanged."""
    opened = open_questions(source)
    last: Row = {}

    def rows() -> Iterator[tuple[str, Row]]:
        nonlocal last
        for where, row in opened.rows():
            last = row
            yield where, row

    # ``kind.read`` reads one row at a time, so ``last`` is the row from which it made the row that it yields.
    for row in kind.read(Source(opened.name, rows)):
        names = {*row, id_column(last)}
        yield {**row, **{name: value for name, value in last.items() if name not in names}}


def is_complete(row: Row, kind: RowKind) -> bool:
    """Whether a row can be trained on: a question needs an answer in its context, a document a summary."""
    if kind.schema is DOCUMENT:
        return bool(row["summary"].strip())
    return kind is not QUESTIONS or bool((row["answers"] or {}).get("text"))


def what_is_missing(kind: RowKind) -> tuple[str, str]:
    """What incomplete rows of a kind lack: a short name, and an explanation."""
    if kind.schema is DOCUMENT:
        return "no summary", "it is blank"
    return NO_ANSWER, "none occurs in its context"


def scored_as(kind: RowKind, score: float | None) -> RowKind:
    """A kind that reads pairs of inputs and outputs as scored pairs, each with the score ``score``.

    Other kinds are returned unchanged, and so is any kind if ``score`` is None.
    """
    return kind if score is None else _of_pairs(kind, _SCORED, {"score": score})


def with_summaries(kind: RowKind) -> RowKind:
    """For the kind of mined pairs, one that reads their inputs and outputs as documents with summaries.

    Other kinds are returned unchanged.
    """
    return _of_pairs(kind, SUMMARIES, {})


def _of_pairs(kind: RowKind, target: RowKind, others: Row) -> RowKind:
    """``target``, read from pairs of inputs and outputs with the columns ``others`` added.

    A ``kind`` that is not the kind of pairs of inputs and outputs is returned unchanged.
    """
    if kind is not _PAIRS:
        return kind
    _, first, second, *_ = target.schema.names

    def read(source: str | Source) -> Iterator[Row]:
        for row in _PAIRS.read(source):
            yield {"id": row["id"], first: row["input"], second: row["output"], **others}

    return replace(target, read=read)


def _questions(source: str | Source) -> Iterator[Row]:
    return (question.columns() for question in read_questions(source, unanswered=True))


def _documents(source: str | Source) -> Iterator[Row]:
    for document in read_documents(source, column="document"):
        yield {"id": document.id, "document": document.text, "summary": document.summary}


def _plain(schema: pa.Schema) -> Callable[[str | Source], Iterator[Row]]:
    """A reader of rows whose columns are texts and labels, with a score as a number."""

    def read(source: str | Source) -> Iterator[Row]:
        for number, (where, row) in enumerate(open_source(source).rows(), start=1):
            values = {column: row_value(row, column, where) for column in schema.names[1:]}
            yield {"id": own_id(row, where) or str(number), **values}

    return read


def _negatives(source: str | Source) -> Iterator[Row]:
    """Rows as the step ``negatives`` writes them; scores and ids may be missing."""
    for number, (where, row) in enumerate(open_source(source).rows(), start=1):
        query, positive = (filled_text(row, name, where) for name in ("query", "positive"))
        texts = row.get("negatives")
        if not isinstance(texts, list):
            raise InputError(f"{where}: negatives has to be a list of texts")
        negatives = [filled_text({"negatives": text}, "negatives", where) for text in texts]
        scores, ids = (_as_many(row, name, len(negatives), where) for name in ("scores", "negative_ids"))
        yield {
            "id": own_id(row, where) or str(number),
            "query": query,
            "positive": positive,
            "negatives": negatives,
            "score": None if row.get("score") is None else parse_score(row["score"], where),
            "scores": None if scores is None else [parse_score(score, where) for score in scores],
            "query_id": own_id(row, where, "query_id") or text_id(query),
            "positive_id": own_id(row, where, "positive_id") or text_id(positive),
            "negative_ids": [
                own_id({"negative_ids": name}, where, "negative_ids") or text_id(text)
                for name, text in zip(ids or [None] * len(negatives), negatives, strict=True)
            ],
        }


def _as_many(row: Row, name: str, count: int, where: str) -> list[Any] | None:
    """The list in a column, with one item for each of ``count`` negatives; None if the row has no value."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != count:
        raise InputError(f"{where}: {name} has to be a list with an item for each of the {count} negatives")
    return value


QUESTIONS = RowKind("questions with answers", QUESTION, ("context", "question"), "answers", _questions)
SUMMARIES = RowKind("documents with summaries", DOCUMENT, ("document", "summary"), "", _documents)
_SCORED = RowKind("scored pairs", SCORED_PAIR, ("sentence1", "sentence2"), "score", _plain(SCORED_PAIR))
_LABELLED = RowKind(
    "labelled pairs", LABELLED_PAIR, ("sentence1", "sentence2"), "label", _plain(LABELLED_PAIR)
)
_TEXTS = RowKind("labelled texts", LABELLED_TEXT, ("text",), "label", _plain(LABELLED_TEXT))
_PAIRS = RowKind(
    "pairs of inputs and outputs", INPUT_AND_OUTPUT, ("input", "output"), "", _plain(INPUT_AND_OUTPUT)
)
WITH_NEGATIVES = RowKind("queries with negatives", NEGATIVES, ("query", "positive"), "", _negatives)

_KINDS: Sequence[tuple[set[str], RowKind]] = (
    ({"context", "question", "answers"}, QUESTIONS),
    ({"context", "input", "output", "answers"}, QUESTIONS),
    ({"document", "summary"}, SUMMARIES),
    ({"sentence1", "sentence2", "score"}, _SCORED),
    ({"sentence1", "sentence2", "label"}, _LABELLED),
    ({"text", "label"}, _TEXTS),
    ({"input", "output"}, _PAIRS),
    ({"query", "positive", "negatives"}, WITH_NEGATIVES),
)
