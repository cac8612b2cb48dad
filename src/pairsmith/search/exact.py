"""Exact nearest neighbours of two sets of vectors in each other, each product computed once.

All products are first computed in a short number format. Consecutive vectors form **groups**, and for each
vector only its largest product with each group is kept. Apart from rounding, the k nearest neighbours of a
vector lie in the k groups with the largest products, so that only these few groups have to be computed in
float32. The rounding error is bounded: if it could hide a neighbour in another group, that group is computed
as well; if the groups that were kept do not suffice, all groups are. With k at least half the number of
groups this would save nothing, and all products are computed in float32 from the start.
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
"""All products are computed in float32 if this many times k is at least the number of groups."""
FULL_ROWS = 256
"""Number of vectors whose similarities to all others are computed at once in float32."""
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
"""On a GPU, this many times ``CACHE_BYTES`` are computed at once."""
SPARE = 4
"""Neighbours beyond the k-th that are kept until the end, as rounding may change the order of near ties."""
ROUNDING = 2e-6
"""Largest difference between float32 products of the same vectors with different numbers of threads."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest neighbours of each of n vectors, the nearest first; equally near ones by rising ids."""

    ids: Tensor  # (n, k) int64
    similarities: Tensor  # (n, k) float32


def merged(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """Merge the neighbours of n vectors that were found in disjoint parts: the k nearest of all parts.

    Ids are distinct over all parts. There are fewer than k columns if the parts have fewer in all.
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

    The result does not depend on the number of threads, nor on which x are searched together. The exception
    is a vector with more than ``SPARE`` neighbours that are almost as near as its k-th: any of these may be
    returned in the place of the k-th.

    Args:
        x: ``(n, d)`` float32 or float16, vectors of length 1, finite; may be mapped from a file.
        y: ``(m, d)``, likewise.
        k: number of neighbours, at least 1; if a side has fewer vectors, all of them are found.
        memory: approximate limit of the bytes of similarities that are held at once. On top of these and of x
            and y, about 200 bytes per vector and 30 per neighbour are needed.
        short: the number format in which all products are first computed; None: that of ``short_format``. It
            does not change the result.
        device: the device that computes the short products; None: the processor. The few products in float32
            are computed there too if it is a GPU with room for x and y, else by the processor.
        advance: called with the number of rows of x that were multiplied with all of y.

    Returns:
        the neighbours of x, ``(n, min(k, m))``, and those of y, ``(m, min(k, n))``.
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

    No neighbours of y are kept, so a y much larger than x needs little memory besides its vectors.
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
    """The device and the number format of a search, with defaults; raises ``ValueError`` for wrong shapes."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y) or k < 1:
        raise ValueError(f"expected (n, d), (m, d) and k >= 1, got {tuple(x.shape)}, {tuple(y.shape)}, {k}")
    device = device or torch.device("cpu")
    short = short or short_format(device, x, y)
    if short == torch.int8 and not multiplies_int8(device, x.shape[1]):
        short = torch.float32
    return device, short


def nearest(x: Tensor, y: Tensor, k: int) -> Neighbours:
    """The k nearest of each x among y, as ``two_way_search`` finds them, with all products in float32."""
    return _nearest(x, y, min(k, len(y)), None, 0)


def _nearest(vectors: Tensor, others: Tensor, k: int, promising: Shortlist | None, memory: int) -> Neighbours:
    """The k nearest in float32, computed for one block of vectors after another:

    1. Each vector is multiplied with its k most promising groups. Its k-th largest product is a lower bound
       of the k-th similarity.
    2. The vector is multiplied with every other group of its shortlist whose upper bound reaches this bound.
    3. All products of the vector are computed if a group outside the shortlist could still reach the bound,
       or if step 1 was left out because the upper bounds do not separate groups, as with many equal vectors.

    Without a shortlist (``promising``), all products are computed.
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
    """The k nearest of the candidates, by sums that do not depend on the number of threads."""
    ids = torch.empty(len(vectors), k, dtype=torch.int64, device=vectors.device)
    similarities = torch.empty(len(vectors), k, device=vectors.device)
    # Whether a vector has candidates beyond its k-th that are too close to the k-th to be left out.
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
    """The k largest values of each row, the largest first, and their ids; equal values by rising ids."""
    largest, order = values.sort(dim=1, descending=True)
    ordered = ids.gather(1, order)
    rows = (largest[:, 1:] == largest[:, :-1]).any(dim=1).nonzero().squeeze(1)
    if len(rows):
        ordered[rows], order = ids[rows].sort(dim=1)
        _, places = values[rows].gather(1, order).sort(dim=1, descending=True, stable=True)
        ordered[rows] = ordered[rows].gather(1, places)
    return largest[:, :k], ordered[:, :k]


def products_with(vectors: Tensor, others: Tensor, ids: Tensor) -> Tensor:
    """Inner products of n vectors with c others each, ``(n, c)`` float32, rounded from float64 sums.

    ``ids``, ``(n, c)`` int64, are the rows of ``others``. Float64 sums depend on the number of threads only
    beyond the precision of float32.
    """
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
    """Multiply the vectors from ``top`` on with selected groups, and add products to ``neighbours``.

    ``selected``, ``(rows, kept)`` bool, says with which of its ``groups``, ``(rows, kept)``, each vector is
    multiplied. Products below the vector's ``floor``, ``(rows,)``, are dropped.
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
    """All inner products in float32; few vectors are padded, as torch's sums for few rows round differently.

    Equal vectors would otherwise have different similarities.
    """
    one, other = (zero_padded(side, LEAST_VECTORS).float() for side in (vectors, others))
    return (one @ other.T)[: len(vectors), : len(others)]


def _runs(keys: Tensor, values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each distinct key with its values; the keys are sorted."""
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    yield from zip(distinct.tolist(), torch.split(values, counts.tolist()), strict=True)


class _Candidates:
    """The nearest neighbours that were found so far, the nearest first; equally near ones by rising ids."""

    def __init__(self, count: int, k: int, kept: int, device: torch.device) -> None:
        self._k = k
        self.ids = torch.full((count, kept), torch.iinfo(torch.int64).max, device=device)
        self.values = torch.full((count, kept), -torch.inf, device=device)

    def kth_similarity(self, rows: slice = slice(None)) -> Tensor:
        """The k-th largest similarity minus the largest rounding error, ``(rows,)``: a lower bound."""
        return self.values[rows, self._k - 1] - ROUNDING

    def clear(self, rows: Tensor) -> None:
        """Remove the neighbours of the vectors ``rows``."""
        self.values[rows] = -torch.inf

    def add(self, rows: Tensor, ids: Tensor, values: Tensor) -> None:
        """Add h neighbours: the vector, the id of its neighbour and their similarity, each ``(h,)``."""
        vectors, kept = torch.unique(rows), self.ids.shape[1]
        filled = self.values[vectors] > -torch.inf
        rows = torch.cat([rows, vectors[:, None].expand(-1, kept)[filled]])
        ids = torch.cat([ids, self.ids[vectors][filled]])
        values = torch.cat([values, self.values[vectors][filled]])
        order = ids.argsort()  # then by similarity and by vector, with stable sorts
        order = order[values[order].argsort(descending=True, stable=True)]
        order = order[rows[order].argsort(stable=True)]
        rows, ids, values = rows[order], ids[order], values[order]
        counts = torch.unique_consecutive(rows, return_counts=True)[1]
        rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        best = rank < kept
        self.ids[rows[best], rank[best]], self.values[rows[best], rank[best]] = ids[best], values[best]

    def add_all(self, rows: Tensor, similarities: Tensor, first: int | Tensor) -> None:
        """Add the similarities, ``(rows, width)``, of the vectors ``rows`` to others of consecutive ids.

        The ids begin with ``first``, which may differ by row: then it is ``(rows, 1)``.
        """
        values, ids = _largest(similarities, self.ids.shape[1])
        ids = torch.cat([self.ids[rows], ids + first], dim=1)
        self.values[rows], places = _largest(
            torch.cat([self.values[rows], values], dim=1), self.ids.shape[1], ids
        )
        self.ids[rows] = ids.gather(1, places)


def _largest(values: Tensor, k: int, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, the largest first, and their columns; all if there are fewer.

    Among equal values, those with the smallest ids are taken; without ids, those in the first columns.
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
