"""The distinct texts of an encoded corpus, whose texts and vectors are memory-mapped from files."""

import atexit
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.data.schemas import REJECT, Reject, rows_at, to_table
from pairsmith.data.text_keys import text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.sorting import ROWS, changes, first_of_each, stable_order
from pairsmith.runs.storage import mapped_table, storage_errors

ENCODED: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("text", pa.string()), ("group", pa.string()),
        ("context", pa.string()), ("answer", pa.string()), ("answer_start", pa.int32()),
        ("vector", pa.list_(pa.float32())),
    ]
)  # fmt: skip
"""A text, the group within which it is paired, for a candidate answer also the answer and its passage, and
the text's vector, of length 1."""
TEXTS: pa.Schema = pa.schema([field for field in ENCODED if field.name != "vector"])
ALIGNED = 64
"""Vectors begin at a multiple of so many bytes in their file."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The distinct texts of a corpus, numbered from 0.

    ``folder`` is the one that ``encode_corpus`` wrote; ``distinct``, ``(rows,)`` bool, tells which of its
    rows are these texts: the first with each text and group. ``file`` holds the numbers of each group's
    texts, int64, ascending, group after group, and from a multiple of ``ALIGNED`` bytes on their vectors,
    float32, of ``width`` dimensions. ``sizes`` are the numbers of texts in each group, as in the file.
    """

    folder: DatasetFolder
    file: Path
    width: int
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
        width = 0
        with storage_errors(file), file.open("wb") as out:
            sizes = groups.write(distinct, out)
            del groups, first
            out.seek(_aligned(8 * sum(sizes.values())))
            for new, table in _chosen(folder, distinct, ["vector"]):
                vectors = table["vector"].combine_chunks().flatten()
                width = len(vectors) // len(new)
                out.write(np.ascontiguousarray(vectors.to_numpy(zero_copy_only=False), np.float32).tobytes())
        count = sum(sizes.values())
        if count < 2:
            lost = Counter(folder.manifest.counts.rejects_by_reason).most_common(1)
            why = f" (most were left out: {lost[0][0]}, {lost[0][1]:,})" if lost else ""
            raise InputError(
                f"{folder.path}: {count} distinct texts of {total} have a vector{why}; mining compares "
                "texts with their neighbours, so each corpus needs two or more"
            )
        return cls(folder, file, width, distinct, sizes)

    def here(self) -> "Encoded":
        """The same texts with their file on this machine; if it is missing here, it is written again."""
        size = _aligned(8 * len(self)) + 4 * self.width * len(self)
        if self.file.is_file() and self.file.stat().st_size == size:
            return self
        with tempfile.NamedTemporaryFile(prefix="pairsmith-", suffix=".tmp", delete=False) as made:
            file = Path(made.name)
        atexit.register(file.unlink, missing_ok=True)
        Encoded.of(self.folder, file)
        return replace(self, file=file)

    def vectors(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """Vectors of texts, ``(len(numbers), width)`` float32; not copied if the numbers are consecutive."""
        mapped = np.memmap(self.file, np.float32, "c", _aligned(8 * len(self)))
        every = torch.from_numpy(mapped.reshape(-1, self.width))
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):  # numbers are distinct and ascending
            return every[first : last + 1]
        return every[torch.from_numpy(numbers)]

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """For each group's name the numbers of its texts, ascending, mapped from the file."""
        every = np.memmap(self.file, np.int64, "c", shape=(len(self),))
        edges = np.cumsum([0, *self.sizes.values()]).tolist()
        return {
            name: np.asarray(every[start:stop])
            for name, (start, stop) in zip(self.sizes, pairwise(edges), strict=True)
        }

    def firsts(self) -> NDArray[np.uint32]:
        """For each number, the first number of the same text: a text in two groups has two numbers."""
        keys = (text_keys(table["id"])[:, None] for _, table in _chosen(self.folder, self.distinct, ["id"]))
        return first_of_each(keys, len(self), self.file.parent)

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
        found = [to_table([], REJECT)]
        for _, table in _chosen(self.folder, which, TEXTS.names):
            rows = [Reject.of(row["id"], "duplicate", reason, row) for row in table.to_pylist()]
            found.append(to_table(rows, REJECT))
        return pa.concat_tables(found)

    def texts(self) -> Iterator[pa.Table]:
        """The distinct texts without their vectors, in the order of their numbers, a shard at a time."""
        return (table for _, table in _chosen(self.folder, self.distinct, TEXTS.names))


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
        ours = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.uint32)
        self._of_row[self._rows : self._rows + len(coded)] = ours[coded.indices.to_numpy()]
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
            for some in np.split(order, starts[1:]) if len(order) else []:
                group = of_text[some[0]]
                out.seek(8 * int(places[group]))
                out.write((some + number).tobytes())
                places[group] += len(some)
            number += len(of_text)
        return dict(zip(self._codes, sizes.tolist(), strict=True))


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _slices(total: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, total)) for start in range(0, total, ROWS))


def _chosen(
    folder: DatasetFolder, which: NDArray[np.bool_], columns: Sequence[str]
) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
    """Some rows of a folder, in order, by shard, with their places in it; shards without any are not read."""
    edges = np.cumsum([0, *folder.shard_rows()]).tolist()
    parts = [slice(*each) for each in pairwise(edges)]
    shards = [number for number, part in enumerate(parts) if which[part].any()]
    for number, table in zip(shards, folder.shards("train", columns, shards), strict=True):
        here = np.flatnonzero(which[parts[number]])
        yield here, table.take(here)


class Texts:
    """The distinct texts of a corpus by their numbers, mapped from a file, so that none is read twice."""

    def __init__(self, encoded: Encoded, file: Path) -> None:
        self._table = mapped_table(encoded.texts(), TEXTS, file)

    def rows(self, numbers: Sequence[int], columns: Sequence[str] = TEXTS.names) -> list[dict[str, Any]]:
        """The rows of these texts, with columns of ``TEXTS``, in the order of the numbers."""
        table = rows_at(self._table.select(list(columns)), np.asarray(numbers, np.int64))
        found: list[dict[str, Any]] = table.to_pylist()
        return found
