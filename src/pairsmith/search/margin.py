"""Margin scores (M3), and the greedy choice of pairs in which each text occurs at most once.

A cosine says little by itself, as some texts are near to every other text. The margin compares the cosine of
a pair with the cosines of both texts with their nearest neighbours.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.search.exact import Neighbours
from pairsmith.search.names import MarginName

PAIRS_AT_ONCE = 2**16
"""Number of pairs whose texts are looked up at once in the greedy choice."""


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """Candidate pairs of an x and a y, with their margins (M3)."""

    x: Tensor  # (pairs,) int64, indices
    y: Tensor  # (pairs,) int64
    similarity: Tensor  # (pairs,) float32, cosines
    margin: Tensor  # (pairs,) float32

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.x)

    def __getitem__(self, which: Tensor | slice) -> "ScoredCandidates":
        """The pairs with these indices, or in this slice."""
        return ScoredCandidates(*(getattr(self, name)[which] for name in ScoredCandidates.__slots__))


def margin(similarity: Tensor, of_x: Tensor, of_y: Tensor, kind: MarginName = "ratio") -> Tensor:
    """The margin score of pairs (M3), in the shape and the floating dtype of their cosines.

    Args:
        similarity: the pairs' cosines, of any shape; floating, float32 in a search.
        of_x: mean cosine of each pair's x with N_x, its k nearest y; its shape broadcasts.
        of_y: mean cosine of each pair's y with N_y, its k nearest x; likewise.
        kind: ``ratio`` (M3) divides the cosine by the mean of ``of_x`` and ``of_y``, and is NaN where this
            mean is not above 0, as the ratio would be meaningless. ``distance`` subtracts the mean.
            ``absolute`` is the cosine itself.
    """
    mean = (of_x + of_y) / 2
    match kind:  # mypy reports a name without a case
        case "ratio":
            return torch.where(mean > 0, similarity / mean, torch.nan)
        case "distance":
            return similarity - mean
        case "absolute":
            return similarity.clone()


def mean_cosine(neighbours: Neighbours) -> Tensor:
    """The mean cosine of each of n texts with its neighbours (the sums of M3), ``(n,)`` float32.

    It is NaN for a text without neighbours, whose ids are all -1.
    """
    valid = neighbours.ids >= 0
    return neighbours.similarities.where(valid, 0).sum(dim=1) / valid.sum(dim=1)


def with_neighbours(
    nearest: Neighbours, means: Tensor, means_of_others: Tensor, kind: MarginName
) -> ScoredCandidates:
    """The candidates of n texts: each text, as ``x``, with each of its neighbours, as ``y`` (M3).

    ``nearest`` is ``(n, k)``; an id of -1 stands for no neighbour. ``means``, ``(n,)`` float32, are the mean
    cosines of the texts (``mean_cosine``); ``means_of_others``, ``(m,)`` float32, are those of the other
    side. Pairs whose margin of this kind is NaN are left out.
    """
    margins = margin(nearest.similarities, means[:, None], means_of_others[nearest.ids.clamp(min=0)], kind)
    numbers = torch.arange(len(nearest.ids))[:, None].expand_as(nearest.ids)
    pairs = ScoredCandidates(
        *(tensor.flatten() for tensor in (numbers, nearest.ids, nearest.similarities, margins))
    )
    return pairs[(pairs.y >= 0) & ~pairs.margin.isnan()]


def greedy_matching(x: Tensor, y: Tensor) -> Tensor:
    """The indices, rising, of the pairs that are taken if each text may be in one pair only.

    Pairs are gone through in order; a pair is taken unless one of its texts is in a pair that was taken
    before. ``x`` and ``y``, ``(pairs,)`` int64, are the numbers of the pairs' texts, from 0 on.
    """
    used = UsedTexts(*(int(side.max()) + 1 if len(side) else 0 for side in (x, y)))
    return torch.from_numpy(used.add(x.numpy(), y.numpy()))


class UsedTexts:
    """Which texts are in a pair that was taken, one byte for each; ``x`` and ``y`` texts on the two sides."""

    def __init__(self, x: int, y: int) -> None:
        self._x, self._y = bytearray(x), bytearray(y)

    def add(self, x: NDArray[np.integer], y: NDArray[np.integer]) -> NDArray[np.int64]:
        """Go through pairs in order, and take each whose two texts are unused; returns the indices, rising.

        ``x`` and ``y``, ``(pairs,)``, are the numbers of the pairs' texts, from 0 on.
        """
        # Single look-ups are ten times as fast in bytes as in an array; whole arrays are looked up first.
        of_x, of_y = self._x, self._y
        used_x, used_y = (np.frombuffer(side, np.uint8) for side in (of_x, of_y))
        parts = [np.zeros(0, np.int64)]
        for start in range(0, len(x), PAIRS_AT_ONCE):
            batch_x, batch_y = x[start : start + PAIRS_AT_ONCE], y[start : start + PAIRS_AT_ONCE]
            free = np.flatnonzero((used_x[batch_x] | used_y[batch_y]) == 0)
            places: list[int] = []
            for place, one, other in zip(
                free.tolist(), batch_x[free].tolist(), batch_y[free].tolist(), strict=True
            ):
                if not (of_x[one] or of_y[other]):
                    of_x[one] = of_y[other] = True
                    places.append(place)
            parts.append(np.array(places, np.int64) + start)
        return np.concatenate(parts)
