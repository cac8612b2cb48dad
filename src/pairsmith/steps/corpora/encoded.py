"""The distinct texts of an encoded corpus, whose texts and vectors are memory-mapped from files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.schemas import REJECT, Reject, rows_at, text_schema, to_table
from pairsmith.data.text_keys import text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.sorting import ROWS_AT_ONCE, changes, first_of_each, stable_order
from pairsmith.runs.storage import mapped_table, storage_errors
from pairsmith.steps.vectors import VectorFile, new_file, some_rows

ENCODED_TEXTS: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("text", pa.string()), ("group", pa.string()),
        ("context", pa.string()), ("answer", pa.string()), ("answer_start", pa.int32()),
    ]
)  # fmt: skip
"""A text, the group within which it is paired, and for a candidate answer also the answer and its passage."""
ALIGNED = 64
"""Vectors begin at a multiple of so many bytes in their file."""


def encoded_schema(vector_dtype: str) -> pa.Schema:
    """The columns of an encoded corpus: those of ``ENCODED_TEXTS``, and the text's vector, of length 1."""
    return ENCODED_TEXTS.append(pa.field("vector", pa.list_(pa.from_numpy_dtype(vector_dtype))))


@dataclass(frozen=True, slots=True)
class Encoded:
    """The distinct texts of a corpus, numbered from 0.

    ``folder`` is the one that ``encode_corpus`` wrote; ``distinct``, ``(rows,)`` bool, tells which of its
    rows are these texts: the first with each text and group. ``file`` holds the numbers of each group's
    texts, int64, ascending, group after group, and from a multiple of ``ALIGNED`` bytes on ``vectors``.
    ``sizes`` are the numbers of texts in each group, as in the file.
    """

    folder: DatasetFolder
    vectors: VectorFile
    distinct: NDArray[np.bool_]
    sizes: Mapping[str, int]

    def __len__(self) -> int:
        """How many distinct texts there are."""
        return sum(self.sizes.values())

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """Collect the distinct texts of a folder, and write their groups and vectors to ``file``.

        For each row of the folder nine bytes are held in memory meanwhile, and one afterwards.
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
            lost = Counter(folder.manifest.counts.rejects_by_reason).most_common(1)
            why = f" (most were left out: {lost[0][0]}, {lost[0][1]:,})" if lost else ""
            raise InputError(
                f"{folder.path}: {count} distinct texts of {total} have a vector{why}; a search "
                "compares texts with their neighbours, so each corpus needs two or more"
            )
        return cls(folder, vectors, distinct, sizes)

    def local(self) -> "Encoded":
        """The same texts with their file on this machine; if it is missing here, it is written again."""
        return self if self.vectors.is_local() else Encoded.of(self.folder, new_file())

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """For each group's name the numbers of its texts, ascending, mapped from the file."""
        every = np.memmap(self.vectors.file, np.int64, "c", shape=(len(self),))
        edges = np.cumsum([0, *self.sizes.values()]).tolist()
        return {
            name: np.asarray(every[start:stop])
            for name, (start, stop) in zip(self.sizes, pairwise(edges), strict=True)
        }

    def firsts(self) -> NDArray[np.uint32]:
        """For each number, the first number of the same text: a text in two groups has two numbers."""
        keys = (text_keys(table["id"])[:, None] for _, table in some_rows(self.folder, self.distinct, ["id"]))
        return first_of_each(keys, len(self), self.vectors.file.parent)

    @property
    def copy_count(self) -> int:
        """How many rows of the folder repeat an earlier text."""
        return len(self.distinct) - len(self)

    def copies(self, corpus: str, first: int, stop: int) -> pa.Table:
        """Texts that repeat an earlier one, as rejects: of all ``copy_count`` those from first to stop."""
        which, seen = ~self.distinct, 0
        for part in _slices(len(which)):
            places = part.start + np.flatnonzero(which[part])
            ranks = np.arange(seen, seen + len(places))
            which[places[(ranks < first) | (ranks >= stop)]] = False
            seen += len(places)
        reason = f"repeats an earlier text of the {corpus}"
        tables = [to_table([], REJECT)]
        for _, table in some_rows(self.folder, which, ENCODED_TEXTS.names):
            rows = [Reject.of(row["id"], DUPLICATE, reason, row) for row in table.to_pylist()]
            tables.append(to_table(rows, REJECT))
        return pa.concat_tables(tables)

    def texts(self) -> Iterator[pa.Table]:
        """The distinct texts without their vectors, in the order of their numbers, a shard at a time."""
        return (table for _, table in some_rows(self.folder, self.distinct, ENCODED_TEXTS.names))


class _Groups:
    """The group of each row of a folder, as a number; groups are numbered as they appear."""

    def __init__(self, total: int) -> None:
        self._codes: dict[str, int] = {}
        self._of_row = np.empty(total, np.uint32)
        self._rows = 0

    def keys(self, table: pa.Table) -> NDArray[np.uint64]:
        """Take note of the groups of a shard; returns the keys of its texts and groups, ``(n, 2)``."""
        coded = table["group"].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.uint32)
        self._of_row[self._rows : self._rows + len(coded)] = codes[coded.indices.to_numpy()]
        self._rows += len(coded)
        return np.stack([text_keys(table["id"]), text_keys(table["group"])], axis=1)

    def write(self, distinct: NDArray[np.bool_], out: IO[bytes]) -> dict[str, int]:
        """Write the numbers of the distinct texts, group after group; returns the groups' sizes."""
        sizes = np.zeros(len(self._codes), np.int64)
        for part in _slices(len(distinct)):
            sizes += np.bincount(self._of_row[part][distinct[part]], minlength=len(sizes))
        places = np.cumsum(sizes) - sizes
        number = 0
        for part in _slices(len(distinct)):
            of_text = self._of_row[part][distinct[part]]
            order = stable_order([of_text])
            starts = np.flatnonzero(changes([of_text[order]]))
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
    """The distinct texts of a corpus by their numbers, mapped from a file, so that none is read twice."""

    def __init__(self, texts: Iterable[pa.Table], file: Path, kept: Sequence[str] = ()) -> None:
        """Write ``texts``, as ``Encoded.texts`` gives them, to the file; with the columns ``kept``, texts."""
        self._table = mapped_table(texts, pa.schema([*ENCODED_TEXTS, *text_schema(*kept)]), file)

    def rows(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The rows of these texts, with all columns or some, in the order of the numbers."""
        table = self._table if columns is None else self._table.select(list(columns))
        table = rows_at(table, np.asarray(numbers, np.int64))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows
