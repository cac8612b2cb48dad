"""The plan of a decoding step: which rows attend to which keys. It is computed once for all layers.

A store holds cached prefixes, its pieces. Rows that share a piece are grouped, so that one matrix product
with the piece serves all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pairsmith.models.language.kv_store import Store

STEP = 8
"""Numbers of rows and pieces in a matrix product are rounded up to multiples of this.

The libraries that torch uses compile a product for each new shape, which takes a millisecond, and keep the
compiled product in memory.
"""


@dataclass(frozen=True, slots=True)
class Tier:
    """Rows with pieces of one store, grouped by the piece that they share; a group is padded to ``size``."""

    store: int  # index of the store that holds the pieces
    length: int  # tokens of each piece that take part in the products
    pieces: slice | Tensor  # the pieces that take part
    members: Tensor  # (pieces, size): the rows that share each piece, padded with row 0
    piece_of_row: Tensor  # (rows,): index in ``pieces`` of each row's piece, 0 for a row without one
    member_of_row: Tensor  # (rows,): where each row stands in ``members.flatten()``, likewise
    has_piece: Tensor | None  # (rows, 1, 1, 1): 1 for a row with a piece, else 0; None if all have one

    def gather(self, of_rows: Tensor) -> Tensor:
        """Rearrange ``(rows, heads, shared, x)`` to ``(pieces, heads, size * shared, x)``."""
        # index_select copies whole rows, while indexing copies element by element.
        gathered = of_rows.index_select(0, self.members.flatten()).view(
            *self.members.shape, *of_rows.shape[1:]
        )
        return gathered.transpose(1, 2).reshape(len(self.members), of_rows.shape[1], -1, of_rows.shape[-1])

    def spread(self, of_pieces: Tensor, shared: int) -> Tensor:
        """Undo ``gather``: to ``(rows, heads, shared, x)``; rows without a piece get another row's values."""
        split = of_pieces.view(*of_pieces.shape[:2], -1, shared, of_pieces.shape[3])
        return split.transpose(1, 2).flatten(0, 1).index_select(0, self.member_of_row)

    def take(self, table: Tensor) -> Tensor:
        """The tier's part of a store's keys or values, ``(pieces, heads, length, size)``."""
        return table[self.pieces][:, :, : self.length]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one decoding step.

    The model may be called with padding rows, to round the number of rows up; ``rows`` includes them.

    ``distance``, ``(rows, keys)``, is the number of tokens between a key and the row's new token, negative
    where there is no key. The keys are those of each tier in turn, then those of the row's tail. A padding
    row attends to all keys, so that its attention weights are finite.
    """

    tiers: list[Tier]
    tail: int  # tokens of each tail that take part in the products
    distance: Tensor
    real_rows: Tensor  # (real rows,): their numbers
    new_places: Tensor  # (real rows,): the place of each one's new token in its tail

    def bias(self, window: int | None) -> Tensor:
        """0 where a row sees a key, minus infinity elsewhere, ``(rows, 1, 1, keys)`` float32."""
        seen = self.distance >= 0
        if window:
            seen &= self.distance < window
        nothing = torch.zeros_like(seen, dtype=torch.float32)
        return nothing.masked_fill(~seen, -torch.inf)[:, None, None]

    def in_order(self) -> tuple[Tensor, Tensor]:
        """The indices of each row's keys in order, without gaps, ``(rows, longest)``; a mask of real keys."""
        seen = self.distance >= 0
        longest = int(seen.sum(dim=1).max())
        order = (~seen).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
        return order, seen.gather(1, order)


def plan_decoding_step(
    stores: Sequence[tuple[Tensor, Tensor, Store]], tails: Tensor, tail: int, count: int, device: torch.device
) -> Plan:
    """Plan a step that feeds every row one token.

    Args:
        stores: in the order of a row's tokens, for each store: the piece of each row, ``(rows,)``, the number
            of tokens of that piece, ``(rows,)``, and the store itself.
        tails: ``(rows,)``, the number of tokens that were fed to each row before this step.
        tail: the largest number of tokens that can be fed to a row.
        count: the number of rows with which the model is called: the real rows and padding rows.
        device: the device of the plan's tensors.
    """
    padding = count - len(tails)
    tokens_before = torch.zeros_like(tails)  # each row's tokens in the stores before
    positions = tails + torch.stack([lengths for _, lengths, _ in stores]).sum(dim=0)
    tiers: list[Tier] = []
    distances: list[Tensor] = []
    for number, (pieces, lengths, store) in enumerate(stores):
        for in_tier in _by_popularity(pieces, lengths > 0):
            length = _multiplied_tokens(int(lengths[in_tier].max()), store.length)
            columns = torch.arange(length)
            has_key = in_tier[:, None] & (columns < lengths[:, None])
            distances.append(torch.where(has_key, (positions - tokens_before)[:, None] - columns, -1))
            tiers.append(_grouped_by_piece(number, length, pieces, in_tier, store.count, padding))
        tokens_before = tokens_before + lengths
    tail = _multiplied_tokens(int(tails.max()) + 1, tail)
    distances.append(tails[:, None] - torch.arange(tail))
    distance = torch.nn.functional.pad(torch.cat(distances, dim=1), (0, 0, 0, padding))
    plan: Plan = _moved(Plan(tiers, tail, distance, torch.arange(len(tails)), tails), device)
    return plan


def _multiplied_tokens(longest: int, room: int) -> int:
    """How many tokens of each piece are multiplied: the longest has ``longest``, and there is ``room``."""
    # Multiplying only a part of each piece needs a copy: worth it only for a small part.
    return room if 2 * rounded_up(longest) > room else rounded_up(longest)


def _by_popularity(piece_of_row: Tensor, has_piece: Tensor) -> list[Tensor]:
    """Split rows, into masks ``(rows,)``, by whether few or very many rows share their piece.

    Products are padded to the largest number of rows that share a piece, so that the few pieces that very
    many rows share are multiplied apart from the others.
    """
    if not bool(has_piece.any()):
        return []
    pieces = piece_of_row[has_piece]
    sharing_rows = torch.bincount(pieces)[piece_of_row.clamp(max=int(pieces.max()))]
    mean = len(pieces) / len(torch.unique(pieces))
    popular = has_piece & (sharing_rows > 4 * mean)
    return [rows for rows in (has_piece & ~popular, popular) if bool(rows.any())]


def _grouped_by_piece(
    store: int, length: int, piece_of_row: Tensor, in_tier: Tensor, count: int, padding: int
) -> Tier:
    """Group the rows ``in_tier`` that share a piece, so that one product with the piece serves all of them.

    ``piece_of_row``, ``(rows,)``, are pieces in a store of ``count``; ``padding`` rows follow the real ones.
    """
    rows = in_tier.nonzero().squeeze(1)
    pieces, piece_indices, piece_count = _multiplied_pieces(piece_of_row[rows], count)
    group_sizes = torch.bincount(piece_indices, minlength=piece_count)
    size = rounded_up(int(group_sizes.max()), STEP // 2)
    # Number the rows of each group from 0 on.
    by_piece = piece_indices.argsort(stable=True)
    first_of_group = group_sizes.cumsum(0) - group_sizes
    ranks = torch.empty_like(rows)
    ranks[by_piece] = torch.arange(len(rows)) - first_of_group[piece_indices[by_piece]]
    members = torch.zeros(piece_count, size, dtype=torch.int64)
    members[piece_indices, ranks] = rows
    index_of_row, member_of_row = torch.zeros(2, len(piece_of_row) + padding, dtype=torch.int64)
    index_of_row[rows] = piece_indices
    member_of_row[rows] = piece_indices * size + ranks
    all_have = bool(in_tier.all()) and not padding
    has_piece = (
        None if all_have else torch.nn.functional.pad(in_tier, (0, padding))[:, None, None, None].float()
    )
    return Tier(store, length, pieces, members, index_of_row, member_of_row, has_piece)


def _multiplied_pieces(needed: Tensor, count: int) -> tuple[slice | Tensor, Tensor, int]:
    """Choose the pieces of a store that take part in a product; the store has ``count`` pieces.

    ``needed``, ``(rows,)``, is the piece of each row. Returns the chosen pieces, the index of each row's
    piece among them, and their number. A slice up to the last piece that is needed is a view. If few pieces
    before it are needed, it is faster to copy those few.
    """
    last = int(needed.max()) + 1
    distinct, indices = torch.unique(needed, return_inverse=True)
    if 3 * len(distinct) < last:
        filler = distinct.new_zeros(rounded_up(len(distinct)) - len(distinct))
        return torch.cat([distinct, filler]), indices, rounded_up(len(distinct))
    size = min(rounded_up(last), count)
    return slice(0, size), needed, size


def rounded_up(number: int, step: int = STEP) -> int:
    """``number`` rounded up to a multiple of ``step``."""
    return -(-number // step) * step


def _moved(part: Any, device: torch.device) -> Any:
    """A plan, or a part of one, with its tensors on the device."""
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, list):
        return [_moved(item, device) for item in part]
    if isinstance(part, Plan | Tier):
        return type(part)(*(_moved(getattr(part, field.name), device) for field in fields(part)))
    return part
