"""Margin scores (M3) and the rules that take pairs by them.

A similarity says little by itself: some texts are near to everything. The margin holds it against the
similarities of both texts to their nearest neighbours.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pairsmith.encoders.search import Neighbours

MarginName = Literal["ratio", "distance", "absolute"]
RetrievalName = Literal["max", "intersection", "forward", "backward"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of an x and a y, those of the largest margin first.

    Attributes:
        x: ``(pairs,)`` int64, number of the x, ``y`` that of the y.
        similarity: ``(pairs,)`` float32, their cosine.
        margin: ``(pairs,)`` float32.
    """

    x: Tensor
    y: Tensor
    similarity: Tensor
    margin: Tensor

    def __len__(self) -> int:
        """How many there are."""
        return len(self.x)


def margin(similarity: Tensor, of_x: Tensor, of_y: Tensor, kind: MarginName = "ratio") -> Tensor:
    """The margin score of pairs (M3).

    Args:
        similarity: cosines, of any shape.
        of_x: mean cosine of each pair's x with its k nearest y, of a shape that broadcasts; ``of_y`` that of
            its y with its k nearest x.
        kind: ``ratio`` divides by the mean of the two, which is M3; ``distance`` subtracts it;
            ``absolute`` leaves the cosine.

    Returns:
        margins; with ``ratio`` NaN where the mean of the two is not above 0, as neighbours that point away
        are no measure.
    """
    if kind == "absolute":
        return similarity.clone()
    usual = (of_x + of_y) / 2
    if kind == "distance":
        return similarity - usual
    return torch.where(usual > 0, similarity / usual, torch.nan)


def pairs_by_margin(
    of_x: Neighbours, of_y: Neighbours, kind: MarginName = "ratio", retrieval: RetrievalName = "max"
) -> Pairs:
    """Take pairs from both sides' nearest neighbours.

    Args:
        of_x: the nearest y of each x, and ``of_y`` the nearest x of each y, as ``two_way_search`` finds them.
        kind: see ``margin``.
        retrieval: ``forward`` gives each x the y of the largest margin among its nearest; ``backward`` each y
            an x; ``intersection`` leaves what both would; ``max`` goes through what either would from the
            largest margin on, and takes a pair if none of its texts has been taken.

    Returns:
        pairs of the largest margin first, equal ones in the order of their numbers. Margins that are NaN take
        no part.
    """
    mean_x, mean_y = of_x.similarities.mean(dim=1), of_y.similarities.mean(dim=1)
    forward = _best(of_x, mean_x, mean_y, kind)
    backward = _best(of_y, mean_y, mean_x, kind)
    backward = Pairs(backward.y, backward.x, backward.similarity, backward.margin)
    if retrieval == "forward":
        return _ordered(forward)
    if retrieval == "backward":
        return _ordered(backward)
    if retrieval == "intersection":
        size = len(of_y.ids)
        both = torch.isin(forward.x * size + forward.y, backward.x * size + backward.y)
        return _ordered(_taken(forward, both))
    either = (torch.cat([getattr(p, name) for p in (forward, backward)]) for name in Pairs.__slots__)
    return _each_once(_ordered(Pairs(*either)))


def _best(near: Neighbours, means: Tensor, means_of_others: Tensor, kind: MarginName) -> Pairs:
    """For each vector its neighbour of the largest margin, the nearest of several; those that have one."""
    margins = margin(near.similarities, means[:, None], means_of_others[near.ids], kind)
    place = margins.nan_to_num(nan=-torch.inf).max(dim=1, keepdim=True).indices
    chosen = (t.gather(1, place).squeeze(1) for t in (near.ids, near.similarities, margins))
    pairs = Pairs(torch.arange(len(near.ids)), *chosen)
    return _taken(pairs, ~pairs.margin.isnan())


def _ordered(pairs: Pairs) -> Pairs:
    """By margin, then by the numbers of x and y."""
    order = torch.arange(len(pairs))
    for key, descending in ((pairs.y, False), (pairs.x, False), (pairs.margin, True)):
        order = order[key[order].sort(stable=True, descending=descending).indices]
    return _taken(pairs, order)


def _each_once(pairs: Pairs) -> Pairs:
    """Those whose texts stand in none before."""
    seen_x: set[int] = set()
    seen_y: set[int] = set()
    kept: list[int] = []
    for place, (x, y) in enumerate(zip(pairs.x.tolist(), pairs.y.tolist(), strict=True)):
        if x not in seen_x and y not in seen_y:
            seen_x.add(x)
            seen_y.add(y)
            kept.append(place)
    return _taken(pairs, torch.tensor(kept, dtype=torch.int64))


def _taken(pairs: Pairs, which: Tensor) -> Pairs:
    return Pairs(*(getattr(pairs, name)[which] for name in Pairs.__slots__))
