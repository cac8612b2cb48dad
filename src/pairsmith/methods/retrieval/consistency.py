"""Filters of generated queries: keep queries that find their own chunk, and leave out near-copies.

Round-trip consistency is the filter of Promptagator (Dai et al. 2023, arXiv:2209.11755): a query is kept if
the chunk that it was written for is among the nearest chunks of the corpus.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.search.exact import nearest, products_with

QUERIES_AT_ONCE = 1_024
"""Number of queries, the rows of the similarity matrix, that are compared at once."""
NEIGHBOURS = 2**22
"""Number of neighbours that are held in memory at once."""
KEPT_AT_ONCE = 16_384
"""Number of earlier kept queries, the columns of the similarity matrix, that are compared at once."""


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """The rank of each of n queries' own chunk, and its cosine with the query.

    Attributes:
        ranks: ``(n,)`` int64, from 1 for the nearest chunk; ``within + 1`` if the own chunk is not among the
            nearest ones. Other chunks with the same similarity count as nearer, as a query that is equally
            far from all chunks leads nowhere.
        similarities: ``(n,)`` float32, the cosine of the query and its own chunk, from -1 to 1.
    """

    ranks: NDArray[np.int64]
    similarities: Float32s


def own_places(queries: Tensor, corpus: Tensor, own: NDArray[np.int64], within: int) -> OwnPlaces:
    """The rank and the cosine of each query's own chunk.

    Args:
        queries: ``(n, d)`` float32, vectors of length 1.
        corpus: ``(m, d)``, likewise; may be mapped from a file.
        own: ``(n,)``, the number of each query's own chunk in the corpus.
        within: number of nearest chunks that are compared, 1 or more.
    """
    chunks = torch.from_numpy(own)[:, None]
    similarities = products_with(queries, corpus, chunks)
    ranks = torch.empty(len(queries), dtype=torch.int64)
    at_once = max(1, NEIGHBOURS // min(within + 1, len(corpus)))
    for start in range(0, len(queries), at_once):
        rows = slice(start, start + at_once)
        neighbours = nearest(queries[rows], corpus, within + 1)
        nearer = ((neighbours.similarities >= similarities[rows]) & (neighbours.ids != chunks[rows])).sum(
            dim=1
        )
        ranks[rows] = (1 + nearer).clamp(max=within + 1)
    return OwnPlaces(ranks.numpy(), similarities[:, 0].numpy())


def closest(queries: Tensor, others: Tensor) -> Float32s:
    """The cosine of each query with its nearest other vector, ``(n,)`` float32.

    ``queries`` are ``(n, d)``, ``others`` ``(m, d)``.
    """
    cosines: Float32s = nearest(queries, others, 1).similarities[:, 0].numpy()
    return cosines


def near_copies(
    vectors: Tensor, rows: NDArray[np.int64], names: NDArray[np.uint64], threshold: float
) -> NDArray[np.int64]:
    """For each query, the number of an earlier kept query of which it is a copy; -1 if it is kept: ``(n,)``.

    A query is a copy of another if both have the same name, or a cosine of at least ``threshold``. Queries
    are compared in their order.

    Args:
        vectors: ``(m, d)`` float32, of length 1; may be mapped from a file.
        rows: ``(n,)``, the vector of each query.
        names: ``(n,)``, equal for queries whose texts count as the same.
        threshold: above 0; with 1, cosines do not count.
    """
    originals = np.full(len(rows), -1, np.int64)
    kept: list[int] = []
    named: dict[int, int] = {}
    for start in range(0, len(rows), QUERIES_AT_ONCE):
        block = slice(start, min(start + QUERIES_AT_ONCE, len(rows)))
        of_block = vectors[torch.from_numpy(rows[block])]
        if threshold < 1:
            for part in map(np.array, in_batches(kept, KEPT_AT_ONCE)):
                close = of_block @ vectors[torch.from_numpy(rows[part])].T >= threshold
                new = close.any(dim=1).numpy() & (originals[block] < 0)
                originals[block][new] = part[close.byte().argmax(dim=1).numpy()[new]]
            beside = (of_block @ of_block.T >= threshold).numpy()
        for place in range(block.start, block.stop):
            at = place - start
            originals[place] = named.get(int(names[place]), originals[place])
            if originals[place] < 0 and threshold < 1:
                close_here = np.flatnonzero(beside[at, :at] & (originals[start:place] < 0))
                originals[place] = start + close_here[0] if len(close_here) else -1
            if originals[place] < 0:
                kept.append(place)
                named[int(names[place])] = place
    return originals
