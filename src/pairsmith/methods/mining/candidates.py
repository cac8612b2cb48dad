"""Candidate pairs: each text with those of its nearest neighbours that it may be paired with (M5, M3).

A side is all inputs or all outputs. The neighbours of a side are read and written in parts: the step ``mine``
holds them in files, ``mine_pairs`` in memory.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.methods.mining.pairable import PairedTexts, pairable_neighbours
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import Neighbours
from pairsmith.search.margin import mean_cosine, with_neighbours
from pairsmith.search.names import MarginName
from pairsmith.search.selection import pair_rows


class NeighbourStore(Protocol):
    """The nearest neighbours of all texts of one side; their ids are numbers of texts on the other side."""

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """Yield the texts in parts: the number of the part's first text, and the ``most`` nearest of each."""
        ...

    def write(self, first: int, neighbours: Neighbours) -> None:
        """Replace the neighbours of the part whose first text has the number ``first``."""
        ...


class NeighboursInMemory:
    """The nearest neighbours of all texts of one side in memory, as one part."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """See ``NeighbourStore``."""
        yield 0, Neighbours(self._neighbours.ids[:, :most], self._neighbours.similarities[:, :most])

    def write(self, first: int, neighbours: Neighbours) -> None:  # noqa: ARG002 - the part is the only one
        """See ``NeighbourStore``."""
        self._neighbours = neighbours


class PairStore(Protocol):
    """Collects the candidates of one side: in a list in memory, or in a file."""

    def extend(self, parts: Iterable[Rows], /) -> None:
        """Add ``pair_rows`` in parts."""
        ...


def keep_pairable(
    neighbours: tuple[NeighbourStore, NeighbourStore], texts: tuple[PairedTexts, PairedTexts], k: int
) -> int:
    """Keep the k nearest neighbours that each text may be paired with (M5); returns how many were left out.

    ``neighbours`` and ``texts`` hold the inputs first, then the outputs. Each text has more than k
    neighbours. Those left out are nearer than the k-th that is kept.
    """
    left_out = 0
    for side, (own, other) in enumerate((texts, texts[::-1])):
        for first, part in neighbours[side].parts():
            kept, count = pairable_neighbours(part, k, own, other, inputs=side == 0, first=first)
            neighbours[side].write(first, kept)
            left_out += count
    return left_out


def score_candidates(
    neighbours: tuple[NeighbourStore, NeighbourStore],
    numbers: tuple[NDArray[np.integer], NDArray[np.integer]],
    k: int,
    margin: MarginName,
    into: tuple[PairStore, PairStore],
) -> int:
    """Score each text with each of its k nearest neighbours by their margin (M3).

    Args:
        neighbours: those of the inputs, and those of the outputs.
        numbers: for each side, ``(n,)`` and ``(m,)``, the number that stands for each of its texts in the
            candidates' rows.
        k: number of neighbours of each text.
        margin: see ``search.margin.margin``.
        into: the stores for the candidates of the inputs and for those of the outputs.

    Returns:
        the number of candidates that were left out because their margin is undefined: the mean cosine to the
        nearest neighbours is not above 0.
    """
    without_margin = 0
    means = [torch.cat([mean_cosine(part) for _, part in of_side.parts(k)]) for of_side in neighbours]
    for side, (of_side, store) in enumerate(zip(neighbours, into, strict=True)):
        for first, part in of_side.parts(k):
            of_part = means[side][first : first + len(part.ids)]
            pairs = with_neighbours(part, of_part, means[1 - side], margin)
            without_margin += int((part.ids >= 0).sum()) - len(pairs)
            own, other = numbers[side][pairs.x.numpy() + first], numbers[1 - side][pairs.y.numpy()]
            store.extend([pair_rows(*((own, other) if side == 0 else (other, own)), pairs)])
    return without_margin
