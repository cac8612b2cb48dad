"""Nearest neighbours among the texts that a text may be paired with (M5, M8).

The nearest sentences of a document are its own. They are left out before the k nearest are counted. Otherwise
they would take the places of all candidates, and raise the mean cosine in the denominator of the margin.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pairsmith.search.exact import Neighbours

SPARE = 4
"""Neighbours that are searched beyond the k-th. A text that loses more than these is searched again."""

Forbidden = Callable[[Tensor, Tensor], Tensor]
"""Says of p pairs whether they are forbidden, ``(p,)`` bool.

A pair is the number of a text and the id of its neighbour, both ``(p,)`` int64.
"""

FindMore = Callable[[Tensor, int], Neighbours]
"""Finds a number of nearest neighbours of r texts: from numbers ``(r,)`` int64 to ``(r, count)``."""


def permitted(
    neighbours: Neighbours, k: int, forbidden: Forbidden, find_more: FindMore, others: int
) -> tuple[Neighbours, int]:
    """The k nearest neighbours of each text that are not forbidden (M5), and how many were left out.

    Args:
        neighbours: the nearest neighbours of n texts, ``(n, m)``, with m above k, as some will be left out.
        k: number of neighbours to keep.
        forbidden: see ``Forbidden``.
        find_more: called for the texts with fewer than k permitted neighbours, for four times as many
            neighbours each time, until all have k or all other texts were tried.
        others: the number of texts on the other side.

    Returns:
        the neighbours, ``(n, min(k, others))``, and the number of those left out that are nearer than the
        k-th one kept. If too few texts are permitted, the last entries have the id -1 and the similarity
        minus infinity.
    """
    ids = torch.full((len(neighbours.ids), min(k, others)), -1)
    similarities = torch.full(ids.shape, -torch.inf)
    rows, left_out = torch.arange(len(ids)), 0
    while True:
        width = neighbours.ids.shape[1]
        texts = rows[:, None].expand_as(neighbours.ids)
        allowed = ~forbidden(texts.flatten(), neighbours.ids.flatten()).view_as(neighbours.ids)
        rank = allowed.cumsum(dim=1)
        kept = allowed & (rank <= ids.shape[1])
        ids[texts[kept], rank[kept] - 1] = neighbours.ids[kept]
        similarities[texts[kept], rank[kept] - 1] = neighbours.similarities[kept]
        short = rank[:, -1] < ids.shape[1]
        done = torch.ones_like(short) if width >= others else ~short
        left_out += int((~allowed & (rank < ids.shape[1]))[done].sum())
        if bool(done.all()):
            return Neighbours(ids, similarities), left_out
        rows = rows[short]
        neighbours = find_more(rows, min(4 * width, others))
