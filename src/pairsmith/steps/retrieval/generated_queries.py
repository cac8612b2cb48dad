"""The queries that ``filter-queries`` reads, with the texts that they were written for."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, known_names_hint
from pairsmith.core.paths import MANIFEST, is_folder, place, size_of
from pairsmith.data.documents import Document
from pairsmith.data.query_columns import pick_pair
from pairsmith.data.readers import column_text, find_column, text_id
from pairsmith.data.schemas import rows_at
from pairsmith.data.sources import Columns, open_source
from pairsmith.data.splits import split_of
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import mapped_table

_ADDED = (pa.field("rank", pa.int64()), pa.field("similarity", pa.float32()))
_JUDGED = pa.field("judge_score", pa.float32())  # with a judge
"""Columns that the filter adds; the same columns of an earlier filter are dropped from its input."""
_AT_ONCE = 10_000
"""Number of rows, and of texts whose keys are computed, that are held in memory at once."""


def keys_of(texts: Iterable[str]) -> TextKeys:
    """The key of each of n texts, ``(n,)`` uint64."""
    parts, remaining = [np.zeros(0, np.uint64)], iter(texts)
    while ids := list(map(text_id, islice(remaining, _AT_ONCE))):
        parts.append(text_keys(pa.chunked_array([ids], pa.string())))
    return np.concatenate(parts)


def are_first(keys: TextKeys) -> NDArray[np.bool_]:
    """Whether each of n keys, ``(n,)``, is the first that has its value, ``(n,)`` bool."""
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def distinct_documents(texts: Callable[[], Iterable[str]], keys: TextKeys, where: str) -> Iterator[Document]:
    """Yield the distinct texts that are not empty, in the order of their first occurrences.

    ``keys``, ``(n,)``, are the keys of the n texts, and ``where`` is the location that documents name.
    """
    for text, is_first in zip(texts(), are_first(keys), strict=True):
        if is_first and text:
            yield Document(text, where)


@dataclass(frozen=True)
class WrittenQueries:
    """n rows of queries, with the texts that they were written for.

    Attributes:
        table: the rows, without the columns that an earlier filter added.
        query: the name of the column of the queries.
        positive: the name of the column of the texts that the queries were written for.
        source: the name of the source for messages.
    """

    table: pa.Table
    query: str
    positive: str
    source: str

    @classmethod
    def of(cls, table: pa.Table, source: str) -> Self:
        """The rows of a table, whose columns of queries and texts ``pick_pair`` recognises."""
        return cls(table, *pick_pair(dict.fromkeys(table.column_names), source), source)

    def __len__(self) -> int:
        """The number of rows."""
        count: int = self.table.num_rows
        return count

    def texts(self) -> Iterator[str]:
        """Yield the queries, stripped of white space; blank queries are empty."""
        return self._column(self.query)

    def texts_at(self, rows: NDArray[np.int64]) -> list[str]:
        """The queries of these rows, stripped of white space."""
        queries = rows_at(self.table.select([self.query]), rows).to_pylist()
        return [column_text(values, self.query, self.source) for values in queries]

    def positives(self) -> Iterator[str]:
        """Yield the texts that the queries were written for, stripped of white space."""
        return self._column(self.positive)

    def chunks(self) -> Iterator[str] | None:
        """The ids of the chunks that the queries were written for; None without a column ``chunk``."""
        if "chunk" not in self.table.column_names:
            return None
        return ("" if chunk is None else str(chunk) for chunk in self._values("chunk"))

    @cached_property
    def keys(self) -> TextKeys:
        """The key of each query, ``(n,)`` uint64."""
        return keys_of(self.texts())

    @cached_property
    def names(self) -> TextKeys:
        """A key of each query, ``(n,)`` uint64, that ignores case, spaces and punctuation."""
        return keys_of(map(folded, self.texts()))

    def distinct(self) -> Iterator[Document]:
        """Yield the distinct queries."""
        return distinct_documents(self.texts, self.keys, self.source)

    def rows(self, part: slice) -> pa.Table:
        """A range of the rows."""
        return self.table.slice(part.start, part.stop - part.start)

    def name_of(self, row: int) -> str:
        """The id of a row; without a column ``id`` or, for example, ``ID``, an id made of its texts."""
        column = find_column(self.table.column_names, ["id"])
        if column and (row_id := self.table[column][row].as_py()) is not None:
            return str(row_id)
        values = self.rows(slice(row, row + 1)).to_pylist()[0]
        return text_id(
            "\n".join(column_text(values, name, self.source) for name in (self.query, self.positive))
        )

    def _values(self, name: str) -> Iterator[object]:
        for batch in self.table.select([name]).to_batches(max_chunksize=_AT_ONCE):
            yield from batch[name].to_pylist()

    def _column(self, name: str) -> Iterator[str]:
        for number, value in enumerate(self._values(name), start=1):
            yield column_text({name: value}, name, f"{self.source}, row {number}")


@dataclass(frozen=True, slots=True)
class QuerySource:
    """The source of rows of queries.

    Attributes:
        name: the name of the source.
        schema: the columns of the rows, without those that an earlier filter added.
        rows: the number of rows.
        tables: reads all rows from the beginning, some at a time.
    """

    name: str
    schema: pa.Schema
    rows: int
    tables: Callable[[], Iterator[pa.Table]]

    @classmethod
    def find(cls, name: str) -> Self:
        """Open one split of a source.

        The rows of a source that is not a dataset folder are read once, to find the types of its columns.
        """
        folder, split = split_of(name)
        path = place(folder)
        if is_folder(path) and size_of(path / MANIFEST) is not None:
            opened = DatasetFolder.open(path)
            split = split or opened.splits[0]
            if split not in opened.splits:
                raise InputError(
                    f"{name}: there is no split {split!r}; {known_names_hint(split, opened.splits)}"
                )
            count, schema = opened.split_rows[split], opened.schema()
            tables: Callable[..., Iterator[pa.Table]] = partial(opened.batches, split)
        else:
            count, types = _types(name)
            schema, tables = pa.schema(types.items()), partial(_typed, name, types)
        if not count:
            raise InputError(f"{name} holds no queries")
        added = {column.name for column in (*_ADDED, _JUDGED)}
        schema = pa.schema([column for column in schema if column.name not in added])
        pick_pair(dict.fromkeys(schema.names), name)
        return cls(name, schema, count, lambda: (table.select(schema.names) for table in tables()))

    def kept_schema(self, *, judged: bool) -> pa.Schema:
        """The schema of the rows that are kept; ``judged`` adds the column of a judge's scores."""
        return pa.schema([*self.schema, *_ADDED, *([_JUDGED] if judged else [])])

    def mapped(self, file: Path) -> WrittenQueries:
        """Write the rows to ``file``, and map them from it; an ``InputError`` if all queries are blank."""
        written = WrittenQueries.of(mapped_table(self.tables(), self.schema, file), self.name)
        if not any(written.texts()):
            raise InputError(f"{self.name}: all of its queries are blank")
        return written


def _row_batches(source: str) -> Iterator[Sequence[Columns]]:
    rows = (row for _, row in open_source(source).rows())
    while batch := list(islice(rows, _AT_ONCE)):
        yield batch


def _types(source: str) -> tuple[int, Mapping[str, pa.DataType]]:
    """The number of rows, and the type of each column: text unless all values have another type."""
    count, types = 0, dict[str, pa.DataType]()
    for rows in _row_batches(source):
        count += len(rows)
        for name in dict.fromkeys(name for row in rows for name in row):
            kind = _type([row.get(name) for row in rows])
            types[name] = _wider(types.get(name, pa.null()), kind)
    return count, types


def _type(values: Sequence[object]) -> pa.DataType:
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        kind = pa.array(values).type
        if not pa.types.is_nested(kind):
            return kind
    return pa.string()


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds values of both types: float64 for int64 and float64, and text for others."""
    if pa.null() in (one, other):
        return other if one == pa.null() else one
    numbers = {pa.int64(), pa.float64()}
    return one if one == other else pa.float64() if {one, other} == numbers else pa.string()


def _typed(source: str, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    for rows in _row_batches(source):
        columns = {
            name: [_as_text(row.get(name)) if kind == pa.string() else row.get(name) for row in rows]
            for name, kind in types.items()
        }
        yield pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def _as_text(value: object) -> str | None:
    """A value as text: lists, objects, and strings that are not UTF-8 as JSON."""
    if isinstance(value, str | int | float | None):
        with suppress(UnicodeError):
            return None if value is None else str(value).encode().decode()
    return json.dumps(value, default=str)
