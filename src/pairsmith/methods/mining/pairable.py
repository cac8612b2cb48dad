"""Which texts may be paired, and the nearest neighbours of a text among those (M5).

If one text of a pair contains the other verbatim, or if a question contains its answer, a model that learns
from the pair would learn to copy. Such pairs are not mined.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pairsmith.data.text.spans import stands_in
from pairsmith.search.exact import Neighbours, nearest
from pairsmith.search.permitted import permitted

TEXTS_AT_ONCE = 2**14
"""Number of pairs whose texts are held in memory at once."""


def verbatim(input_: str, output: str) -> str:
    """The reason to reject a pair in which one text contains the other verbatim (M5); else empty."""
    if stands_in(output, input_):
        return "the output occurs word for word in the input"
    return "the input occurs word for word in the output" if stands_in(input_, output) else ""


def unpairable(input_: str, output: str, answer: str | None) -> str:
    """The reason to reject a pair (M5), else empty; ``answer`` is the output's, if it is an answer.

    A question may not contain its answer, in any letter case; of two other texts see ``verbatim``.
    """
    if answer is None:
        return verbatim(input_, output)
    return "the answer occurs in the question" if stands_in(answer.casefold(), input_.casefold()) else ""


class PairedTexts(Protocol):
    """The inputs or the outputs that are paired, n texts numbered from 0, in memory or in files."""

    def __len__(self) -> int:
        """How many texts there are."""
        ...

    def texts(self, numbers: Tensor) -> Sequence[tuple[str, str | None]]:
        """The texts with these numbers, ``(p,)`` int64, each with its answer; None if it is no answer."""
        ...

    def vectors(self, numbers: Tensor | None = None) -> Tensor:
        """The vectors ``(p, d)``, of length 1, of the texts with these distinct, ascending numbers.

        Without ``numbers``, those of all n texts.
        """
        ...


@dataclass(frozen=True, slots=True)
class TextsInMemory:
    """Texts in memory: each with the answer or None, and their vectors, ``(n, d)`` float32, of length 1."""

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


def pairable_neighbours(
    neighbours: Neighbours, k: int, own: PairedTexts, other: PairedTexts, *, inputs: bool, first: int = 0
) -> tuple[Neighbours, int]:
    """The k nearest neighbours that each text may be paired with (M5), and how many were left out.

    Args:
        neighbours: the nearest neighbours, ``(n, m)``, of n consecutive texts of ``own``; ids are numbers in
            ``other``. If fewer than k neighbours of a text may be paired with it, the text is searched again
            among all of ``other``.
        k: number of neighbours to keep of each text.
        own: the texts whose neighbours these are.
        other: the texts among which the neighbours lie.
        inputs: whether ``own`` are the inputs; else they are the outputs.
        first: the number in ``own`` of the first of the n texts.

    Returns:
        the neighbours that are kept, ``(n, k)``, as ``search.permitted.permitted`` returns them, and the
        number of those left out that are nearer than the k-th one kept.
    """

    def forbidden(rows: Tensor, ids: Tensor) -> Tensor:
        unfit = torch.empty(len(rows), dtype=torch.bool)
        for block in torch.split(torch.arange(len(rows)), TEXTS_AT_ONCE):
            sides = own.texts(rows[block] + first), other.texts(ids[block])
            pairs = zip(*(sides if inputs else reversed(sides)), strict=True)
            unfit[block] = torch.tensor([bool(unpairable(x, y, answer)) for (x, _), (y, answer) in pairs])
        return unfit

    def find_more(rows: Tensor, count: int) -> Neighbours:
        return nearest(own.vectors(rows + first), other.vectors(), count)

    return permitted(neighbours, k, forbidden, find_more, len(other))
