"""The parts that a search of nearest neighbours is cut into, and its neighbours as rows and in a file.

A part is searched as a whole and saved as a shard of a dataset folder. It consists of blocks, each of which
compares a range of queries with a range of the texts on the other side.
"""

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import SettingsError
from pairsmith.runs.storage import storage_errors
from pairsmith.search.exact import Neighbours
from pairsmith.search.faiss_search import needed_vectors

SAVED_QUERIES = 2**24
"""Largest number of queries in a part of a search by indexes."""
SAVED = 2**26
"""Largest number of neighbours in a part of a search by indexes; each needs about 40 bytes of memory."""
PAIRS_AT_ONCE = 2**20
"""Number of neighbours of a file that are in memory at a time; each needs up to 200 bytes."""

NEIGHBOURS: pa.Schema = pa.schema(
    [
        ("cell", pa.int64()), ("side", pa.string()), ("number", pa.int64()),
        ("ids", pa.list_(pa.int64())), ("similarities", pa.list_(pa.float32())), ("recall", pa.float32()),
    ]
)  # fmt: skip
"""The neighbours of a text. ``cell`` is the number of its group, within which the texts of each side are
numbered; ``recall`` is that of the index, measured on a sample, and null for an exact search."""
NO_NEIGHBOUR = 2**32 - 1
"""Stored in a file in place of the id of a neighbour that does not exist."""

OTHER = {"x": "y", "y": "x"}
"""For the side of the queries, the side whose texts are searched."""


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Texts that are compared with each other: the numbers of n inputs, ``x``, and of m outputs, ``y``."""

    x: NDArray[np.int64]
    y: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchBlock:
    """A block of the search within one group: a range of queries against a range of texts on the other side.

    Attributes:
        group: the number of the group.
        side: the side that the queries are from: ``x`` searches the neighbours of x in y, ``y`` those of y in
            x. ``both`` searches in both directions and computes each product only once; its queries are x.
        queries: the start and the end (exclusive) of the range of queries.
        others: the start and the end (exclusive) of the range of texts on the other side.
    """

    group: int
    side: Literal["both", "x", "y"]
    queries: tuple[int, int]
    others: tuple[int, int]

    @property
    def size(self) -> int:
        """The number of queries."""
        return self.queries[1] - self.queries[0]


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of the search that are computed and saved together as one shard."""

    number: int
    blocks: tuple[SearchBlock, ...]

    @property
    def size(self) -> int:
        """The number of queries."""
        return sum(block.size for block in self.blocks)


Sizes = Sequence[tuple[int, int]]
"""The numbers of inputs and of outputs of each group of texts; only texts of the same group are compared."""


def cut_search(sizes: Sizes, rows: int, side: Literal["both", "x"]) -> list[Part]:
    """Cut an exact search into parts of at least ``rows`` inputs each; the last part may have fewer."""
    full_parts: list[Part] = []
    blocks: list[SearchBlock] = []
    for group, (inputs, outputs) in enumerate(sizes):
        for queries in in_batches(range(inputs), rows):
            blocks.append(SearchBlock(group, side, (queries.start, queries.stop), (0, outputs)))
            if sum(block.size for block in blocks) >= rows:
                full_parts.append(Part(len(full_parts), tuple(blocks)))
                blocks = []
    return [*full_parts, Part(len(full_parts), tuple(blocks))] if blocks else full_parts


def parts_by_index(sizes: Sizes, rows: int, needed: int, most: Mapping[str, int]) -> list[Part]:
    """Cut a search by indexes into parts, each with one index and a range of queries.

    Args:
        sizes: the sizes of the groups.
        rows: the largest number of vectors in an index.
        needed: the number of vectors that an index needs for its training; it may exceed ``rows``.
        most: the number of neighbours to search for each text, by the sides that queries are from.
    """
    blocks: list[SearchBlock] = []
    for group, (x, y) in enumerate(sizes):
        sides: tuple[tuple[Literal["x", "y"], int, int], ...] = (("x", x, y), ("y", y, x))
        blocks += [
            SearchBlock(group, side, query_range, other_range)
            for side, queries, others in sides
            if side in most
            for other_range in _equal_ranges(others, rows, needed)
            for query_range in _equal_ranges(queries, queries_together(most[side]), 0)
        ]
    return [Part(number, (block,)) for number, block in enumerate(blocks)]


def queries_together(neighbours: int) -> int:
    """The number of queries with this number of neighbours in a part of a search by indexes."""
    return max(1, min(SAVED_QUERIES, SAVED // neighbours))


def _equal_ranges(count: int, most: int, least: int) -> list[tuple[int, int]]:
    """The fewest equal parts of ``range(count)`` with up to ``most`` numbers, but no fewer than ``least``."""
    number = -(-count // most)
    if least:
        number = max(1, min(number, count // least))
    return [(i * count // number, (i + 1) * count // number) for i in range(number)]


def check_index(index: str) -> None:
    """Raise a ``SettingsError`` if FAISS cannot build this index for vectors of any usual width."""
    parts = [8 * int(number) for number in re.findall(r"PQ(\d+)", index) if int(number)]
    for width in (384, 768, 896, 1024, *parts):
        with suppress(SettingsError):
            needed_vectors(index, width)
            return
    needed_vectors(index, 3840)


def ids_of_stored(stored: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Ids in the form of ``Neighbours``, of the same shape: -1 in place of ``NO_NEIGHBOUR``."""
    return np.where(stored == NO_NEIGHBOUR, -1, stored.astype(np.int64))


@dataclass(frozen=True, slots=True)
class NeighbourFile:
    """The nearest neighbours of n texts: ids and similarities, both ``(n, width)``, mapped from a file.

    If a text has fewer than ``width`` neighbours, the last ids are ``NO_NEIGHBOUR``, and the last
    similarities minus infinity. What was read or written in parts stays in the file, and not in memory;
    ``mapped`` is the map of the file, or None if there is another holder of the arrays.
    """

    ids: NDArray[np.uint32]
    similarities: Float32s
    mapped: mmap.mmap | None = None

    @classmethod
    def empty(cls, count: int, width: int, file: Path) -> Self:
        """Create a file for ``width`` neighbours of each of ``count`` texts; it has 8 bytes per neighbour."""
        # The file is written first: a full disk then raises an error, but ends the process in a mapped file.
        with storage_errors(file), file.open("wb") as out:
            for placeholder in (np.uint32(NO_NEIGHBOUR), np.float32(-np.inf)):
                for batch in in_batches(range(count * width), PAIRS_AT_ONCE):
                    np.full(len(batch), placeholder).tofile(out)
        with file.open("r+b") as handle:
            mapped = mmap.mmap(handle.fileno(), 0)
        ids, bits = np.frombuffer(mapped, np.uint32).reshape(2, count, width)
        return cls(ids, bits.view(np.float32), mapped)

    def read(self, first: int, stop: int) -> Neighbours:
        """The neighbours of the texts ``first`` to ``stop`` (exclusive); the id of no neighbour is -1."""
        ids = torch.from_numpy(ids_of_stored(self.ids[first:stop]))
        return Neighbours(ids, torch.tensor(self.similarities[first:stop]))

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """The ``most`` nearest neighbours of all texts, in parts, each with the number of its first text."""
        count, width = self.ids.shape
        for texts in in_batches(range(count), max(1, PAIRS_AT_ONCE // max(1, width))):
            neighbours = self.read(texts.start, texts.stop)
            columns = (neighbours.ids, neighbours.similarities)
            yield texts.start, Neighbours(*(column[:, :most].contiguous() for column in columns))
            self.release()

    def write(self, first: int, neighbours: Neighbours) -> None:
        """Write the first ``width`` neighbours of consecutive texts, from number ``first`` on."""
        rows = slice(first, first + len(neighbours.ids))
        width = min(neighbours.ids.shape[1], self.ids.shape[1])
        self.ids[rows], self.similarities[rows] = NO_NEIGHBOUR, -np.inf
        # As an unsigned number, -1 is NO_NEIGHBOUR.
        self.ids[rows, :width] = neighbours.ids[:, :width].numpy().astype(np.uint32)
        self.similarities[rows, :width] = neighbours.similarities[:, :width].numpy()
        self.release()

    def of_ranks(self, ranks: slice) -> Self:
        """The neighbours at some ranks, in the same file; the nearest has the rank 0."""
        return replace(self, ids=self.ids[:, ranks], similarities=self.similarities[:, ranks])

    def counts(self) -> NDArray[np.int64]:
        """The number of neighbours of each text, ``(n,)`` int64."""
        return np.concatenate(
            [np.zeros(0, np.int64), *((part.ids >= 0).sum(dim=1).numpy() for _, part in self.parts())]
        )

    def release(self) -> None:
        """Take the file's pages out of this process's memory; they are read from the file when needed again.

        Otherwise the memory of the process would grow with the file, 8 bytes for each neighbour.
        """
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):  # Windows has no such call
            self.mapped.madvise(mmap.MADV_DONTNEED)


def neighbour_rows(
    group: int, side: str, first: int, neighbours: Neighbours, recall: float | None = None
) -> pa.Table:
    """Rows of ``NEIGHBOURS``, for consecutive texts of a side, from number ``first`` on."""
    count, width = neighbours.ids.shape
    offsets = pa.array(np.arange(0, count * width + 1, width, dtype=np.int32))
    numbers = np.arange(first, first + count)
    columns = [
        pa.array(np.full(count, group)),
        pa.array([side]).take(pa.array(np.zeros(count, np.int64))),
        pa.array(numbers),
        pa.ListArray.from_arrays(offsets, pa.array(neighbours.ids.numpy().ravel())),
        pa.ListArray.from_arrays(offsets, pa.array(neighbours.similarities.numpy().ravel())),
        pa.array([recall] * count, pa.float32()),
    ]
    return pa.Table.from_arrays(columns, schema=NEIGHBOURS)


def runs_of_neighbours(table: pa.Table) -> Iterator[tuple[int, str, int, Neighbours]]:
    """Undo ``neighbour_rows``: yield the group, side, first number and neighbours of each run of rows.

    The rows of a run are consecutive texts of the same group and side.
    """
    sides = table["side"].combine_chunks().dictionary_encode()
    keys = np.stack([table["cell"].to_numpy(), sides.indices.to_numpy()])
    borders = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), table.num_rows]
    for start, stop in pairwise(borders):
        run = table.slice(start, stop - start)
        columns = (run[name].combine_chunks().flatten().to_numpy() for name in ("ids", "similarities"))
        neighbours = Neighbours(*(torch.tensor(column).view(stop - start, -1) for column in columns))
        yield run["cell"][0].as_py(), run["side"][0].as_py(), run["number"][0].as_py(), neighbours
