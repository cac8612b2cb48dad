"""Exact nearest neighbours of two sets of vectors in each other, each product computed once.

A block of similarities, computed in a short number format, is looked at along its rows and along its
columns: of every **group** of neighbouring vectors only the largest similarity is kept. The k nearest of
a vector lie in the k groups with the largest ones, but for rounding, so that few groups are left to be
computed in float32. How far rounding can reach is known for each vector: where it could hide a neighbour,
more groups are computed, and where those kept do not suffice, all. Where k groups are half of all or more,
nothing would be gained, and all products are computed in float32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.encoders.neighbours import Neighbours
from pairsmith.modelfiles import multiplies_fast, sums_in_float32

GROUP = 128
"""Vectors of a group."""

KEPT = 16
"""Groups that are kept for a vector; at least twice as many as neighbours are wanted."""

TILE = (1024, 1024)
"""Rows and columns of a block of similarities; multiples of ``GROUP``. It stays in the processor's caches."""

MANY = 2
"""A search looks at all vectors where so many times k groups are all there are."""

FULL_ROWS = 256
"""Vectors whose similarities to all others are computed at once in float32."""

GROUP_ROWS = 128
"""Vectors that shall be multiplied with a group at once, on average; fewer where memory is short."""

LEAST = 16
"""Vectors that are multiplied with others at once, filled up where there are fewer."""

LEAST_ROWS = 64
"""Vectors whose similarities to their groups are held at once, however short memory is."""

CACHED = 2**24
"""Bytes of similarities that stay in the processor's caches."""

SPARE = 4
"""Neighbours kept beyond those wanted until the end, as equally near ones may differ by rounding."""

ROUNDING = 2e-6
"""How far two float32 products of the same vectors can lie apart; they depend on the threads that compute."""


@dataclass(frozen=True, slots=True)
class _Shortlist:
    """The groups that may hold the nearest vectors of each of n, most promising first.

    Attributes:
        groups: ``(n, kept)`` int32.
        largest: ``(n, kept)``, or one more where other groups are left: the largest similarity to a vector of
            each group, and of all other groups, in a short format.
        error: ``(n,)`` float32: how far that may be from the exact one; ``relative`` is its own rounding.
    """

    groups: Tensor
    largest: Tensor
    error: Tensor
    relative: float

    def bounds(self, rows: slice) -> tuple[Tensor, Tensor]:
        """What no similarity to a vector of a group exceeds, ``(rows, kept)``; of all others, ``(rows,)``."""
        values, error = self.largest[rows].float(), self.error[rows, None]
        found = values + error + self.relative * (values.abs() + error)
        kept = self.groups.shape[1]
        rest = found[:, kept] if found.shape[1] > kept else torch.full((len(found),), -torch.inf)
        return found[:, :kept], rest


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

    The result does not depend on the number of threads or on which x are searched together.

    Args:
        x: ``(n, d)`` float32 of length 1, finite; may be mapped from a file.
        y: ``(m, d)``, likewise.
        k: at least 1; where a side has fewer vectors, all of them are found.
        memory: bytes of similarities that may be held at once; a guide. Beside x and y some 40 to 60 bytes
            for each vector and each of k come on top.
        short: format in which all products are computed once; None is what ``short_format`` says. What is
            found is the same.
        device: where; None is the processor. The few products in float32 are computed by the processor.
        advance: hears of how many rows of x have been multiplied with all of y.

    Raises:
        ValueError: the shapes do not fit each other, a side is empty, or k is less than 1.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y) or k < 1:
        raise ValueError(f"expected (n, d), (m, d) and k >= 1, got {tuple(x.shape)}, {tuple(y.shape)}, {k}")
    device = device or torch.device("cpu")
    short = short or short_format(device)
    all_of_y, all_of_x = (MANY * k >= _groups(len(side)) for side in (y, x))
    of_x = of_y = None
    if not (all_of_x and all_of_y):
        with sums_in_float32():  # the bound on errors knows of rounded factors, not of rounded sums
            of_x, of_y = _shortlists(x, y, k, memory, short, device, advance)
    found_x = _nearest(x, y, min(k, len(y)), None if all_of_y else of_x, memory)
    if of_x is None:
        advance(len(x))
    return found_x, _nearest(y, x, min(k, len(x)), None if all_of_x else of_y, memory)


def short_format(device: torch.device) -> torch.dtype:
    """What a device multiplies fast: bfloat16, on a GPU that has no bfloat16 float16, else float32."""
    if multiplies_fast("bfloat16", device.type):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32


def _shortlists(
    x: Tensor,
    y: Tensor,
    k: int,
    memory: int,
    short: torch.dtype,
    device: torch.device,
    advance: Callable[[int], None],
) -> tuple[_Shortlist, _Shortlist]:
    """Multiply all, in ``short``, and keep the most promising groups of both sides."""
    groups_x, groups_y = _groups(len(x)), _groups(len(y))
    best_x, best_y = _Best(len(x), groups_y, k, short), _Best(len(y), groups_x, k, short)
    # Of so many rows at once, the largest similarities of all groups fit an eighth of the memory.
    height = memory // 16 // (groups_y * short.itemsize) // TILE[0] * TILE[0]
    tile = torch.empty(TILE, dtype=short, device=device)
    for top in range(0, len(x), max(TILE[0], height)):
        rows = x[top : top + max(TILE[0], height)]
        of_rows = torch.empty(len(rows), groups_y, dtype=short, device=device)
        of_columns = torch.empty(_groups(len(rows)), len(y), dtype=short, device=device)
        filled = _filled(rows, short, device)
        for left in range(0, len(y), TILE[1]):
            columns = _filled(y[left : left + TILE[1]], short, device)
            right, here = left + min(TILE[1], len(y) - left), left // GROUP
            for low in range(0, len(filled), TILE[0]):
                part = filled[low : low + TILE[0]]
                block = torch.mm(part, columns.T, out=tile[: len(part), : len(columns)])
                by_column = _largest_of(block.view(-1, GROUP, block.shape[1]), dim=1)
                by_row = _largest_of(block.view(len(block), -1, GROUP), dim=2)
                of_columns[low // GROUP : low // GROUP + len(by_column), left:right] = by_column[
                    :, : right - left
                ]
                of_rows[low : low + len(block), here : here + by_row.shape[1]] = by_row[: len(rows) - low]
        for low in range(0, len(rows), TILE[0]):
            best_x.add(slice(top + low, top + low + TILE[0]), of_rows[low : low + TILE[0]], 0)
        for left in range(0, len(y), TILE[0]):
            best_y.add(slice(left, left + TILE[0]), of_columns[:, left : left + TILE[0]].T, top // GROUP)
        advance(len(rows))
    lost_x, lost_y = _lost(x, short), _lost(y, short)
    of_x, of_y = _error(lost_x, lost_y), _error(lost_y, lost_x)
    return best_x.shortlist(of_x), best_y.shortlist(of_y)


class _Best:
    """The most promising groups of each vector, of those seen so far, and the one after them."""

    def __init__(self, count: int, groups: int, k: int, dtype: torch.dtype) -> None:
        self._kept = min(groups, max(KEPT, 2 * k))
        width = min(groups, self._kept + 1)
        self._values = torch.full((count, width), -torch.inf, dtype=dtype)
        self._groups = torch.zeros(count, width, dtype=torch.int32)

    def add(self, vectors: slice, largest: Tensor, first: int) -> None:
        """The largest similarities of some vectors, ``(vectors, groups)``, to groups from ``first`` on."""
        numbers = torch.arange(first, first + largest.shape[1], dtype=torch.int32)
        joined = torch.cat([self._values[vectors], largest.cpu()], dim=1)
        known = torch.cat([self._groups[vectors], numbers.expand(len(largest), -1)], dim=1)
        self._values[vectors], places = joined.topk(self._values.shape[1], dim=1)
        self._groups[vectors] = known.gather(1, places)

    def shortlist(self, error: Tensor) -> _Shortlist:
        """What is kept, given bounds on a product's error, ``(vectors,)``."""
        return _Shortlist(
            self._groups[:, : self._kept], self._values, error, torch.finfo(self._values.dtype).eps
        )


def _error(lost: Tensor, lost_by_others: Tensor) -> Tensor:
    """How far rounded factors can move a product of each vector with any of the others, ``(n,)``.

    By Cauchy and Schwarz: ``|x'y' - xy| <= |x' - x| |y'| + |x| |y' - y|``.
    """
    most = float(lost_by_others.max())
    return 1.001 * (lost * (1 + most) + most) + 1e-6


def _lost(vectors: Tensor, short: torch.dtype) -> Tensor:
    """Length of what each vector loses in the short format, ``(n,)``."""
    parts = torch.split(vectors, TILE[1])
    return torch.cat([torch.linalg.vector_norm(part.to(short).float() - part, dim=1) for part in parts])


def _nearest(
    vectors: Tensor, others: Tensor, k: int, shortlist: _Shortlist | None, memory: int
) -> Neighbours:
    """The k nearest in float32: first of the k most promising groups, then wherever nearer ones may be.

    Without a shortlist of all.
    """
    found = _Found(len(vectors), k, min(k + SPARE, len(others)))
    if shortlist is None:
        _compute_all(vectors, others, torch.arange(len(vectors)), found)
        return _settled(vectors, others, found, k)
    height = _height(k, len(others), memory)
    for top in range(0, len(vectors), height):
        rows = slice(top, top + height)
        groups, (bounds, rest) = shortlist.groups[rows], shortlist.bounds(rows)
        pairs = torch.zeros_like(groups, dtype=torch.bool)
        pairs[:, :k] = True
        _compute(vectors, others, top, pairs, groups, found, memory)
        pairs = ~pairs & (bounds >= found.least(rows)[:, None])
        _compute(vectors, others, top, pairs, groups, found, memory)
        doubtful = (rest >= found.least(rows)).nonzero().squeeze(1)
        if len(doubtful):
            _compute_all(vectors, others, doubtful + top, found)
    return _settled(vectors, others, found, k)


def _height(width: int, others: int, memory: int) -> int:
    """Vectors whose similarities to so many groups each, in float32, are held at once."""
    each = 4 * GROUP * width
    enough = max(CACHED // each, GROUP_ROWS * _groups(others) // width)
    return max(LEAST_ROWS, min(enough, memory // 16 // each))


def _settled(vectors: Tensor, others: Tensor, found: "_Found", k: int) -> Neighbours:
    """The k nearest of those found, by sums that any number of threads makes alike."""
    ids, similarities = torch.empty(len(vectors), k, dtype=torch.int64), torch.empty(len(vectors), k)
    close = found.values[:, k:] >= found.least()[:, None]  # too close to the k-th to leave out
    for some, kept in ((~close.any(dim=1), k), (close.any(dim=1), found.ids.shape[1])):
        together = max(16, CACHED // (64 * kept * vectors.shape[1]))
        for rows in torch.split(some.nonzero().squeeze(1), together):
            near, there = found.ids[rows, :kept], found.values[rows, :kept] > -torch.inf
            sums = _products(vectors[rows], others, near.where(there, 0)).where(there, -torch.inf)
            similarities[rows], ids[rows] = _ordered(sums, near, k)
    return Neighbours(ids, similarities)


def _ordered(values: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, largest first, and their ids; equal ones in the order of their ids."""
    found, order = values.sort(dim=1, descending=True)
    there = ids.gather(1, order)
    rows = (found[:, 1:] == found[:, :-1]).any(dim=1).nonzero().squeeze(1)
    if len(rows):
        there[rows], order = ids[rows].sort(dim=1)
        _, places = values[rows].gather(1, order).sort(dim=1, descending=True, stable=True)
        there[rows] = there[rows].gather(1, places)
    return found[:, :k], there[:, :k]


def _products(vectors: Tensor, others: Tensor, ids: Tensor) -> Tensor:
    """Of each of ``(n, d)`` with some others, ``(n, c)``; float64 sums differ by less than float32 shows."""
    near = others.index_select(0, ids.flatten()).view(*ids.shape, others.shape[1])
    return torch.einsum("nd,ncd->nc", vectors.double(), near.double()).float()


def _compute_all(vectors: Tensor, others: Tensor, which: Tensor, found: "_Found") -> None:
    """Multiply some vectors with all others."""
    width = max(TILE[1], CACHED // (4 * FULL_ROWS))
    for rows in torch.split(which, FULL_ROWS):
        found.clear(rows)
        for left in range(0, len(others), width):
            similarities = _multiplied(vectors[rows], others[left : left + width])
            found.add(rows, similarities, torch.tensor([[left]]))


def _compute(
    vectors: Tensor, others: Tensor, top: int, pairs: Tensor, groups: Tensor, found: "_Found", memory: int
) -> None:
    """Multiply the vectors from ``top`` on with the groups that ``pairs``, ``(rows, kept)`` bool, says."""
    counts, order = pairs.sum(dim=1).sort(descending=True, stable=True)
    order, none = order[counts > 0], _groups(len(others))
    left = 0
    while left < len(order):  # those that want about as many together
        width = int(counts[left])
        some = order[left : left + _height(width, len(others), memory)]
        wanted = groups[some].masked_fill(~pairs[some], none).sort(dim=1).values[:, :width]
        block, rows = torch.empty(len(some) * width, GROUP), some + top
        for group, places in _runs(*wanted.flatten().sort(stable=True)):
            part = others[group * GROUP : (group + 1) * GROUP]  # nothing where it is ``none``
            wanting = vectors.index_select(0, rows.index_select(0, places // width))
            block.index_copy_(0, places, _widened(_multiplied(wanting, part), GROUP))
        found.add(rows, block.view(len(some), -1), wanted.long() * GROUP)
        left += len(some)


def _multiplied(vectors: Tensor, others: Tensor) -> Tensor:
    """All products in float32; of few vectors sums would round otherwise, so that equal ones would differ."""
    one, other = (_padded(side, LEAST) for side in (vectors, others))
    return (one @ other.T)[: len(vectors), : len(others)]


def _runs(keys: Tensor, values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The values of each key, of sorted keys."""
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    yield from zip(distinct.tolist(), torch.split(values, counts.tolist()), strict=True)


class _Found:
    """The nearest found so far, nearest first; of equally near ones those with the smallest numbers."""

    def __init__(self, count: int, k: int, kept: int) -> None:
        self._k = k
        self.ids = torch.full((count, kept), torch.iinfo(torch.int64).max)
        self.values = torch.full((count, kept), -torch.inf)

    def least(self, rows: slice = slice(None)) -> Tensor:
        """A neighbour may only be one of the k nearest of some if it is nearer than this, ``(rows,)``."""
        return self.values[rows, self._k - 1] - ROUNDING

    def clear(self, rows: Tensor) -> None:
        """Forget what was found for some."""
        self.values[rows] = -torch.inf

    def add(self, rows: Tensor, similarities: Tensor, firsts: Tensor) -> None:
        """More of them for some.

        Args:
            rows: whose.
            similarities: ``(rows, blocks * width)``.
            firsts: ``(rows or 1, blocks)`` int64: the number of the first vector of each block; they rise.
        """
        k, width = self.ids.shape[1], similarities.shape[1] // firsts.shape[1]
        values, places = _largest(similarities, k)
        ids = firsts.expand(len(rows), -1).gather(1, places // width) + places % width
        if values.shape[1] < k or bool((self.values[rows, 0] > -torch.inf).any()):
            ids = torch.cat([self.ids[rows], ids], dim=1)
            values, places = _largest(torch.cat([self.values[rows], values], dim=1), k, ids)
            ids = ids.gather(1, places)
        self.values[rows], self.ids[rows] = values, ids


def _largest(values: Tensor, k: int, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest of each row, largest first, and their places; all where there are fewer.

    Of equal ones those with the smallest ids are taken, or those with the smallest places.
    """
    if values.shape[1] <= k:
        return values.sort(dim=1, descending=True)
    found, places = values.topk(k + 1, dim=1)
    border = (found[:, k - 1] == found[:, k]).nonzero().squeeze(1)  # which of them was taken is open
    found, places = found[:, :k], places[:, :k]
    if len(border):
        found, places = found.clone(), places.clone()
        order = None if ids is None else ids[border].argsort(dim=1)
        some = values[border] if order is None else values[border].gather(1, order)
        ordered, numbers = some.sort(dim=1, descending=True, stable=True)
        found[border] = ordered[:, :k]
        places[border] = (numbers if order is None else order.gather(1, numbers))[:, :k]
    return found, places


def _largest_of(similarities: Tensor, dim: int) -> Tensor:
    """The largest of a dimension, 0 where all are negative: numbers above 0 are ordered like their bits."""
    bits = similarities.view(torch.int32 if similarities.itemsize == 4 else torch.int16)
    return bits.amax(dim=dim).clamp_(min=0).view(similarities.dtype)


def _filled(vectors: Tensor, short: torch.dtype, device: torch.device) -> Tensor:
    """In the short format, with zeros up to a whole number of groups; they can only raise a group's bound."""
    return _padded(vectors.to(device, short), GROUP * _groups(len(vectors)))


def _padded(vectors: Tensor, count: int) -> Tensor:
    """With zeros behind them up to so many."""
    missing = count - len(vectors)
    return torch.nn.functional.pad(vectors, (0, 0, 0, missing)) if missing > 0 else vectors


def _widened(similarities: Tensor, width: int) -> Tensor:
    """With as many columns, those that were missing infinitely far away."""
    missing = width - similarities.shape[1]
    return torch.nn.functional.pad(similarities, (0, missing), value=-torch.inf) if missing else similarities


def _groups(count: int) -> int:
    return -(-count // GROUP)
