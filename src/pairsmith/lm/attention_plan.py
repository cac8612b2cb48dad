"""Who attends to what in one step of decoding, worked out once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pairsmith.lm.kv_store import Store

PAGE = 16
"""Tokens of a page."""

STEP = 8
"""Numbers of rows, pieces and pages that are multiplied are rounded up to multiples of this. The libraries
below torch compile a product for each new shape, which takes a millisecond, and keep it in memory."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Some rows, and the pieces of a store that they share.

    Attributes:
        store: which store the pieces are of.
        length: tokens of each piece that are multiplied.
        used: the pieces that are multiplied.
        members: ``(pieces, most)`` rows of each of ``used``; 0 where one has fewer.
        piece: ``(rows,)`` which of ``used`` each row has, and ``place`` its column in ``members``; 0 for a
            row that has none.
        has: ``(rows, 1, 1, 1)`` 1 for a row that has one, else 0; None if all have.
    """

    store: int
    length: int
    used: slice | Tensor
    members: Tensor
    piece: Tensor
    place: Tensor
    has: Tensor | None

    def gather(self, of_rows: Tensor) -> Tensor:
        """``(rows, heads, shared, x)`` to ``(pieces, heads, most * shared, x)``."""
        # index_select copies whole rows, where indexing goes from number to number.
        gathered = of_rows.index_select(0, self.members.flatten()).view(
            *self.members.shape, *of_rows.shape[1:]
        )
        return gathered.transpose(1, 2).reshape(len(self.members), of_rows.shape[1], -1, of_rows.shape[-1])

    def spread(self, of_pieces: Tensor, shared: int) -> Tensor:
        """``(pieces, heads, most * shared, x)`` to ``(rows, heads, shared, x)``; 0 where a row has none."""
        split = of_pieces.view(*of_pieces.shape[:2], -1, shared, of_pieces.shape[3])
        of_rows = split.transpose(1, 2)[self.piece, self.place]
        return of_rows if self.has is None else of_rows.mul_(self.has)

    def take(self, table: Tensor) -> Tensor:
        """The pieces of a store's keys or values, ``(pieces, heads, length, size)``."""
        return table[self.used][:, :, : self.length]


@dataclass(frozen=True, slots=True)
class Paged:
    """Which rows have which pages.

    Attributes:
        used: the pages that are multiplied.
        row: ``(pages,)`` row of each of ``used``, ``part`` which of its pages it is; 0 for one in no use.
        pages: ``(rows, most)`` which of ``used`` a row has; 0 where it has fewer.
        parts: for the first, second, … pages of rows: the rows that have one, and which of ``used`` it is.
        page: ``(rows,)`` the page of each row's new token, ``offset`` its place there.
    """

    used: slice | Tensor
    row: Tensor
    part: Tensor
    pages: Tensor
    parts: list[tuple[Tensor, Tensor]]
    page: Tensor
    offset: Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """One step.

    Attributes:
        tiers: of the starts and of the slots.
        paged: of the pages.
        distance: ``(rows, keys)`` tokens between a key and the row's new token, negative where there is no
            key; keys are those of each tier in turn, then those of the pages.
    """

    tiers: list[Tier]
    paged: Paged
    distance: Tensor

    def bias(self, window: int | None) -> Tensor:
        """0 where a row sees a key, minus infinity elsewhere, ``(rows, 1, 1, keys)`` float32."""
        seen = self.distance >= 0
        if window:
            seen &= self.distance < window
        nothing = torch.zeros_like(seen, dtype=torch.float32)
        return nothing.masked_fill(~seen, -torch.inf)[:, None, None]

    def in_order(self) -> tuple[Tensor, Tensor]:
        """Each row's keys without gaps: which they are, ``(rows, longest)``, and whether there is one."""
        seen = self.distance >= 0
        longest = int(seen.sum(dim=1).max())
        order = (~seen).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
        return order, seen.gather(1, order)


def plan_step(
    stores: Sequence[tuple[Tensor, Tensor, Store]],
    row_pages: list[list[int]],
    tails: Tensor,
    pages: Store,
    device: torch.device,
) -> Plan:
    """Plan a step that feeds every row one token.

    Args:
        stores: in the order of a row's tokens: the piece that each row has, ``(rows,)``, its tokens,
            ``(rows,)``, and the store.
        row_pages: each row's pages, that of the new token included.
        tails: ``(rows,)`` tokens fed to each row before.
        pages: their store.
        device: where the plan is to be.
    """
    before = torch.zeros_like(tails)
    here = tails + torch.stack([lengths for _, lengths, _ in stores]).sum(dim=0)
    tiers: list[Tier] = []
    distances: list[Tensor] = []
    for number, (pieces, lengths, store) in enumerate(stores):
        for rows in _alike(pieces, lengths > 0):
            longest = rounded(int(lengths[rows].max()))
            # A product of a part of each piece is of a copy: worth it only for a small part.
            length = store.length if 2 * longest > store.length else longest
            columns = torch.arange(length)
            there = rows[:, None] & (columns < lengths[:, None])
            distances.append(torch.where(there, (here - before)[:, None] - columns, -1))
            tiers.append(_tier(number, length, pieces, rows, store.count))
        before = before + lengths
    paged = _paged(row_pages, tails, pages.count)
    distances.append(tails[:, None] - torch.arange(paged.pages.shape[1] * PAGE))
    plan: Plan = _moved(Plan(tiers, paged, torch.cat(distances, dim=1)), device)
    return plan


def _alike(pieces: Tensor, some: Tensor) -> list[Tensor]:
    """Rows, ``(rows,)`` bool each: those whose piece few others share, and those whose piece very many do.

    Products are padded to the most rows that a piece has, so one popular piece must not be among the others.
    """
    if not bool(some.any()):
        return []
    shared = torch.bincount(pieces[some])[pieces.clamp(max=int(pieces[some].max()))]
    mean = int(some.sum()) / len(torch.unique(pieces[some]))
    popular = some & (shared > 4 * mean)
    return [rows for rows in (some & ~popular, popular) if bool(rows.any())]


def _tier(number: int, length: int, pieces: Tensor, rows: Tensor, count: int) -> Tier:
    """The tier of some of the rows, of a store of ``count`` pieces."""
    which = rows.nonzero().squeeze(1)
    used, found, size = _dense(pieces[which], count)
    counts = torch.bincount(found, minlength=size)
    order = found.argsort(stable=True)
    first = counts.cumsum(0) - counts
    piece, place = torch.zeros(2, len(pieces), dtype=torch.int64)
    piece[which] = found
    place[which[order]] = torch.arange(len(which)) - first[found[order]]
    members = torch.zeros(size, rounded(int(counts.max()), STEP // 2), dtype=torch.int64)
    members[found, place[which]] = which
    has = None if bool(rows.all()) else rows[:, None, None, None].float()
    return Tier(number, length, used, members, piece, place, has)


def _paged(row_pages: list[list[int]], tails: Tensor, count: int) -> Paged:
    """Rows by the pages of each, of ``count``, and by the tokens, ``(rows,)``, there before the new one."""
    most = max(map(len, row_pages))
    listed = torch.tensor([pages + [-1] * (most - len(pages)) for pages in row_pages])
    held = listed >= 0
    used, numbers, size = _dense(listed[held], count)
    pages = torch.zeros_like(listed)
    pages[held] = numbers
    row, part = torch.zeros(2, size, dtype=torch.int64)
    row[numbers], part[numbers] = held.nonzero().T
    parts = [(held[:, i].nonzero().squeeze(1), pages[held[:, i], i]) for i in range(most)]
    page = listed[torch.arange(len(listed)), tails // PAGE]
    return Paged(used, row, part, pages, parts, page, tails % PAGE)


def _dense(used: Tensor, count: int) -> tuple[slice | Tensor, Tensor, int]:
    """What to take of a store of ``count`` so that all of ``used`` is there, where each lies then, how many.

    All up to the last is a view; where little of it is in use, copies of that little are faster.
    """
    last = int(used.max()) + 1
    distinct, where = torch.unique(used, return_inverse=True)
    if 3 * len(distinct) < last:
        filler = distinct.new_zeros(rounded(len(distinct)) - len(distinct))
        return torch.cat([distinct, filler]), where, rounded(len(distinct))
    size = min(rounded(last), count)
    return slice(0, size), used, size


def rounded(number: int, step: int = STEP) -> int:
    """The next multiple of ``step``."""
    return -(-number // step) * step


def _moved(thing: Any, device: torch.device) -> Any:
    """A plan, or a part of one, with its tensors on the device."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, list | tuple):
        return type(thing)(_moved(part, device) for part in thing)
    if isinstance(thing, Plan | Paged | Tier):
        return type(thing)(*(_moved(getattr(thing, field.name), device) for field in fields(thing)))
    return thing
