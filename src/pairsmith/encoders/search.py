"""Exact nearest neighbours of two sets of vectors in each other, each product computed once.

A block of similarities, computed in a short number format, is looked at along its rows and along its
columns: of every **group** of neighbouring vectors only the largest similarity is kept. The k nearest of
a vector lie in the k groups with the largest ones, but for rounding, so that few groups are left to be
computed in float32. How far rounding can reach is known for each vector: where it could hide a neighbour,
more groups are computed, and where those kept do not suffice, all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.modelfiles import pick_dtype

GROUP = 128
"""Vectors of a group."""

KEPT = 16
"""Groups that are kept for a vector; at least twice as many as neighbours are wanted."""

TILE = (1024, 1024)
"""Rows and columns of a block of similarities; multiples of ``GROUP``. It stays in the processor's caches."""

FULL_ROWS = 1024
"""Vectors whose similarities to all others are computed at once in float32."""

SPARE = 4
"""Neighbours kept beyond those wanted until the end, as equally near ones may differ by rounding."""

ROUNDING = 2e-6
"""How far two float32 products of the same vectors can lie apart; they depend on the threads that compute."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest vectors of each of n, nearest first, equally near ones in the order of their numbers.

    Attributes:
        ids: ``(n, k)`` int64.
        similarities: ``(n, k)`` float32.
    """

    ids: Tensor
    similarities: Tensor


@dataclass(frozen=True, slots=True)
class _Shortlist:
    """The groups that may hold the nearest vectors of each of n, most promising first.

    Attributes:
        groups: ``(n, kept)`` int64.
        bounds: ``(n, kept)`` float32: no similarity to a vector of the group is larger.
        rest: ``(n,)`` float32: the same of all other groups; minus infinity where there are none.
    """

    groups: Tensor
    bounds: Tensor
    rest: Tensor


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
        memory: bytes that may be used beside x, y and what is returned; a guide.
        short: format in which all products are computed once; None is bfloat16, or float32 where that is
            not multiplied fast. What is found is the same.
        device: where; None is the processor. The few products in float32 are computed by the processor.
        advance: hears of how many rows of x have been multiplied with all of y.

    Raises:
        ValueError: the shapes do not fit each other, a side is empty, or k is less than 1.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y) or k < 1:
        raise ValueError(f"expected (n, d), (m, d) and k >= 1, got {tuple(x.shape)}, {tuple(y.shape)}, {k}")
    device = device or torch.device("cpu")
    short = short or getattr(torch, pick_dtype("auto", device.type))
    of_x, of_y = _shortlists(x, y, k, memory, short, device, advance)
    return _nearest(x, y, min(k, len(y)), of_x), _nearest(y, x, min(k, len(x)), of_y)


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
    return best_x.shortlist(*_errors(x, y, short)), best_y.shortlist(*_errors(y, x, short))


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

    def shortlist(self, error: Tensor, relative: float) -> _Shortlist:
        """With bounds on the exact similarities, given those on a product's error."""
        values = self._values.float()
        bounds = values + error[:, None] + relative * (values.abs() + error[:, None])
        rest = torch.full((len(values),), -torch.inf)
        if values.shape[1] > self._kept:
            rest = bounds[:, self._kept]
        return _Shortlist(self._groups[:, : self._kept].long(), bounds[:, : self._kept], rest)


def _errors(vectors: Tensor, others: Tensor, short: torch.dtype) -> tuple[Tensor, float]:
    """How far rounded factors can move a product of each vector, ``(n,)``, and its own relative rounding.

    By Cauchy and Schwarz: ``|x'y' - xy| <= |x' - x| |y'| + |x| |y' - y|``.
    """
    of_others = max(float(_lost(part, short).max()) for part in torch.split(others, TILE[1]))
    of_each = torch.cat([_lost(part, short) for part in torch.split(vectors, TILE[1])]).cpu()
    return 1.001 * (of_each * (1 + of_others) + of_others) + 1e-6, torch.finfo(short).eps


def _lost(part: Tensor, short: torch.dtype) -> Tensor:
    """Length of what each vector loses in the short format."""
    lost: Tensor = part.to(short).float() - part
    return lost.square().sum(dim=1).sqrt()


def _nearest(vectors: Tensor, others: Tensor, k: int, shortlist: _Shortlist) -> Neighbours:
    """The k nearest in float32: first of the k most promising groups, then wherever nearer ones may be."""
    found = _Found(len(vectors), k, min(k + SPARE, len(others)))
    pairs = torch.zeros_like(shortlist.groups, dtype=torch.bool)
    pairs[:, :k] = True
    _compute(vectors, others, pairs, shortlist.groups, found)
    pairs = ~pairs & (shortlist.bounds >= found.least[:, None])
    _compute(vectors, others, pairs, shortlist.groups, found)
    doubtful = (shortlist.rest >= found.least).nonzero().squeeze(1)
    if len(doubtful):
        _compute_all(vectors, others, doubtful, found)
    return _settled(vectors, others, found, k)


def _settled(vectors: Tensor, others: Tensor, found: "_Found", k: int) -> Neighbours:
    """The k nearest of those found, by sums that any number of threads makes alike."""
    ids, similarities = torch.empty(len(vectors), k, dtype=torch.int64), torch.empty(len(vectors), k)
    close = found.values[:, k:] >= found.least[:, None]  # too close to the k-th to leave out
    for some, kept in ((~close.any(dim=1), k), (close.any(dim=1), found.ids.shape[1])):
        for rows in torch.split(some.nonzero().squeeze(1), FULL_ROWS):
            near, order = found.ids[rows, :kept].sort(dim=1)
            there = found.values[rows, :kept].gather(1, order) > -torch.inf
            sums = _products(vectors[rows], others, near.where(there, 0)).where(there, -torch.inf)
            values, places = sums.sort(dim=1, descending=True, stable=True)
            similarities[rows], ids[rows] = values[:, :k], near.gather(1, places)[:, :k]
    return Neighbours(ids, similarities)


def _products(vectors: Tensor, others: Tensor, ids: Tensor) -> Tensor:
    """Of each of ``(n, d)`` with some others, ``(n, c)``; float64 sums differ by less than float32 shows."""
    near = others.index_select(0, ids.flatten()).view(*ids.shape, others.shape[1])
    return torch.einsum("nd,ncd->nc", vectors.double(), near.double()).float()


def merged(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of each of n, from what was found in several parts of the others.

    Args:
        parts: of the same n vectors, with ids that are distinct over all parts.
        k: at least 1; fewer where the parts have fewer together.
    """
    ids, order = torch.cat([part.ids for part in parts], dim=1).sort(dim=1)
    similarities = torch.cat([part.similarities for part in parts], dim=1).gather(1, order)
    values, places = similarities.sort(dim=1, descending=True, stable=True)
    return Neighbours(ids.gather(1, places)[:, :k], values[:, :k])


def _compute_all(vectors: Tensor, others: Tensor, which: Tensor, found: "_Found") -> None:
    """Multiply some vectors with all others."""
    for rows in torch.split(which, FULL_ROWS):
        found.clear(rows)
        for left in range(0, len(others), TILE[1]):
            found.add(rows, vectors[rows] @ others[left : left + TILE[1]].T, left)


def _compute(vectors: Tensor, others: Tensor, pairs: Tensor, groups: Tensor, found: "_Found") -> None:
    """Multiply each vector with the groups that ``pairs``, ``(n, kept)`` bool, says."""
    which = pairs.nonzero()[:, 0]
    wanted, order = groups[pairs].sort(stable=True)
    for group, rows in _runs(wanted, which[order]):
        part = others[group * GROUP : (group + 1) * GROUP]
        for some in torch.split(rows, FULL_ROWS):  # a small corpus has few groups, each wanted by all
            found.add(some, vectors[some] @ part.T, group * GROUP)


def _runs(keys: Tensor, values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The values of each key, of sorted keys."""
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    yield from zip(distinct.tolist(), torch.split(values, counts.tolist()), strict=True)


class _Found:
    """The nearest found so far, nearest first, equally near ones in the order of their numbers."""

    def __init__(self, count: int, k: int, kept: int) -> None:
        self._k = k
        self.ids = torch.full((count, kept), torch.iinfo(torch.int64).max)
        self.values = torch.full((count, kept), -torch.inf)

    @property
    def least(self) -> Tensor:
        """A neighbour may only be one of the k nearest if it is nearer than this, ``(n,)``."""
        return self.values[:, self._k - 1] - ROUNDING

    def clear(self, rows: Tensor) -> None:
        """Forget what was found for some."""
        self.values[rows] = -torch.inf

    def add(self, rows: Tensor, similarities: Tensor, first: int) -> None:
        """More of them for some: ``(rows, more)``, to vectors from number ``first`` on."""
        k = self.ids.shape[1]
        values, places = _largest(similarities.cpu(), k)
        values = torch.cat([self.values[rows], values], dim=1)
        ids = torch.cat([self.ids[rows], places + first], dim=1)
        ids, order = ids.sort(dim=1)
        values, places = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        self.values[rows], self.ids[rows] = values[:, :k], ids.gather(1, places)[:, :k]


def _largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their places; of equal ones those with the smallest places."""
    if values.shape[1] <= k:
        return values, torch.arange(values.shape[1]).expand(len(values), -1)
    found, places = values.topk(k + 1, dim=1)
    border = (found[:, k - 1] == found[:, k]).nonzero().squeeze(1)  # which of them was taken is open
    found, places = found[:, :k], places[:, :k]
    if len(border):
        found, places = found.clone(), places.clone()
        ordered, numbers = values[border].sort(dim=1, descending=True, stable=True)
        found[border], places[border] = ordered[:, :k], numbers[:, :k]
    return found, places


def _largest_of(similarities: Tensor, dim: int) -> Tensor:
    """The largest of a dimension, 0 where all are negative: numbers above 0 are ordered like their bits."""
    bits = similarities.view(torch.int32 if similarities.itemsize == 4 else torch.int16)
    return bits.amax(dim=dim).clamp_(min=0).view(similarities.dtype)


def _filled(vectors: Tensor, short: torch.dtype, device: torch.device) -> Tensor:
    """In the short format, with zeros up to a whole number of groups; they can only raise a group's bound."""
    missing = -len(vectors) % GROUP
    return torch.nn.functional.pad(vectors.to(device, short), (0, 0, 0, missing))


def _groups(count: int) -> int:
    return -(-count // GROUP)
