"""Nearest neighbours among the texts that a text may be paired with (M5, M8).

A document's nearest sentences are its own. They are left out before the k nearest are counted: otherwise they
would take the places of all candidates, and raise the mean cosine that a margin is measured against.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pairsmith.search.exact import Neighbours

SPARE = 4
"""Neighbours looked up beyond k. A text of which more than these are left out is searched again."""

Forbidden = Callable[[Tensor, Tensor], Tensor]
"""Tells which of p texts may not be paired with their neighbours; numbers ``(p,)`` int64 to ``(p,)`` bool."""

FindMore = Callable[[Tensor, int], Neighbours]
"""Finds so many nearest neighbours of r texts, by number, ``(r,)`` int64: ``(r, count)``."""


def permitted(
    neighbours: Neighbours, k: int, forbidden: Forbidden, find_more: FindMore, others: int
) -> tuple[Neighbours, int]:
    """The k nearest of each text that are not forbidden (M5), and how many nearer ones were left out.

    Args:
        neighbours: the nearest of n texts, ``(n, m)`` with m above k, as some will be left out.
        forbidden: see ``Forbidden``.
        find_more: called for texts of which these do not leave k, for four times as many, until they do.
        others: the number of texts on the other side.

    The result is ``(n, k)``, or as many columns as there are other texts. Where too few texts are permitted,
    the last places have the id -1 and the similarity minus infinity.
    """
    ids = torch.full((len(neighbours.ids), min(k, others)), -1)
    similarities = torch.full(ids.shape, -torch.inf)
    rows, left_out = torch.arange(len(ids)), 0
    while True:
        width = neighbours.ids.shape[1]
        whose = rows[:, None].expand_as(neighbours.ids)
        good = ~forbidden(whose.flatten(), neighbours.ids.flatten()).view_as(neighbours.ids)
        rank = good.cumsum(dim=1)
        kept = good & (rank <= ids.shape[1])
        ids[whose[kept], rank[kept] - 1] = neighbours.ids[kept]
        similarities[whose[kept], rank[kept] - 1] = neighbours.similarities[kept]
        short = rank[:, -1] < ids.shape[1]
        done = torch.ones_like(short) if width >= others else ~short
        left_out += int((~good & (rank < ids.shape[1]))[done].sum())
        if bool(done.all()):
            return Neighbours(ids, similarities), left_out
        rows = rows[short]
        neighbours = find_more(rows, min(4 * width, others))
