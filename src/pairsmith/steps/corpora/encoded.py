"""The distinct texts of an encoded corpus; their texts and vectors are in memory-mapped files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, counted
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.schemas import REJECT, Reject, rows_at, text_schema, to_table
from pairsmith.data.text_keys import text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.sorting import ROWS_AT_ONCE, differs_from_previous, first_of_each, stable_order
from pairsmith.runs.storage import mapped_table, storage_errors
from pairsmith.steps.vectors import VectorFile, new_file, some_rows

ENCODED_TEXTS: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("text", pa.string()), ("group", pa.string()),
        ("context", pa.string()), ("answer", pa.string()), ("answer_start", pa.int32()),
    ]
)  # fmt: skip
"""A text and the group within which it is paired; for a candidate answer, also the answer and its passage."""
ALIGNED = 64
"""The vectors begin at a multiple of this number of bytes in their file."""


def encoded_schema(vector_dtype: str) -> pa.Schema:
    """The schema of an encoded corpus: ``ENCODED_TEXTS`` and the column ``vector``, of unit length."""
    return ENCODED_TEXTS.append(pa.field("vector", pa.list_(pa.from_numpy_dtype(vector_dtype))))


@dataclass(frozen=True, slots=True)
class Encoded:
    """The distinct texts of a corpus, numbered from 0.

    Two rows have the same text if both their texts and their groups are equal.

    Attributes:
        folder: the folder that ``encode_corpus`` wrote.
        vectors: the vectors of the distinct texts, in a file. The file begins with the numbers of the texts
            of each group, int64, ascending, group after group; the vectors follow at a multiple of
            ``ALIGNED`` bytes.
        distinct: ``(rows,)`` bool, whether a row of the folder is the first one with its text and group.
        sizes: group -> its number of distinct texts, in the order of the file.
    """

    folder: DatasetFolder
    vectors: VectorFile
    distinct: NDArray[np.bool_]
    sizes: Mapping[str, int]

    def __len__(self) -> int:
        """The number of distinct texts."""
        return sum(self.sizes.values())

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """Collect the distinct texts of a folder, and write their groups and vectors to ``file``.

        The function takes nine bytes of memory for each row of the folder; its result holds one byte for each
        row.
        """
        total = sum(folder.shard_rows())
        groups = _Groups(total)
        first = first_of_each(map(groups.keys, folder.shards("train", ["id", "group"])), total, file.parent)
        distinct = np.empty(total, bool)
        for part in _slices(total):
            distinct[part] = first[part] == np.arange(part.start, part.stop)
        with storage_errors(file), file.open("wb") as out:
            sizes = groups.write(distinct, out)
        del groups, first
        count = sum(sizes.values())
        vectors = VectorFile.write(folder, file, distinct, -(-8 * count // ALIGNED) * ALIGNED)
        if count < 2:
            left_out = Counter(folder.manifest.counts.rejects_by_reason) + Counter(copies=total - count)
            reasons = "; ".join(f"{number:,} {reason}" for reason, number in left_out.most_common(2))
            why = f" (left out: {reasons})" if reasons else ""
            raise InputError(
                f"{folder.path}: {count} of {counted(count + left_out.total(), 'texts')} can be paired{why}; "
                "a search compares texts with their neighbours, so each corpus needs two or more different "
                "texts"
            )
        return cls(folder, vectors, distinct, sizes)

    def local(self) -> "Encoded":
        """The same texts with a file on this machine; if it does not exist here, it is written again."""
        return self if self.vectors.is_local() else Encoded.of(self.folder, new_file())

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """Group -> the numbers of its texts, int64, ascending, mapped from the file."""
        numbers = np.memmap(self.vectors.file, np.int64, "c", shape=(len(self),))
        edges = np.cumsum([0, *self.sizes.values()]).tolist()
        return {
            name: np.asarray(numbers[start:stop])
            for name, (start, stop) in zip(self.sizes, pairwise(edges), strict=True)
        }

    def firsts(self) -> NDArray[np.uint32]:
        """For each of the n texts the number of its first occurrence in any group, ``(n,)`` uint32."""
        keys = (text_keys(table["id"])[:, None] for _, table in some_rows(self.folder, self.distinct, ["id"]))
        return first_of_each(keys, len(self), self.vectors.file.parent)

    @property
    def copy_count(self) -> int:
        """The number of rows of the folder that repeat an earlier text of the same group."""
        return len(self.distinct) - len(self)

    def copies(self, corpus: str, first: int, stop: int) -> pa.Table:
        """Rejects for rows that repeat an earlier text: the rows from ``first`` to ``stop`` of all such rows.

        ``corpus`` is the name of the corpus in the reason.
        """
        is_copy, earlier = ~self.distinct, 0
        for part in _slices(len(is_copy)):
            places = part.start + np.flatnonzero(is_copy[part])
            ranks = np.arange(earlier, earlier + len(places))
            is_copy[places[(ranks < first) | (ranks >= stop)]] = False
            earlier += len(places)
        reason = f"repeats an earlier text of the {corpus}"
        tables = [to_table([], REJECT)]
        for _, table in some_rows(self.folder, is_copy, ENCODED_TEXTS.names):
            rows = [Reject.of(row["id"], DUPLICATE, reason, row) for row in table.to_pylist()]
            tables.append(to_table(rows, REJECT))
        return pa.concat_tables(tables)

    def texts(self) -> Iterator[pa.Table]:
        """Yield the distinct texts as ``ENCODED_TEXTS``, sorted by their numbers, a shard at a time."""
        return (table for _, table in some_rows(self.folder, self.distinct, ENCODED_TEXTS.names))


class _Groups:
    """The number of the group of each row of a folder; groups are numbered in the order of appearance."""

    def __init__(self, total: int) -> None:
        self._codes: dict[str, int] = {}
        self._of_row = np.empty(total, np.uint32)
        self._rows = 0

    def keys(self, table: pa.Table) -> NDArray[np.uint64]:
        """Record the groups of a shard; returns the keys of its texts and of its groups, ``(n, 2)``."""
        coded = table["group"].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.uint32)
        self._of_row[self._rows : self._rows + len(coded)] = codes[coded.indices.to_numpy()]
        self._rows += len(coded)
        return np.stack([text_keys(table["id"]), text_keys(table["group"])], axis=1)

    def write(self, distinct: NDArray[np.bool_], out: IO[bytes]) -> dict[str, int]:
        """Write the numbers of the distinct texts, int64, group after group; returns the groups' sizes."""
        sizes = np.zeros(len(self._codes), np.int64)
        for part in _slices(len(distinct)):
            sizes += np.bincount(self._of_row[part][distinct[part]], minlength=len(sizes))
        places = np.cumsum(sizes) - sizes
        number = 0
        for part in _slices(len(distinct)):
            of_text = self._of_row[part][distinct[part]]
            order = stable_order([of_text])
            starts = np.flatnonzero(differs_from_previous([of_text[order]]))
            for rows in np.split(order, starts[1:]) if len(order) else []:
                group = of_text[rows[0]]
                out.seek(8 * int(places[group]))
                out.write((rows + number).tobytes())
                places[group] += len(rows)
            number += len(of_text)
        return dict(zip(self._codes, sizes.tolist(), strict=True))


def _slices(total: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS_AT_ONCE, total)) for start in range(0, total, ROWS_AT_ONCE))


class CorpusTexts:
    """The distinct texts of a corpus in a memory-mapped file, read by their numbers."""

    def __init__(self, texts: Iterable[pa.Table], file: Path, kept: Sequence[str] = ()) -> None:
        """Write ``texts``, as ``Encoded.texts`` yields them, to the file.

        ``kept`` are the names of further columns, which contain texts.
        """
        self._table = mapped_table(texts, pa.schema([*ENCODED_TEXTS, *text_schema(*kept)]), file)

    def rows(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The rows of the texts with these numbers, in this order; None selects all columns."""
        table = self._table if columns is None else self._table.select(list(columns))
        table = rows_at(table, np.asarray(numbers, np.int64))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows
