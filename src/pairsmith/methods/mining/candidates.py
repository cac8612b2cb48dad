"""Candidate pairs: the nearest neighbours that may be paired (M5), with their margins (M3).

The neighbours of a side are read and written in parts: those of a small corpus are held in memory, those of a
large one in a file.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.methods.mining.pairable import PairedTexts, pairable_neighbours
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import Neighbours
from pairsmith.search.margin import MarginName, mean_cosine, with_neighbours
from pairsmith.search.selection import pair_rows


class NeighbourStore(Protocol):
    """The nearest neighbours of the texts of one side, by their numbers on the other side."""

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """The ``most`` nearest of all texts in parts, each with the number of its first text."""
        ...

    def write(self, first: int, near: Neighbours) -> None:
        """Put these in the place of the neighbours of a part, whose first text has the number ``first``."""
        ...


class NeighboursInMemory:
    """The nearest neighbours of all texts of one side in memory, as one part."""

    def __init__(self, near: Neighbours) -> None:
        self._near = near

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """See ``NeighbourStore``."""
        yield 0, Neighbours(self._near.ids[:, :most], self._near.similarities[:, :most])

    def write(self, first: int, near: Neighbours) -> None:  # noqa: ARG002 - the part is the only one
        """See ``NeighbourStore``."""
        self._near = near


class PairStore(Protocol):
    """Where the candidates of one side go: a list in memory, or a file."""

    def extend(self, parts: Iterable[Rows], /) -> None:
        """Add ``pair_rows`` in parts."""
        ...


def keep_pairable(
    near: tuple[NeighbourStore, NeighbourStore], texts: tuple[PairedTexts, PairedTexts], k: int
) -> int:
    """Leave the k nearest of each text that may be paired with it (M5); returns how many nearer ones may not.

    ``near`` and ``texts`` are those of the inputs and of the outputs; more than k neighbours of each text are
    there.
    """
    left_out = 0
    for side, (own, other) in enumerate((texts, texts[::-1])):
        for first, part in near[side].parts():
            kept, count = pairable_neighbours(part, k, own, other, inputs=side == 0, first=first)
            near[side].write(first, kept)
            left_out += count
    return left_out


def score_candidates(
    near: tuple[NeighbourStore, NeighbourStore],
    numbers: tuple[NDArray[np.integer], NDArray[np.integer]],
    k: int,
    margin: MarginName,
    into: tuple[PairStore, PairStore],
) -> int:
    """Score each text with each of its k nearest neighbours by their margin (M3).

    Args:
        near: the neighbours of the inputs and of the outputs.
        numbers: for each side the numbers that its texts have in the rows, ``(n,)`` and ``(m,)``.
        k: neighbours of each text.
        margin: see ``search.margin.margin``.
        into: where the candidates of the inputs and those of the outputs are added, if they have a margin.

    Returns:
        how many have no margin, as the mean cosine to the nearest neighbours is not above 0.
    """
    without_margin = 0
    means = [torch.cat([mean_cosine(part) for _, part in of_side.parts(k)]) for of_side in near]
    for side, (of_side, store) in enumerate(zip(near, into, strict=True)):
        for first, part in of_side.parts(k):
            of_part = means[side][first : first + len(part.ids)]
            pairs = with_neighbours(part, of_part, means[1 - side], margin)
            without_margin += int((part.ids >= 0).sum()) - len(pairs)
            own, other = numbers[side][pairs.x.numpy() + first], numbers[1 - side][pairs.y.numpy()]
            store.extend([pair_rows(*((own, other) if side == 0 else (other, own)), pairs)])
    return without_margin
