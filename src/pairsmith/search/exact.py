"""Exact nearest neighbours of two sets of vectors in each other, each product computed once.

All products are computed in a short number format, and of every **group** of neighbouring vectors only the
largest product is kept. Apart from rounding, the k nearest of a vector lie in the k groups with the largest
products, so that only a few groups have to be computed in float32. The rounding error is bounded: where it
could hide a neighbour, more groups are computed, and where those kept do not suffice, all. Where k groups are
half of all or more, nothing would be gained, and all products are computed in float32.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.core.model_files import products_in_float32
from pairsmith.models.memory import free_memory
from pairsmith.search import shortlist
from pairsmith.search.shortlist import (
    Shortlist,
    groups_of,
    multiplies_int8,
    short_format,
    shortlists,
    zero_padded,
)

FULL_SEARCH_FACTOR = 2
"""All products are computed in float32 where this many times k is at least the number of groups."""
FULL_ROWS = 256
"""Vectors whose similarities to all others are computed at once in float32."""
VECTORS_AT_ONCE = 4096
"""Largest number of vectors that are multiplied with a group at once."""
LEAST_VECTORS = 16
"""Smallest number of vectors in a product; fewer are padded with zeros."""
PAIR_BYTES = 64
"""Bytes needed for each vector and each of its groups while they are multiplied."""
HIT_BYTES = 128
"""Bytes needed for each similarity while the neighbours found are sorted."""
CACHE_BYTES = 2**24
"""Bytes of similarities that fit the processor's caches."""
ON_GPU = 16
"""A GPU computes so many times as much at once as fits a processor's caches."""
SPARE = 4
"""Neighbours kept beyond the k wanted until the end, as rounding may change the order of near ties."""
ROUNDING = 2e-6
"""Largest difference of two float32 products of the same vectors, which depend on the number of threads."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest neighbours of each of n vectors, nearest first, ties in the order of their ids."""

    ids: Tensor  # (n, k) int64
    similarities: Tensor  # (n, k) float32


def merged(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest neighbours of each of n vectors, from searches in several parts of the others.

    Ids are distinct over all parts. There are fewer than k where the parts hold fewer in all.
    """
    ids, order = torch.cat([part.ids for part in parts], dim=1).sort(dim=1)
    similarities = torch.cat([part.similarities for part in parts], dim=1).gather(1, order)
    values, places = similarities.sort(dim=1, descending=True, stable=True)
    return Neighbours(ids.gather(1, places)[:, :k], values[:, :k])


def two_way_search(
    x: Tensor,
    y: Tensor,
    k: int,
    *,
    memory: int = 2**30,
    short: torch.dtype | None = None,
    device: torch.device | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Neighbours, Neighbours]:
    """The k nearest of each x among y, and of each y among x, by inner product; exact in float32.

    The result does not depend on the number of threads or on which x are searched together, unless more than
    ``SPARE`` vectors are almost as near as the k-th: then any of these may be returned in its place.

    Args:
        x: ``(n, d)`` float32 or float16, vectors of length 1, finite; may be mapped from a file.
        y: ``(m, d)``, likewise.
        k: at least 1; where a side has fewer vectors, all of them are found.
        memory: bytes of similarities that may be held at once; a guide. Besides x and y, about 200 bytes per
            vector and 30 per neighbour are needed on top.
        short: format in which all products are computed once; None: the one of ``short_format``. It does not
            change the result.
        device: where these are computed; None: the processor. The few products in float32 are computed there
            too if it is a GPU with room for x and y, else by the processor.
        advance: called with the number of rows of x that were multiplied with all of y.
    """
    device, short = _checked(x, y, k, short, device)
    all_of_y, all_of_x = (FULL_SEARCH_FACTOR * k >= groups_of(len(side)) for side in (y, x))
    list_x = list_y = None
    with products_in_float32():  # the error bound covers rounded factors, not rounded sums
        if not (all_of_x and all_of_y):
            list_x, list_y = shortlists(x, y, k, memory=memory, short=short, device=device, advance=advance)
        x, y = _moved_if_room(x, y, device)
        nearest_to_x = _nearest(x, y, min(k, len(y)), None if all_of_y else list_x, memory)
        if list_x is None:
            advance(len(x))
        return nearest_to_x, _nearest(y, x, min(k, len(x)), None if all_of_x else list_y, memory)


def one_way_search(
    x: Tensor,
    y: Tensor,
    k: int,
    *,
    memory: int = 2**30,
    short: torch.dtype | None = None,
    device: torch.device | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Neighbours:
    """The k nearest of each x among y, as ``two_way_search`` finds them, with the same arguments.

    Nothing is kept for each y, so that many more y than x need little memory besides their vectors.
    """
    device, short = _checked(x, y, k, short, device)
    promising = None
    with products_in_float32():
        if FULL_SEARCH_FACTOR * k < groups_of(len(y)):
            promising, _ = shortlists(
                x, y, k, memory=memory, short=short, device=device, advance=advance, one_way=True
            )
        else:
            advance(len(x))
        x, y = _moved_if_room(x, y, device)
        return _nearest(x, y, min(k, len(y)), promising, memory)


def _moved_if_room(x: Tensor, y: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Both sides, on a GPU if it has room for them."""
    room = device.type == "cuda" and 16 * (x.numel() + y.numel()) < free_memory(device)
    return (x.to(device), y.to(device)) if room else (x, y)


def _checked(
    x: Tensor, y: Tensor, k: int, short: torch.dtype | None, device: torch.device | None
) -> tuple[torch.device, torch.dtype]:
    """The device and the number format of a search, filled in; raises ``ValueError`` for wrong shapes."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y) or k < 1:
        raise ValueError(f"expected (n, d), (m, d) and k >= 1, got {tuple(x.shape)}, {tuple(y.shape)}, {k}")
    device = device or torch.device("cpu")
    short = short or short_format(device, x, y)
    if short == torch.int8 and not multiplies_int8(device, x.shape[1]):
        short = torch.float32
    return device, short


def nearest(x: Tensor, y: Tensor, k: int) -> Neighbours:
    """The k nearest of each x among y, as ``two_way_search`` finds them; all products are in float32."""
    return _nearest(x, y, min(k, len(y)), None, 0)


def _nearest(vectors: Tensor, others: Tensor, k: int, promising: Shortlist | None, memory: int) -> Neighbours:
    """The k nearest in float32, block of vectors by block of vectors:

    1. Each vector is multiplied with its k most promising groups. Its k-th largest product is a lower bound
       of the k-th similarity.
    2. It is multiplied with every other group of its shortlist whose upper bound reaches that.
    3. Where a group outside the shortlist could still reach it, or where step 1 is left out because the
       bounds cannot tell groups apart (many equal vectors, say), all of its products are computed.

    Without a shortlist all products are computed.
    """
    device = vectors.device
    neighbours = _Candidates(len(vectors), k, min(k + SPARE, len(others)), device)
    if promising is None:
        _compute_all(vectors, others, torch.arange(len(vectors), device=device), neighbours)
        return _ranked(vectors, others, neighbours, k)
    promising = promising.on(device)
    height = max(LEAST_VECTORS, memory // 16 // (PAIR_BYTES * promising.groups.shape[1]))

    def compute(top: int, selected: Tensor, groups: Tensor, floor: Tensor) -> None:
        if device.type == "cpu":
            _compute(vectors, others, top, selected, groups, floor, neighbours, memory)
        else:
            _compute_gathered(vectors, others, top, selected, groups, neighbours)

    for top in range(0, len(vectors), height):
        rows = slice(top, top + height)
        groups, (bounds, outside) = promising.groups[rows], promising.bounds(rows)
        selected = torch.zeros_like(groups, dtype=torch.bool)
        selected[outside < bounds[:, 0], :k] = True
        compute(top, selected, groups, promising.floor(rows, k))
        kth_similarity = neighbours.kth_similarity(rows)
        has_k = kth_similarity > -torch.inf
        selected = ~selected & has_k[:, None] & (bounds >= kth_similarity[:, None])
        compute(top, selected, groups, kth_similarity)
        unproved = (~has_k | (outside >= neighbours.kth_similarity(rows))).nonzero().squeeze(1)
        if len(unproved):
            _compute_all(vectors, others, unproved + top, neighbours)
    return _ranked(vectors, others, neighbours, k)


def _ranked(vectors: Tensor, others: Tensor, neighbours: "_Candidates", k: int) -> Neighbours:
    """The k nearest of those found, by sums that do not depend on the number of threads."""
    ids = torch.empty(len(vectors), k, dtype=torch.int64, device=vectors.device)
    similarities = torch.empty(len(vectors), k, device=vectors.device)
    # Neighbours beyond the k-th that are too close to it to be left out.
    is_close = (neighbours.values[:, k:] >= neighbours.kth_similarity()[:, None]).any(dim=1)
    for in_part, kept in ((~is_close, k), (is_close, neighbours.ids.shape[1])):
        together = max(16, _at_once(vectors.device) // (64 * kept * vectors.shape[1]))
        for rows in torch.split(in_part.nonzero().squeeze(1), together):
            candidates, valid = neighbours.ids[rows, :kept], neighbours.values[rows, :kept] > -torch.inf
            sums = products_with(vectors[rows], others, candidates.where(valid, 0)).where(valid, -torch.inf)
            similarities[rows], ids[rows] = _ordered(sums, candidates, k)
    return Neighbours(ids.cpu(), similarities.cpu())


def _at_once(device: torch.device) -> int:
    """Bytes of similarities, or of vectors copied for them, that are worth computing at once."""
    return CACHE_BYTES if device.type == "cpu" else ON_GPU * CACHE_BYTES


def _ordered(values: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, largest first, and their ids; ties in the order of the ids."""
    largest, order = values.sort(dim=1, descending=True)
    ordered = ids.gather(1, order)
    rows = (largest[:, 1:] == largest[:, :-1]).any(dim=1).nonzero().squeeze(1)
    if len(rows):
        ordered[rows], order = ids[rows].sort(dim=1)
        _, places = values[rows].gather(1, order).sort(dim=1, descending=True, stable=True)
        ordered[rows] = ordered[rows].gather(1, places)
    return largest[:, :k], ordered[:, :k]


def products_with(vectors: Tensor, others: Tensor, ids: Tensor) -> Tensor:
    """Products of n vectors with c others each, ``(n, c)``; float64 sums, whose differences float32 hides."""
    candidates = others.index_select(0, ids.flatten()).view(*ids.shape, others.shape[1])
    return torch.einsum("nd,ncd->nc", vectors.double(), candidates.double()).float()


def _compute_all(vectors: Tensor, others: Tensor, which: Tensor, neighbours: "_Candidates") -> None:
    """Multiply the vectors ``which`` with all others."""
    width = max(shortlist.tile_on(vectors.device)[1], _at_once(vectors.device) // (4 * FULL_ROWS))
    for rows in torch.split(which, FULL_ROWS):
        neighbours.clear(rows)
        for left in range(0, len(others), width):
            neighbours.add_all(rows, _multiplied(vectors[rows], others[left : left + width]), left)


def _compute_gathered(
    vectors: Tensor, others: Tensor, top: int, selected: Tensor, groups: Tensor, neighbours: "_Candidates"
) -> None:
    """``_compute`` for a GPU, where copying a group for each vector costs less than many small products.

    All products of a group are kept, whatever the floor.
    """
    by_group = zero_padded(others, shortlist.GROUP * groups_of(len(others))).view(
        -1, shortlist.GROUP, others.shape[1]
    )
    together = max(1, _at_once(vectors.device) // by_group[0].nbytes)
    members = torch.arange(shortlist.GROUP, device=vectors.device)
    for place in range(groups.shape[1]):
        for rows in torch.split(selected[:, place].nonzero().squeeze(1), together):
            numbers = groups[rows, place].long()
            products = torch.bmm(by_group[numbers].float(), vectors[rows + top, :, None].float()).squeeze(2)
            ids = numbers[:, None] * shortlist.GROUP + members
            neighbours.add_all(rows + top, products.masked_fill_(ids >= len(others), -torch.inf), ids[:, :1])


def _compute(
    vectors: Tensor,
    others: Tensor,
    top: int,
    selected: Tensor,
    groups: Tensor,
    floor: Tensor,
    neighbours: "_Candidates",
    memory: int,
) -> None:
    """Multiply the vectors from ``top`` on with some groups, and keep products not below their floor.

    ``selected`` says which of ``groups`` each vector is multiplied with, both ``(rows, kept)``;
    ``floor`` is ``(rows,)``.
    """
    rows, places = selected.nonzero(as_tuple=True)
    sorted_groups, order = groups[rows, places].sort(stable=True)
    most_hits, count = memory // 16 // HIT_BYTES, 0
    hits: list[tuple[Tensor, Tensor, Tensor]] = []
    for group, rows_of_group in _runs(sorted_groups, rows[order]):
        first = group * shortlist.GROUP
        members = others[first : first + shortlist.GROUP]
        for batch in torch.split(rows_of_group, VECTORS_AT_ONCE):
            products = _multiplied(vectors.index_select(0, batch + top), members)
            row, column = (products >= floor.index_select(0, batch)[:, None]).nonzero(as_tuple=True)
            hits.append((batch[row] + top, column + first, products[row, column]))
            count += len(row)
            if count > most_hits:
                neighbours.add(*map(torch.cat, zip(*hits, strict=True)))
                hits, count = [], 0
    if hits:
        neighbours.add(*map(torch.cat, zip(*hits, strict=True)))


def _multiplied(vectors: Tensor, others: Tensor) -> Tensor:
    """All products in float32, padded, as sums over few vectors round differently, which would break ties."""
    one, other = (zero_padded(side, LEAST_VECTORS).float() for side in (vectors, others))
    return (one @ other.T)[: len(vectors), : len(others)]


def _runs(keys: Tensor, values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each distinct key with its values; the keys are sorted."""
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    yield from zip(distinct.tolist(), torch.split(values, counts.tolist()), strict=True)


class _Candidates:
    """The nearest neighbours found so far, nearest first; of ties those with the smallest ids."""

    def __init__(self, count: int, k: int, kept: int, device: torch.device) -> None:
        self._k = k
        self.ids = torch.full((count, kept), torch.iinfo(torch.int64).max, device=device)
        self.values = torch.full((count, kept), -torch.inf, device=device)

    def kth_similarity(self, rows: slice = slice(None)) -> Tensor:
        """The k-th largest similarity, less what rounding may add to another, ``(rows,)``."""
        return self.values[rows, self._k - 1] - ROUNDING

    def clear(self, rows: Tensor) -> None:
        """Forget the neighbours found for ``rows``."""
        self.values[rows] = -torch.inf

    def add(self, rows: Tensor, ids: Tensor, values: Tensor) -> None:
        """Add neighbours: the vector, the id of its neighbour and their similarity, each ``(h,)``."""
        whose, kept = torch.unique(rows), self.ids.shape[1]
        known = self.values[whose] > -torch.inf
        rows = torch.cat([rows, whose[:, None].expand(-1, kept)[known]])
        ids = torch.cat([ids, self.ids[whose][known]])
        values = torch.cat([values, self.values[whose][known]])
        order = ids.argsort()  # then by similarity and by vector, with stable sorts
        order = order[values[order].argsort(descending=True, stable=True)]
        order = order[rows[order].argsort(stable=True)]
        rows, ids, values = rows[order], ids[order], values[order]
        counts = torch.unique_consecutive(rows, return_counts=True)[1]
        rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        best = rank < kept
        self.ids[rows[best], rank[best]], self.values[rows[best], rank[best]] = ids[best], values[best]

    def add_all(self, rows: Tensor, similarities: Tensor, first: int | Tensor) -> None:
        """Add similarities of ``rows``, ``(rows, width)``, to the others with ids from ``first`` on.

        ``first`` may differ by row, ``(rows, 1)``.
        """
        values, ids = _largest(similarities, self.ids.shape[1])
        ids = torch.cat([self.ids[rows], ids + first], dim=1)
        self.values[rows], places = _largest(
            torch.cat([self.values[rows], values], dim=1), self.ids.shape[1], ids
        )
        self.ids[rows] = ids.gather(1, places)


def _largest(values: Tensor, k: int, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, largest first, and their columns; all where there are fewer.

    Of ties those with the smallest ids are taken, or without ids those in the first columns.
    """
    if values.shape[1] <= k:
        return values.sort(dim=1, descending=True)
    best, places = values.topk(k + 1, dim=1)
    border = (best[:, k - 1] == best[:, k]).nonzero().squeeze(1)  # ``topk`` may have taken any of the ties
    best, places = best[:, :k], places[:, :k]
    if len(border):
        best, places = best.clone(), places.clone()
        order = None if ids is None else ids[border].argsort(dim=1)
        by_id = values[border] if order is None else values[border].gather(1, order)
        ordered, numbers = by_id.sort(dim=1, descending=True, stable=True)
        best[border] = ordered[:, :k]
        places[border] = (numbers if order is None else order.gather(1, numbers))[:, :k]
    return best, places
