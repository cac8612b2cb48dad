"""Rows of queries, with the texts that they were written for, as ``filter-queries`` reads them."""

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
from pairsmith.data.readers import column_text, text_id
from pairsmith.data.schemas import rows_at
from pairsmith.data.sources import Columns, open_source
from pairsmith.data.splits import split_of
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import mapped_table

_ADDED = (pa.field("rank", pa.int64()), pa.field("similarity", pa.float32()))
_JUDGED = pa.field("judge_score", pa.float32())  # with a judge
"""Columns that the filter adds; those of the same names, as of an earlier filter, are left out."""
_AT_ONCE = 10_000
"""Rows, or texts whose keys are computed, that are held in memory at once."""


def keys_of(texts: Iterable[str]) -> TextKeys:
    """The key of each text, ``(n,)``."""
    parts, left = [np.zeros(0, np.uint64)], iter(texts)
    while some := list(map(text_id, islice(left, _AT_ONCE))):
        parts.append(text_keys(pa.chunked_array([some], pa.string())))
    return np.concatenate(parts)


def distinct_documents(texts: Callable[[], Iterable[str]], keys: TextKeys, where: str) -> Iterator[Document]:
    """Each text that is not blank once, in order; ``keys`` are theirs, ``(n,)``."""
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    for text, new in zip(texts(), first, strict=True):
        if new and text:
            yield Document(text, where)


@dataclass(frozen=True)
class WrittenQueries:
    """Rows of queries with the texts that they were written for.

    Attributes:
        table: the rows, without what an earlier filter added.
        query: the column of the queries; ``positive``: that of the texts that they were written for.
        source: the name for messages.
    """

    table: pa.Table
    query: str
    positive: str
    source: str

    @classmethod
    def of(cls, table: pa.Table, source: str) -> Self:
        """The rows of a table; its columns are those that ``pick_pair`` finds."""
        return cls(table, *pick_pair(dict.fromkeys(table.column_names), source), source)

    def __len__(self) -> int:
        """How many rows there are."""
        count: int = self.table.num_rows
        return count

    def texts(self) -> Iterator[str]:
        """The queries, stripped of white space; blank ones are empty."""
        return self._column(self.query)

    def texts_at(self, rows: NDArray[np.int64]) -> list[str]:
        """The queries of some rows, likewise."""
        queries = rows_at(self.table.select([self.query]), rows).to_pylist()
        return [column_text(values, self.query, self.source) for values in queries]

    def positives(self) -> Iterator[str]:
        """The texts that they were written for, likewise."""
        return self._column(self.positive)

    def chunks(self) -> Iterator[str] | None:
        """The ids of these texts, or None where the rows name none."""
        if "chunk" not in self.table.column_names:
            return None
        return ("" if chunk is None else str(chunk) for chunk in self._values("chunk"))

    @cached_property
    def keys(self) -> TextKeys:
        """The key of each query, ``(n,)``."""
        return keys_of(self.texts())

    @cached_property
    def names(self) -> TextKeys:
        """A number for each query that is the same for copies: case, spaces and punctuation do not count."""
        return keys_of(map(folded, self.texts()))

    def distinct(self) -> Iterator[Document]:
        """Each query once."""
        return distinct_documents(self.texts, self.keys, self.source)

    def rows(self, part: slice) -> pa.Table:
        """Some of the rows."""
        return self.table.slice(part.start, part.stop - part.start)

    def name_of(self, row: int) -> str:
        """The id of a row, or of its texts if it has none."""
        if "id" in self.table.column_names and (given := self.table["id"][row].as_py()) is not None:
            return str(given)
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
    """Where rows of queries lie; ``tables`` reads them from the beginning, some at a time."""

    name: str
    schema: pa.Schema
    rows: int
    tables: Callable[[], Iterator[pa.Table]]

    @classmethod
    def find(cls, name: str) -> Self:
        """One split of a source, whose rows other than those of a dataset folder are read once for this."""
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
        """The columns of the rows that are kept."""
        return pa.schema([*self.schema, *_ADDED, *([_JUDGED] if judged else [])])

    def mapped(self, file: Path) -> WrittenQueries:
        """The rows, written to ``file`` and mapped from it; at least one has a query."""
        written = WrittenQueries.of(mapped_table(self.tables(), self.schema, file), self.name)
        if not any(written.texts()):
            raise InputError(f"{self.name}: all of its queries are blank")
        return written


def _some_rows(source: str) -> Iterator[Sequence[Columns]]:
    rows = (row for _, row in open_source(source).rows())
    while some := list(islice(rows, _AT_ONCE)):
        yield some


def _types(source: str) -> tuple[int, Mapping[str, pa.DataType]]:
    """The number of rows, and the type of each column: that of all its values, or else text."""
    count, types = 0, dict[str, pa.DataType]()
    for rows in _some_rows(source):
        count += len(rows)
        for name in dict.fromkeys(name for row in rows for name in row):
            new = _type([row.get(name) for row in rows])
            types[name] = _wider(types.get(name, pa.null()), new)
    return count, types


def _type(values: Sequence[object]) -> pa.DataType:
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        kind = pa.array(values).type
        if not pa.types.is_nested(kind):
            return kind
    return pa.string()


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of values of both types: that of numbers for whole and other ones, and else text."""
    if pa.null() in (one, other):
        return other if one == pa.null() else one
    numbers = {pa.int64(), pa.float64()}
    return one if one == other else pa.float64() if {one, other} == numbers else pa.string()


def _typed(source: str, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    for rows in _some_rows(source):
        columns = {
            name: [_as_text(row.get(name)) if kind == pa.string() else row.get(name) for row in rows]
            for name, kind in types.items()
        }
        yield pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def _as_text(value: object) -> str | None:
    """A value as text; lists, objects and what UTF-8 cannot hold as JSON."""
    if isinstance(value, str | int | float | None):
        with suppress(UnicodeError):
            return None if value is None else str(value).encode().decode()
    return json.dumps(value, default=str)
