"""Nearest neighbours that a step searches part by part, and saves as shards of a dataset folder.

A part is computed and saved as a whole: ranges of queries, each searched in a range of other texts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import SettingsError
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import storage_errors
from pairsmith.runs.writer import MOST_SHARDS
from pairsmith.search.exact import Neighbours
from pairsmith.search.faiss_search import needed_vectors

SAVED_QUERIES = 2**24
"""Most queries that are searched in an index and saved together."""
PAIRS_AT_ONCE = 2**20
"""Neighbours of a file that are held in memory at once; each needs up to 200 bytes meanwhile."""
SAVED = 2**26
"""Most neighbours that are saved together in a search by an index; each takes about 40 bytes of memory."""

NEAR: pa.Schema = pa.schema(
    [
        ("cell", pa.int64()), ("side", pa.string()), ("number", pa.int64()),
        ("ids", pa.list_(pa.int64())), ("similarities", pa.list_(pa.float32())), ("recall", pa.float32()),
    ]
)  # fmt: skip
"""The neighbours of a text, all by their numbers within the group; for a search by an index also its recall,
measured on a sample."""
NO_NEIGHBOUR = 2**32 - 1
"""Stored in place of an id where a query has fewer neighbours than the file has columns."""


OTHER = {"x": "y", "y": "x", "both": "y"}
"""The side of the texts among which those of a side are searched."""


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Texts that are compared with each other: the numbers of the inputs, ``(n,)``, and outputs, ``(m,)``."""

    x: NDArray[np.int64]
    y: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchBlock:
    """A part of the search within one group: a range of queries against a range of the other side.

    Attributes:
        group: number of the group.
        side: the side that the queries are from: ``x`` is searched among y, ``y`` among x; ``both`` searches
            both ways at once, computes each product once, and has x as the queries.
        queries: begin and end of the range of queries; ``others`` those of the texts on the other side.
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
    """Blocks of the search that are computed and saved together."""

    number: int
    blocks: tuple[SearchBlock, ...]

    @property
    def size(self) -> int:
        """The number of queries."""
        return sum(block.size for block in self.blocks)


def parts_by_index(
    groups: Sequence[SearchGroup], rows: int, needed: int, most: Mapping[str, int]
) -> list[Part]:
    """Cut the search by indexes into parts, one for each index and up to ``together`` queries.

    ``most`` are the neighbours that are looked up for a text of each side. An index holds at most ``rows``
    vectors, unless its training needs more: ``needed``.
    """
    blocks: list[SearchBlock] = []
    for number, group in enumerate(groups):
        x, y = len(group.x), len(group.y)
        sides: tuple[tuple[Literal["x", "y"], int, int], ...] = (("x", x, y), ("y", y, x))
        for side, queries, others in sides:
            blocks += [
                SearchBlock(number, side, query_range, held)
                for held in _stretches(others, rows, needed)
                for query_range in _stretches(queries, together(most[side]), 0)
            ]
    return [Part(number, (block,)) for number, block in enumerate(blocks)]


def together(neighbours: int) -> int:
    """How many queries are searched in an index and saved together, each with so many neighbours."""
    return max(1, min(SAVED_QUERIES, SAVED // neighbours))


def _stretches(count: int, most: int, least: int) -> list[tuple[int, int]]:
    """Split ``count`` into as few equal ranges as possible, of up to ``most`` each, or ``least`` if more."""
    number = -(-count // most)
    if least:
        number = max(1, min(number, count // least))
    return [(i * count // number, (i + 1) * count // number) for i in range(number)]


def check_index(index: str) -> None:
    """Check that FAISS can build an index for vectors of some usual width."""
    parts = [8 * int(number) for number in re.findall(r"PQ(\d+)", index) if int(number)]
    for width in (384, 768, 896, 1024, *parts):
        with suppress(SettingsError):
            needed_vectors(index, width)
            return
    needed_vectors(index, 3840)


def check_part_count(parts: Sequence[Part], index: str | None) -> None:
    """Refuse a search of more parts than a folder has shards; ``index`` is that of the settings."""
    if len(parts) > MOST_SHARDS:
        remedy = "leave out --index" if index else "give a larger --search-rows"
        raise SettingsError(f"the search has {len(parts):,} parts, more than {MOST_SHARDS:,}; {remedy}")


def report_recall(folder: DatasetFolder, index: str, run: Run) -> None:
    """Say how many of the nearest texts an index found, in the part where it found the smallest share."""
    recall = [table["recall"][0].as_py() for table in folder.shards("train", ["recall"])]
    run.progress.say(
        f"index {index}: finds at least {min(recall):.1%} of the nearest texts, as checked by an exact "
        "search for a sample"
    )


def ids_of_stored(stored: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Ids as ``Neighbours`` has them, in the same shape: -1 in the place of ``NO_NEIGHBOUR``."""
    return np.where(stored == NO_NEIGHBOUR, -1, stored.astype(np.int64))


@dataclass(frozen=True, slots=True)
class NeighbourFile:
    """The nearest neighbours of n texts: numbers and similarities, ``(n, width)``, mapped from a file.

    Where a text has fewer, the last have the number ``NO_NEIGHBOUR`` and the similarity minus infinity.
    """

    ids: NDArray[np.uint32]
    similarities: Float32s

    @classmethod
    def empty(cls, count: int, width: int, file: Path) -> Self:
        """Room for the neighbours of ``count`` texts, 8 bytes each, in a new file."""
        # A full disk is an error in a file that is written, and would end the process in one that is mapped.
        with storage_errors(file), file.open("wb") as out:
            for nothing in (np.uint32(NO_NEIGHBOUR), np.float32(-np.inf)):
                for some in in_batches(range(count * width), PAIRS_AT_ONCE):
                    np.full(len(some), nothing).tofile(out)
        ids, bits = np.memmap(file, np.uint32, "r+", shape=(2, count, width))
        return cls(ids, bits.view(np.float32))

    def read(self, first: int, stop: int) -> Neighbours:
        """Those of some texts; the id -1 stands where there is none."""
        ids = torch.from_numpy(ids_of_stored(self.ids[first:stop]))
        return Neighbours(ids, torch.tensor(self.similarities[first:stop]))

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """The ``most`` nearest of all texts in parts, each with the number of its first text."""
        count, width = self.ids.shape
        for texts in in_batches(range(count), max(1, PAIRS_AT_ONCE // max(1, width))):
            near = self.read(texts.start, texts.stop)
            yield (
                texts.start,
                Neighbours(*(tensor[:, :most].contiguous() for tensor in (near.ids, near.similarities))),
            )

    def write(self, first: int, near: Neighbours) -> None:
        """Put these, or the first ``width`` of them, in the place of those of a part of the texts."""
        rows, width = slice(first, first + len(near.ids)), min(near.ids.shape[1], self.ids.shape[1])
        self.ids[rows], self.similarities[rows] = NO_NEIGHBOUR, -np.inf
        self.ids[rows, :width] = near.ids[:, :width].numpy().astype(np.uint32)  # -1 becomes ``NO_NEIGHBOUR``
        self.similarities[rows, :width] = near.similarities[:, :width].numpy()


def neighbour_rows(
    group: int, side: str, first: int, neighbours: Neighbours, recall: float | None = None
) -> pa.Table:
    """Rows of ``NEAR``: the neighbours of consecutive texts of a side, from number ``first`` on."""
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
    return pa.Table.from_arrays(columns, schema=NEAR)
