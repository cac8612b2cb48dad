"""Which texts may be paired, and the nearest neighbours among these (M5).

A model would learn to copy from pairs of which one text stands in the other word for word, and from questions
that hold their answer.
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
"""Pairs whose texts are held in memory at once."""


def verbatim(input_: str, output: str) -> str:
    """The reason to reject a pair, if one of its texts contains the other word for word (M5); else empty."""
    if stands_in(output, input_):
        return "the output occurs word for word in the input"
    return "the input occurs word for word in the output" if stands_in(input_, output) else ""


def answer_in_question(question: str, answer: str) -> str:
    """Why a question that holds its answer, in whatever case, makes no pair (M5); empty where it does not."""
    return "the answer occurs in the question" if stands_in(answer.casefold(), question.casefold()) else ""


def unpairable(input_: str, output: str, answer: str | None) -> str:
    """Why an input and an output make no pair (M5); ``answer`` is the output's, if it is an answer."""
    return verbatim(input_, output) if answer is None else answer_in_question(input_, answer)


class PairedTexts(Protocol):
    """The inputs or the outputs that are paired, n texts numbered from 0, in memory or in files."""

    def __len__(self) -> int:
        """How many texts there are."""
        ...

    def texts(self, numbers: Tensor) -> Sequence[tuple[str, str | None]]:
        """The texts with these numbers, ``(p,)`` int64, each with the answer if it is one in its passage."""
        ...

    def vectors(self, numbers: Tensor | None = None) -> Tensor:
        """The vectors, ``(p, d)``, of length 1, of texts with distinct, ascending numbers; None: of all."""
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
    """The k nearest that texts may be paired with (M5), and how many nearer ones were left out.

    Args:
        neighbours: the nearest of some consecutive texts of ``own``, ``(n, m)``, by their numbers in
            ``other``. A text of which these do not leave k is searched again, among all of ``other``.
        inputs: whether ``own`` are the inputs; else they are the outputs.
        first: the number of the first of these texts.

    The result is ``(n, k)``, as that of ``search.permitted.permitted``.
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
