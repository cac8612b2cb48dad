"""Shortlists of the groups that may hold each vector's nearest neighbours, from a short number format.

A **group** is a run of consecutive vectors. Each product of the two sets is computed once. From a block of
similarities only maxima are kept: along its rows, the largest similarity of each x with each group of y, and
along its columns, that of each y with each group of x. For each vector it is known how far rounding can move
a similarity.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, cached_property

import torch
from torch import Tensor

from pairsmith.core.model_files import multiplies_fast, processor_has
from pairsmith.models.memory import free_memory

GROUP = 128
"""Number of vectors in a group."""
KEPT_GROUPS = 16
"""Number of groups that are kept for a vector, or 2 k for k neighbours if that is more; doubled for int8."""
TILE = (1024, 1024)
"""Rows and columns of a block of similarities; multiples of ``GROUP``. It stays in the processor's caches."""
GPU_TILE = (8192, 16384)
"""The same on a GPU, where a block has to be large enough to keep all of it busy."""
LOSS = 0.012
"""Largest mean rounding error (as a length) for which int8 is used. MiniLM's vectors have 0.010; with 0.013 a
search takes longer than in bfloat16, as too many groups may hold a neighbour."""
LONGEST = 1.001
"""No vector is longer than this: vectors have length 1, apart from rounding to float16 or float32."""
FLOAT32_ROUNDING = 1e-6
"""Allowance for sums in float32: of the lengths of errors, and of exact similarities."""
SAMPLE = 16
"""Number of groups on which the mean rounding error is measured."""


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The groups that may hold the nearest neighbours of each of n vectors, most promising first.

    ``largest`` holds, in a short number format, the largest similarity within each kept group. If there are
    groups that are not kept, its last column holds the largest similarity within all of those.
    """

    groups: Tensor  # (n, kept) int32
    largest: Tensor  # (n, kept) or (n, kept + 1)
    errors: Tensor  # (n,) float32: length of each vector's rounding error
    group_errors: Tensor  # (groups,) float32: the largest such length in each group of the others

    def on(self, device: torch.device) -> "Shortlist":
        """The same on another device."""
        return Shortlist(*(getattr(self, field.name).to(device) for field in fields(self)))

    def bounds(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Upper bounds on the similarities in kept groups, ``(rows, kept)``, and in others, ``(rows,)``."""
        similarities, error = self._similarities(rows)
        bounds, kept = similarities + error, self.groups.shape[1]
        rest = bounds[:, kept] if bounds.shape[1] > kept else torch.full_like(bounds[:, 0], -torch.inf)
        return bounds[:, :kept], rest

    def floor(self, rows: slice, k: int) -> Tensor:
        """A lower bound on the k largest similarities, ``(rows,)``: each of k groups has one this large."""
        similarities, error = self._similarities(rows)
        lowest = (similarities - error).where(similarities > 0, -torch.inf)  # 0 may stand for less
        return lowest[:, :k].amin(dim=1)

    def _similarities(self, rows: slice) -> tuple[Tensor, Tensor]:
        """The largest similarities in float32, and how far they may be from the exact ones.

        With x' and y' the rounded vectors, and e_x = |x' - x| and e_y = |y' - y| the lengths of their errors,
        ``|x'y' - xy| <= |x' - x| |y'| + |x| |y' - y| <= e_x (1 + e_y) + e_y``, as x and y have length 1. The
        products were rounded, too.
        """
        similarities, kept = self.largest[rows].float(), self.groups.shape[1]
        e_x = self.errors[rows, None]
        e_y = self.group_errors.max().expand(similarities.shape).clone()
        e_y[:, :kept] = self.group_errors[self.groups[rows].long()]
        error = LONGEST * (e_x * (1 + e_y) + e_y) + FLOAT32_ROUNDING
        return similarities, error + torch.finfo(self.largest.dtype).eps * (similarities.abs() + error)


def short_format(device: torch.device, *sides: Tensor) -> torch.dtype:
    """The number format that a device multiplies fastest, among those precise enough for these vectors.

    On a processor with VNNI but without AMX it is int8, as bfloat16 takes twice as long there; not if the
    vectors have a few large components among small ones, which int8 rounds too coarsely. Else it is bfloat16
    if the processor has fast instructions for it, else float32. On a GPU it is bfloat16, or float16 if the
    GPU has no bfloat16.
    """
    integers = device.type == "cpu" and processor_has("avx512_vnni") and not processor_has("amx_bf16")
    if integers and all(_keeps_enough(side) for side in sides):
        return torch.int8
    if multiplies_fast("bfloat16", device.type):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32


def _keeps_enough(vectors: Tensor) -> bool:
    """Whether the mean rounding error in int8 is at most ``LOSS``, on a sample of the vectors."""
    step = max(1, groups_of(len(vectors)) // SAMPLE)
    sample = torch.cat(torch.split(vectors, GROUP)[::step][:SAMPLE])
    return float(_Side(sample, torch.int8, torch.device("cpu")).rounding_errors().mean()) <= LOSS


def tile_on(device: torch.device) -> tuple[int, int]:
    """Rows and columns of a block of similarities on a device."""
    return TILE if device.type == "cpu" else GPU_TILE


def multiplies_int8(device: torch.device, width: int) -> bool:
    """Whether torch multiplies int8 vectors of this width correctly: without VNNI, sums may saturate."""
    return device.type == "cpu" and width > 1 and _sums_are_right()  # torch misreads a single column


@cache
def _sums_are_right() -> bool:
    factors = torch.tensor([[127], [-127]], dtype=torch.int8).repeat(8, 64)
    return torch.equal(torch._int_mm(factors, factors.T).long(), factors.long() @ factors.long().T)


def shortlists(
    x: Tensor,
    y: Tensor,
    k: int,
    *,
    memory: int,
    short: torch.dtype,
    device: torch.device,
    advance: Callable[[int], None],
    one_way: bool = False,
) -> tuple[Shortlist, Shortlist | None]:
    """Multiply x with y, and keep the most promising groups of y for each x, and of x for each y.

    The arguments are those of ``two_way_search``; ``short`` is int8 only where ``multiplies_int8``. With
    ``one_way`` no groups are kept for y, and None is returned in their place.
    """
    sums = torch.int32 if short == torch.int8 else short
    side_x, side_y = _Side(x, short, device), _Side(y, short, device)
    best_x, best_y = _Best(side_x, side_y, k), None if one_way else _Best(side_y, side_x, k)
    # This many rows, and their largest similarities to all groups, fit an eighth of the memory.
    row_bytes = max(groups_of(len(y)) * sums.itemsize, x.shape[1] * short.itemsize)
    size = tile_on(device)
    height = max(size[0], memory // 16 // row_bytes // size[0] * size[0])
    tile = torch.empty(size[0] * size[1], dtype=sums, device=device)
    for top in range(0, len(x), height):
        bottom = min(top + height, len(x))
        of_rows, of_columns = _largest_of_groups(side_x, slice(top, bottom), side_y, tile, one_way=one_way)
        best_x.add(top, of_rows, 0)
        if best_y:
            best_y.add(0, of_columns.T, top // GROUP)
        advance(bottom - top)
    errors_x, errors_y = side_x.rounding_errors(), side_y.rounding_errors()
    shortlist_x = best_x.shortlist(errors_x, errors_y)
    return shortlist_x, best_y.shortlist(errors_y, errors_x) if best_y else None


class _Side:
    """One set of vectors, and how they are rounded.

    ``scales``, ``(groups,)`` float32, are the values of an int8 1 in each group; None for other formats.
    """

    def __init__(self, vectors: Tensor, short: torch.dtype, device: torch.device) -> None:
        self.vectors, self.short, self.device = vectors, short, device
        self.scales: Tensor | None = None
        if short == torch.int8:
            largest = [part.abs().amax() for part in torch.split(vectors, GROUP)]
            self.scales = torch.stack(largest).float().clamp_(min=1e-30) / 127

    @cached_property
    def _whole(self) -> Tensor | None:
        """All vectors, rounded, if a GPU has room for them, as they are multiplied many times; else None."""
        size = len(self.vectors) * self.vectors.shape[1] * self.short.itemsize
        if self.device.type == "cpu" or 4 * size > free_memory(self.device):
            return None
        return self._rounded(slice(0, len(self.vectors)))

    def rounded(self, rows: slice) -> Tensor:
        """The vectors ``rows``, rounded; the slice starts at a group, and zero vectors fill its last group.

        Zero vectors can only raise the bounds.
        """
        if self._whole is None:
            return self._rounded(rows)
        return self._whole[rows.start : rows.start + GROUP * groups_of(rows.stop - rows.start)]

    def _rounded(self, rows: slice) -> Tensor:
        vectors = self.vectors[rows]
        numbers = torch.zeros(
            GROUP * groups_of(len(vectors)), vectors.shape[1], dtype=self.short, device=self.device
        )
        step = tile_on(self.device)[0]
        for low in range(0, len(vectors), step):
            part = vectors[low : low + step]
            if self.scales is not None:
                part = (part / self.of_each(rows.start + low, len(part))).round_()
            numbers[low : low + len(part)] = part
        return numbers

    def rounding_errors(self) -> Tensor:
        """Length of each vector's rounding error, ``(n,)`` float32."""
        errors, step = [], tile_on(self.device)[1]
        for low in range(0, len(self.vectors), step):
            rows = slice(low, min(low + step, len(self.vectors)))
            rounded = self.rounded(rows)[: rows.stop - low].cpu().float()
            rounded *= 1 if self.scales is None else self.of_each(low, len(rounded))
            errors.append(torch.linalg.vector_norm(rounded - self.vectors[rows], dim=1))
        return torch.cat(errors)

    def of_each(self, first: int, count: int) -> Tensor:
        """The scales of ``count`` vectors from ``first`` on, which starts a group: ``(count, 1)``."""
        assert self.scales is not None
        groups = self.scales[first // GROUP : groups_of(first + count)]
        return groups.repeat_interleave(GROUP)[:count, None]


def _largest_of_groups(
    x: _Side, rows: slice, y: _Side, tile: Tensor, *, one_way: bool
) -> tuple[Tensor, Tensor]:
    """The largest product of each x of ``rows`` with each group of y, and of each y with each group of x.

    The results are ``(rows, groups of y)`` and ``(groups of rows, m)``; a maximum is 0 if all products are
    negative. With ``one_way`` the second result is ``(0, m)``.
    """
    factors, count, m = x.rounded(rows), rows.stop - rows.start, len(y.vectors)
    of_rows = tile.new_empty(len(factors), groups_of(m))
    of_columns = tile.new_empty(0 if one_way else len(factors) // GROUP, GROUP * groups_of(m))
    high_step, wide_step = tile_on(tile.device)
    for left in range(0, m, wide_step):
        columns = y.rounded(slice(left, min(left + wide_step, m)))
        right = left + len(columns)
        for low in range(0, len(factors), high_step):
            part = factors[low : low + high_step]
            block = tile[: len(part) * len(columns)].view(len(part), len(columns))
            # torch's only product of int8 that does not round its sums
            (torch._int_mm if part.dtype == torch.int8 else torch.mm)(part, columns.T, out=block)
            high = low + len(part)
            if not one_way:
                of_columns[low // GROUP : high // GROUP, left:right] = _largest(
                    block.view(-1, GROUP, len(columns)), 1
                )
            of_rows[low:high, left // GROUP : right // GROUP] = _largest(block.view(len(part), -1, GROUP), 2)
    return of_rows[:count], of_columns[:, :m]


def _largest(products: Tensor, dim: int) -> Tensor:
    """Maxima along a dimension, 0 where all are negative: numbers above 0 are ordered like their bits."""
    bits = products.view(torch.int32 if products.itemsize == 4 else torch.int16)
    return bits.amax(dim=dim).clamp_(min=0).view(products.dtype)


class _Best:
    """The most promising groups of each vector among those added so far, and the next best one."""

    def __init__(self, side: _Side, others: _Side, k: int) -> None:
        self._side, self._others = side, others
        groups, integers = groups_of(len(others.vectors)), side.scales is not None
        self._kept = min(groups, max(KEPT_GROUPS, 2 * k) * (2 if integers else 1))
        shape = len(side.vectors), min(groups, self._kept + 1)
        kind = torch.float16 if integers else side.short
        self._values = torch.full(shape, -torch.inf, dtype=kind, device=side.device)
        self._groups = torch.zeros(shape, dtype=torch.int32, device=side.device)

    def add(self, top: int, largest: Tensor, first: int) -> None:
        """Add the largest products, ``(rows, groups)``, of vectors from ``top`` and groups from ``first``."""
        numbers = torch.arange(first, first + largest.shape[1], dtype=torch.int32, device=largest.device)
        step = tile_on(largest.device)[0]
        for low in range(0, len(largest), step):
            part = self._similarities(top + low, largest[low : low + step], first)
            rows = slice(top + low, top + low + len(part))
            joined = torch.cat([self._values[rows], part], dim=1)
            candidates = torch.cat([self._groups[rows], numbers.expand(len(part), -1)], dim=1)
            self._values[rows], places = joined.topk(self._values.shape[1], dim=1)
            self._groups[rows] = candidates.gather(1, places)

    def _similarities(self, top: int, products: Tensor, first: int) -> Tensor:
        if self._others.scales is None:
            return products
        scales = self._others.scales[first : first + products.shape[1]]
        return (products * self._side.of_each(top, len(products)) * scales).to(self._values.dtype)

    def shortlist(self, errors: Tensor, errors_of_others: Tensor) -> Shortlist:
        """The shortlist, given the lengths of the rounding errors of these vectors and of the others."""
        group_errors = torch.stack([part.max() for part in torch.split(errors_of_others, GROUP)])
        return Shortlist(self._groups[:, : self._kept].cpu(), self._values.cpu(), errors, group_errors)


def zero_padded(vectors: Tensor, count: int) -> Tensor:
    """The vectors, with zero vectors appended up to ``count``."""
    missing = count - len(vectors)
    return torch.nn.functional.pad(vectors, (0, 0, 0, missing)) if missing > 0 else vectors


def groups_of(count: int) -> int:
    """The number of groups that ``count`` vectors make; the last group may be smaller."""
    return -(-count // GROUP)
