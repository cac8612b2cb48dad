"""The rows that flow between steps, and the Arrow schemas they are stored in.

Column names are those the ecosystem uses, so that a data set opens in ``datasets`` and trains in
``sentence-transformers`` without renaming.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def text_schema(*names: str) -> pa.Schema:
    """The schema of columns with these names that hold texts."""
    return pa.schema([(name, pa.string()) for name in names])


SCORED_PAIR: pa.Schema = pa.schema([*text_schema("id", "sentence1", "sentence2"), ("score", pa.float64())])
LABELLED_PAIR = text_schema("id", "sentence1", "sentence2", "label")
LABELLED_TEXT = text_schema("id", "text", "label")
CLASSIFIED_TEXT: pa.Schema = pa.schema([*LABELLED_TEXT, ("confidence", pa.float64())])
ENTITIES = pa.list_(pa.struct([*text_schema("text", "type"), ("start", pa.int64()), ("end", pa.int64())]))
TAGGED_TEXT: pa.Schema = pa.schema(
    [
        *text_schema("id", "text"), ("entities", ENTITIES), ("tokens", pa.list_(pa.string())),
        ("ner_tags", pa.list_(pa.string())),
    ]
)  # fmt: skip
"""A text with its named entities, and as words with their BIO tags."""
SUMMARIZED_TEXT: pa.Schema = pa.schema([*text_schema("id", "text", "summary"), ("truncated", pa.bool_())])
MINED_PAIR: pa.Schema = pa.schema(
    [
        *text_schema("id", "input", "output"), ("margin", pa.float64()), ("score", pa.float64()),
        *text_schema("input_id", "output_id"),
    ]
)  # fmt: skip
ANSWERS = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
MINED_ANSWER: pa.Schema = pa.schema([*MINED_PAIR, ("context", pa.string()), ("answers", ANSWERS)])
NEGATIVES: pa.Schema = pa.schema(
    [
        *text_schema("id", "query", "positive"), ("negatives", pa.list_(pa.string())),
        ("score", pa.float64()), ("scores", pa.list_(pa.float64())),
        *text_schema("query_id", "positive_id"), ("negative_ids", pa.list_(pa.string())),
    ]
)  # fmt: skip
"""A query, a text that answers it and its score, and texts that do not answer it, with their scores."""
CHUNK: pa.Schema = pa.schema([*text_schema("id", "title", "text", "document"), ("place", pa.int64())])
REJECT = text_schema("id", "filter", "reason", "row")
_COLUMNS_WITH_MEASURED_SCORES = {"margin", "negatives"}
"""Columns of mined pairs, and of queries with negatives: the scores in such rows are measured, not labels."""


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two texts and a score of their similarity: the number of the label, e.g. 0, 0.5 or 1."""

    id: str
    sentence1: str
    sentence2: str
    score: float


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two texts and the name of their relation."""

    id: str
    sentence1: str
    sentence2: str
    label: str


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text and the name of its class."""

    id: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class MinedPair:
    """A mined pair: an input and an output, their margin (M3) and their score.

    ``input_id`` and ``output_id`` identify the two texts: a text has the same id in all pairs.
    """

    id: str
    input: str
    output: str
    margin: float
    score: float
    input_id: str = field(default="", kw_only=True)
    output_id: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class MinedAnswer(MinedPair):
    """A mined pair of a question and an answer, with the passage and the answer's span in the passage."""

    context: str
    answers: Mapping[str, Sequence[Any]]


LONGEST_REJECTED = 100_000
"""Longest text in characters that a reject stores completely; a row of 40 MB is not stored a second time."""
_KEPT = 10_000  # the number of characters that are stored of a longer text
_CUT_MARK = re.compile(r" \[… ([\d,]+) more characters\]\Z")


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that was made and not kept: the filter that left it out, the reason, and the row as JSON."""

    id: str
    filter: str
    reason: str
    row: str

    @classmethod
    def of(cls, id: str, filter: str, reason: str, row: Mapping[str, Any]) -> Self:  # noqa: A002 - the column is called id
        """A reject of a row that is given by its columns, which are stored as JSON with sorted keys.

        A text of more than ``LONGEST_REJECTED`` characters, also in a list, is cut to its beginning.
        """
        # ``default=str``: a value that JSON does not have, such as a date, is written as text.
        data = json.dumps(_cut_texts(dict(row)), ensure_ascii=False, sort_keys=True, default=str)
        return cls(id, filter, reason, data)


def _cut_texts(value: Any) -> Any:
    """The value with long texts cut to their beginnings; each says how many characters were left out."""
    if isinstance(value, Mapping):
        return {name: _cut_texts(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_cut_texts(part) for part in value]
    if not isinstance(value, str) or len(value) <= LONGEST_REJECTED:
        return value
    return f"{value[:_KEPT]} [… {len(value) - _KEPT:,} more characters]"


def length_before_cut(text: str) -> int:
    """The number of characters that a text in a reject had before it was cut."""
    cut = _CUT_MARK.search(text)
    return cut.start() + int(cut[1].replace(",", "")) if cut else len(text)


@dataclass(frozen=True, slots=True)
class GradedPair:
    """Two texts and their human similarity score, on the scale of the source (0-5, 1-5 or 0-1)."""

    sentence1: str
    sentence2: str
    score: float


TypedRow = ScoredPair | LabelledPair | LabelledText | MinedPair | MinedAnswer | Reject
R = TypeVar("R", ScoredPair, LabelledPair, LabelledText, MinedPair, MinedAnswer, Reject)


def label_column(schema: pa.Schema) -> str | None:
    """The column with the rows' labels, which may be scores; None if there is none."""
    columns = [column.name for column in schema if not pa.types.is_nested(column.type)]
    if "label" not in columns and _COLUMNS_WITH_MEASURED_SCORES & set(schema.names):
        return None
    return next((name for name in ("label", "score") if name in columns), None)


def to_table(rows: Sequence[TypedRow], schema: pa.Schema) -> pa.Table:
    """``rows`` as an Arrow table with exactly ``schema``; without rows, an empty table."""
    names = list(schema.names)
    for row in rows:
        if (row_columns := [field.name for field in fields(row)]) != names:
            raise TypeError(f"a {type(row).__name__} has the columns {row_columns}, the schema has {names}")
    columns = [pa.array([getattr(row, field.name) for row in rows], type=field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def from_table(table: pa.Table, row_type: type[R]) -> list[R]:
    """The rows of ``table`` as ``row_type``; columns that ``row_type`` lacks are left out."""
    names = [field.name for field in fields(row_type)]
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise TypeError(f"a {row_type.__name__} needs {missing}, the table has {table.column_names}")
    return [row_type(**row) for row in table.select(names).to_pylist()]


def rows_at(table: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    """The rows with the indices ``numbers``, ``(n,)`` from 0, in the order of ``numbers``.

    Rows are taken from one batch at a time, as all texts of a table may overflow the offsets of one array.
    """
    batches = table.to_batches()
    edges = np.cumsum([0, *map(len, batches)])  # the index of each batch's first row, and the number of rows
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], edges)  # batch i has the sorted indices bounds[i]:bounds[i + 1]
    parts = [
        batches[i].take(pa.array(numbers[order[bounds[i] : bounds[i + 1]]] - edges[i]))
        for i in np.flatnonzero(np.diff(bounds)).tolist()
    ]
    return pa.Table.from_batches(parts, table.schema).take(np.argsort(order))


def as_columns(row: TypedRow) -> dict[str, Any]:
    """``row`` as a mapping from column to value, e.g. for ``Reject.of``."""
    return asdict(row)
