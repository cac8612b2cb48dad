"""Which rows attend to which keys in one decoding step, computed once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pairsmith.models.language.kv_store import Store

STEP = 8
"""Numbers of rows and pieces in a matrix product are rounded up to multiples of this. The libraries
below torch compile a product for each new shape, which takes a millisecond, and keep it in memory."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Some rows, and the pieces of a store that they share."""

    store: int  # index of the store that holds the pieces
    length: int  # tokens of each piece that take part in the products
    used: slice | Tensor  # the pieces that take part
    members: Tensor  # (pieces, most): the rows that share each of ``used``, padded with 0
    piece: Tensor  # (rows,): index in ``used`` of each row's piece, 0 for a row without one
    place: Tensor  # (rows,): where the row is among all members, one piece's after another's, likewise
    has: Tensor | None  # (rows, 1, 1, 1): 1 for a row with a piece, else 0; None if all have one

    def gather(self, of_rows: Tensor) -> Tensor:
        """Rearrange ``(rows, heads, shared, x)`` to ``(pieces, heads, most * shared, x)``."""
        # index_select copies whole rows, while indexing copies element by element.
        gathered = of_rows.index_select(0, self.members.flatten()).view(
            *self.members.shape, *of_rows.shape[1:]
        )
        return gathered.transpose(1, 2).reshape(len(self.members), of_rows.shape[1], -1, of_rows.shape[-1])

    def spread(self, of_pieces: Tensor, shared: int) -> Tensor:
        """Undo ``gather``: to ``(rows, heads, shared, x)``, with another row's for one without a piece."""
        split = of_pieces.view(*of_pieces.shape[:2], -1, shared, of_pieces.shape[3])
        return split.transpose(1, 2).flatten(0, 1).index_select(0, self.place)

    def take(self, table: Tensor) -> Tensor:
        """The tier's part of a store's keys or values, ``(pieces, heads, length, size)``."""
        return table[self.used][:, :, : self.length]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one decoding step.

    The model may be called with more rows than there are, for a round number; ``rows`` includes them.

    ``distance``, ``(rows, keys)``, is the number of tokens between a key and the row's new token, negative
    where there is no key; the keys are those of each tier in turn, then those of the row's tail. A row that
    is no real one sees all keys, so that its weights are numbers.
    """

    tiers: list[Tier]
    tail: int  # tokens of each tail that take part in the products
    distance: Tensor
    row: Tensor  # (real rows,): their numbers
    tails: Tensor  # (real rows,): the place of each one's new token in its tail

    def bias(self, window: int | None) -> Tensor:
        """0 where a row sees a key, minus infinity elsewhere, ``(rows, 1, 1, keys)`` float32."""
        seen = self.distance >= 0
        if window:
            seen &= self.distance < window
        nothing = torch.zeros_like(seen, dtype=torch.float32)
        return nothing.masked_fill(~seen, -torch.inf)[:, None, None]

    def in_order(self) -> tuple[Tensor, Tensor]:
        """The indices of each row's keys without gaps, ``(rows, longest)``, and a mask of real keys."""
        seen = self.distance >= 0
        longest = int(seen.sum(dim=1).max())
        order = (~seen).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
        return order, seen.gather(1, order)


def plan_decoding_step(
    stores: Sequence[tuple[Tensor, Tensor, Store]],
    tails: Tensor,
    tail: int,
    count: int,
    device: torch.device,
) -> Plan:
    """Plan a step that feeds every row one token.

    Args:
        stores: in the order of a row's tokens: each row's piece, ``(rows,)``, the piece's number of tokens,
            ``(rows,)``, and the store.
        tails: ``(rows,)`` tokens fed to each row before this step.
        tail: the most tokens that can be fed to a row.
        count: with how many rows the model is called, at least that of real rows.
        device: where the plan's tensors are put.
    """
    filler = (0, count - len(tails))
    before = torch.zeros_like(tails)
    positions = tails + torch.stack([lengths for _, lengths, _ in stores]).sum(dim=0)
    tiers: list[Tier] = []
    distances: list[Tensor] = []
    for number, (pieces, lengths, store) in enumerate(stores):
        for rows in _alike(pieces, lengths > 0):
            length = _taken(int(lengths[rows].max()), store.length)
            columns = torch.arange(length)
            held = rows[:, None] & (columns < lengths[:, None])
            distances.append(torch.where(held, (positions - before)[:, None] - columns, -1))
            tiers.append(_tier(number, length, pieces, rows, store.count, filler))
        before = before + lengths
    tail = _taken(int(tails.max()) + 1, tail)
    distances.append(tails[:, None] - torch.arange(tail))
    distance = torch.nn.functional.pad(torch.cat(distances, dim=1), (0, 0, *filler))
    plan: Plan = _moved(Plan(tiers, tail, distance, torch.arange(len(tails)), tails), device)
    return plan


def _taken(longest: int, most: int) -> int:
    """How many token positions are multiplied, where pieces have room for ``most`` and the longest has
    ``longest``."""
    # Multiplying only a part of each piece needs a copy: worth it only for a small part.
    return most if 2 * rounded_up(longest) > most else rounded_up(longest)


def _alike(pieces: Tensor, holding: Tensor) -> list[Tensor]:
    """Split rows, into masks ``(rows,)``, by whether few or very many other rows share their piece.

    Products are padded to the most rows of any piece, so popular pieces must be kept apart.
    """
    if not bool(holding.any()):
        return []
    shared = torch.bincount(pieces[holding])[pieces.clamp(max=int(pieces[holding].max()))]
    mean = int(holding.sum()) / len(torch.unique(pieces[holding]))
    popular = holding & (shared > 4 * mean)
    return [rows for rows in (holding & ~popular, popular) if bool(rows.any())]


def _tier(
    number: int, length: int, pieces: Tensor, rows: Tensor, count: int, filler: tuple[int, int]
) -> Tier:
    """The tier of some of the rows, for a store of ``count`` pieces; ``filler`` is what pads the rows."""
    which = rows.nonzero().squeeze(1)
    used, indices, size = _dense(pieces[which], count)
    counts = torch.bincount(indices, minlength=size)
    order = indices.argsort(stable=True)
    first = counts.cumsum(0) - counts
    most = rounded_up(int(counts.max()), STEP // 2)
    piece, place, column = torch.zeros(3, len(pieces) + filler[1], dtype=torch.int64)
    piece[which] = indices
    column[which[order]] = torch.arange(len(which)) - first[indices[order]]
    place[which] = indices * most + column[which]
    members = torch.zeros(size, most, dtype=torch.int64)
    members[indices, column[which]] = which
    everywhere = bool(rows.all()) and not filler[1]
    has = None if everywhere else torch.nn.functional.pad(rows, filler)[:, None, None, None].float()
    return Tier(number, length, used, members, piece, place, has)


def _dense(used: Tensor, count: int) -> tuple[slice | Tensor, Tensor, int]:
    """An index into a store of ``count`` that includes all of ``used``, each one's place in it, and its size.

    A slice up to the last one used is a view; where few before it are used, copying those few is faster.
    """
    last = int(used.max()) + 1
    distinct, where = torch.unique(used, return_inverse=True)
    if 3 * len(distinct) < last:
        filler = distinct.new_zeros(rounded_up(len(distinct)) - len(distinct))
        return torch.cat([distinct, filler]), where, rounded_up(len(distinct))
    size = min(rounded_up(last), count)
    return slice(0, size), used, size


def rounded_up(number: int, step: int = STEP) -> int:
    """``number`` rounded up to a multiple of ``step``."""
    return -(-number // step) * step


def _moved(thing: Any, device: torch.device) -> Any:
    """A plan, or a part of one, with its tensors on the device."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, list | tuple):
        return type(thing)(_moved(part, device) for part in thing)
    if isinstance(thing, Plan | Tier):
        return type(thing)(*(_moved(getattr(thing, field.name), device) for field in fields(thing)))
    return thing
