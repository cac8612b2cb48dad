"""Candidate pairs: each text with the nearest neighbours that it may be paired with (M5, M3).

A side is all inputs or all outputs. Its texts and their neighbours are read in parts: the step ``mine`` holds
them in files, ``mine_pairs`` in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.data.text.spans import stands_in
from pairsmith.runs.sorting import Rows
from pairsmith.search.exact import Neighbours, nearest
from pairsmith.search.margin import mean_cosine, with_neighbours
from pairsmith.search.names import MarginName
from pairsmith.search.permitted import permitted
from pairsmith.search.selection import pair_rows

TEXTS_AT_ONCE = 2**14
"""Number of pairs whose texts are held in memory at once."""


def unpairable(input_: str, output: str, answer: str | None) -> str:
    """The reason to reject a pair from which a model would learn to copy (M5); empty if it is kept.

    A question may not contain its answer, in any letter case. Of two other texts, for which ``answer`` is
    None, neither may contain the other verbatim.
    """
    if answer is not None:
        return "the answer occurs in the question" if stands_in(answer.casefold(), input_.casefold()) else ""
    if stands_in(output, input_):
        return "the output occurs word for word in the input"
    return "the input occurs word for word in the output" if stands_in(input_, output) else ""


class PairedTexts(Protocol):
    """The inputs or the outputs that are paired, n texts numbered from 0, in memory or in files."""

    def __len__(self) -> int:
        """How many texts there are."""
        ...

    def texts(self, numbers: Tensor) -> Sequence[tuple[str, str | None]]:
        """The texts with these numbers, ``(p,)`` int64, each with the answer in it; None if it has none."""
        ...

    def vectors(self, numbers: Tensor | None = None) -> Tensor:
        """The vectors ``(p, d)``, of length 1, of the texts with these distinct, ascending numbers.

        Without ``numbers``, the vectors of all n texts.
        """
        ...


@dataclass(frozen=True, slots=True)
class TextsInMemory:
    """n texts, each with the answer in it or None, and their vectors: ``(n, d)`` float32, of length 1."""

    rows: Sequence[tuple[str, str | None]]
    unit_vectors: Tensor

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.rows)

    def texts(self, numbers: Tensor) -> Sequence[tuple[str, str | None]]:
        """See ``PairedTexts``."""
        return [self.rows[number] for number in numbers.tolist()]

    def vectors(self, numbers: Tensor | None = None) -> Tensor:
        """See ``PairedTexts``."""
        return self.unit_vectors if numbers is None else self.unit_vectors[numbers]


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


def keep_pairable(
    neighbours: tuple[NeighbourStore, NeighbourStore], texts: tuple[PairedTexts, PairedTexts], k: int
) -> int:
    """Keep the k nearest neighbours that each text may be paired with (M5); returns how many were left out.

    ``neighbours`` and ``texts`` hold the inputs first, then the outputs. Each text has more than k
    neighbours; if too many neighbours are unpairable, more are searched among all texts of the other side.
    Only texts that are nearer than the k-th kept neighbour count as left out.
    """
    left_out = 0
    for side, store in enumerate(neighbours):
        for first, part in store.parts():
            kept, count = _pairable_neighbours(part, k, texts, side, first)
            store.write(first, kept)
            left_out += count
    return left_out


def _pairable_neighbours(
    neighbours: Neighbours, k: int, texts: tuple[PairedTexts, PairedTexts], side: int, first: int
) -> tuple[Neighbours, int]:
    """What ``permitted`` returns for a part of a side, whose first text has the number ``first``."""
    own, other = texts[side], texts[1 - side]

    def forbidden(rows: Tensor, ids: Tensor) -> Tensor:
        unfit = torch.empty(len(rows), dtype=torch.bool)
        for block in torch.split(torch.arange(len(rows)), TEXTS_AT_ONCE):
            own_and_other = own.texts(rows[block] + first), other.texts(ids[block])
            pairs = zip(*(own_and_other if side == 0 else own_and_other[::-1]), strict=True)
            unfit[block] = torch.tensor([bool(unpairable(x, y, answer)) for (x, _), (y, answer) in pairs])
        return unfit

    def find_more(rows: Tensor, count: int) -> Neighbours:
        return nearest(own.vectors(rows + first), other.vectors(), count)

    return permitted(neighbours, k, forbidden, find_more, len(other))


class PairStore(Protocol):
    """Collects the candidates of one side: in a list in memory, or in a file."""

    def extend(self, parts: Iterable[Rows], /) -> None:
        """Add ``pair_rows`` in parts."""
        ...


def score_candidates(
    neighbours: tuple[NeighbourStore, NeighbourStore],
    numbers: tuple[NDArray[np.integer], NDArray[np.integer]],
    k: int,
    margin: MarginName,
    into: tuple[PairStore, PairStore],
) -> int:
    """Score each text with each of its k nearest neighbours by their margin (M3).

    Args:
        neighbours: the neighbours of the inputs, and the neighbours of the outputs.
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
