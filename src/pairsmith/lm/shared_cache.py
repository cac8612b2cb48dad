"""Attention of many rows that begin from few prompts.

What many prompts start with lies once in a **start**, the rest of each prompt once in a **slot**, however
many rows begin from it. What a row was fed since, its **tail**, lies in **pages** of a few tokens, so that
short tails take little memory. One step of attention multiplies the queries of all rows of a start, and of
a slot, with its keys at once, and each page's row with the page; takes one softmax over all three; and
goes back through the values alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from pairsmith.lm.kv_store import LayerStates, Store

ATTENTION = "pairsmith_shared_prompts"
"""The name under which transformers finds ``attend``. It makes no mask for it; the plan of a step has one."""

PAGE = 16
"""Tokens of a page."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Which rows share which pieces of a store.

    Attributes:
        used: the pieces that are multiplied.
        members: ``(pieces, most)`` rows of each of ``used``; 0 where one has fewer.
        piece: ``(rows,)`` which of ``used`` each row has, and ``place`` its column in ``members``.
    """

    used: slice | Tensor
    members: Tensor
    piece: Tensor
    place: Tensor

    def gather(self, of_rows: Tensor) -> Tensor:
        """``(rows, heads, shared, x)`` to ``(pieces, heads, most * shared, x)``."""
        gathered = of_rows[self.members].transpose(1, 2)
        return gathered.reshape(len(self.members), of_rows.shape[1], -1, of_rows.shape[-1])

    def spread(self, of_pieces: Tensor, shared: int) -> Tensor:
        """``(pieces, heads, most * shared, x)`` to ``(rows, heads, shared, x)``."""
        split = of_pieces.view(*of_pieces.shape[:2], -1, shared, of_pieces.shape[3])
        return split.transpose(1, 2)[self.piece, self.place]


@dataclass(frozen=True, slots=True)
class _Paged:
    """Which rows have which pages.

    Attributes:
        used: the pages that are multiplied.
        row: ``(pages,)`` row of each of ``used``, ``part`` which of its pages it is; 0 if in no use.
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
class _Plan:
    """Who attends to what in one step; the same for all layers.

    Attributes:
        shared: of the starts, if there are any, and of the slots.
        paged: of the pages.
        distance: ``(rows, keys)`` tokens between a key and the row's new token, negative where there is no
            key: those of the start, of the slot, of the pages.
    """

    shared: list[_Shared]
    paged: _Paged
    distance: Tensor

    def bias(self, window: int | None) -> Tensor:
        """0 where a row sees a key, minus infinity elsewhere, ``(rows, 1, 1, keys)`` float32."""
        seen = self.distance >= 0
        if window:
            seen &= self.distance < window
        nothing = torch.zeros_like(seen, dtype=torch.float32)
        return nothing.masked_fill(~seen, -torch.inf)[:, None, None]


class SharedCache(Cache):
    """The cache of a session.

    Args:
        rows: the most rows at once, and the most slots.
        starts: how many there may be, and the tokens of the longest; 0 of 0 tokens for none.
        slot: tokens of the longest rest of a prompt.
        tail: the most tokens fed to a row.
        folded: whether the model's attention is ``attend``. Otherwise ``update`` gives each row's keys and
            values in full, in order, for whatever attention the model has.
    """

    def __init__(self, rows: int, starts: tuple[int, int], slot: int, tail: int, *, folded: bool) -> None:
        super().__init__(layers=[])
        self._most_pages = -(-tail // PAGE)
        self._starts = Store(*starts)
        self._slots = Store(rows, slot)
        self._pages = Store(rows * self._most_pages, PAGE)
        self._start_of = torch.full((rows,), -1)  # of each slot
        self._row_slots: list[int] = []
        self._row_pages: list[list[int]] = []
        self._tails: list[int] = []  # tokens fed to each row
        self._free_pages = list(range(self._pages.count))  # a heap
        self._folded = folded
        self._plan: _Plan | None = None  # of the step being made
        self._biases: dict[int | None, Tensor] = {}
        self._layer = 0

    def put_start(self, start: int, states: Sequence[LayerStates]) -> None:
        """Write a start."""
        self._prepare(states)
        self._starts.write(start, states)

    def start(self, start: int) -> list[LayerStates]:
        """What ``put_start`` wrote; views."""
        return self._starts.read(start)

    def put(self, slot: int, start: int, states: Sequence[LayerStates]) -> None:
        """Write what follows a start, or a whole prompt if that is -1, into a slot that no row uses."""
        self._prepare(states)
        self._slots.write(slot, states)
        self._start_of[slot] = start

    def read(self, slot: int) -> list[LayerStates]:
        """What ``put`` wrote; views."""
        return self._slots.read(slot)

    @property
    def slots_in_use(self) -> set[int]:
        """The slots that rows began from."""
        return set(self._row_slots)

    def _prepare(self, like: Sequence[LayerStates]) -> None:
        for store in (self._starts, self._slots, self._pages):
            store.prepare(like)

    def add_rows(self, slots: Iterable[int]) -> None:
        """Append rows that begin from slots."""
        for slot in slots:
            self._row_slots.append(slot)
            self._row_pages.append([])
            self._tails.append(0)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Row ``rows[i]`` becomes row i; the others leave."""
        for row in set(range(len(self._tails))).difference(rows):
            for page in self._row_pages[row]:
                heappush(self._free_pages, page)
        self._row_slots = [self._row_slots[row] for row in rows]
        self._row_pages = [self._row_pages[row] for row in rows]
        self._tails = [self._tails[row] for row in rows]

    @property
    def positions(self) -> Tensor:
        """Where each row's next token stands, ``(rows,)`` int64."""
        return sum(self._row_lengths()) + torch.tensor(self._tails)

    def _row_lengths(self) -> tuple[Tensor, Tensor]:
        """Tokens of each row's start and of its slot, each ``(rows,)``."""
        starts = self._start_of[self._row_slots]
        none = torch.zeros_like(starts)
        of_start = torch.where(starts < 0, none, self._starts.lengths[starts]) if self._starts.count else none
        return of_start, self._slots.lengths[self._row_slots]

    @contextmanager
    def step(self, device: torch.device) -> Iterator[Tensor]:
        """A step that feeds every row one token; gives the mask of the keys that each row sees.

        The mask, ``(rows, keys)`` int64, is for models whose attention is not ``attend``.
        """
        for tail, pages in zip(self._tails, self._row_pages, strict=True):
            if tail % PAGE == 0:
                pages.append(heappop(self._free_pages))
        with torch.device("cpu"):
            self._plan = self._planned(device)
        token = _STEPPING.set(self)
        try:
            yield (self._plan.distance >= 0).to(torch.int64)
        finally:
            _STEPPING.reset(token)
            self._plan, self._biases = None, {}
        self._tails = [tail + 1 for tail in self._tails]

    def _planned(self, device: torch.device) -> _Plan:
        slots, tails = torch.tensor(self._row_slots), torch.tensor(self._tails)
        paged = _paged(self._row_pages, tails)
        start, slot = (length[:, None] for length in self._row_lengths())
        in_start, in_slot = torch.arange(self._starts.length), torch.arange(self._slots.length)
        in_pages = torch.arange(paged.pages.shape[1] * PAGE)
        here = start + slot + tails[:, None]
        of_start = torch.where(in_start < start, here - in_start, -1)
        of_slot = torch.where(in_slot < slot, here - start - in_slot, -1)
        distance = torch.cat([of_start, of_slot, tails[:, None] - in_pages], dim=1)
        shared = [_shared(slots)]
        if self._starts.count:
            shared.insert(0, _shared(self._start_of[slots].clamp(min=0)))
        plan: _Plan = _moved(_Plan(shared, paged, distance), device)
        return plan

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Write the rows' new keys and values, ``(rows, heads, 1, size)``.

        Returns:
            what it was given when ``attend`` takes them from the stores, else all keys and values.
        """
        paged = self._now.paged
        keys, values = self._pages.layers[layer_idx]
        keys[paged.page, :, paged.offset] = key_states[:, :, 0]
        values[paged.page, :, paged.offset] = value_states[:, :, 0]
        self._layer = layer_idx
        return (key_states, value_states) if self._folded else (self._in_full(0), self._in_full(1))

    def _in_full(self, which: int) -> Tensor:
        """Each row's keys (0) or values (1), ``(rows, heads, keys, size)``."""
        plan = self._now
        shared = self._shared_layer(which)
        parts = [table[s.used][s.piece] for s, table in zip(plan.shared, shared, strict=True)]
        pages = self._pages.layers[self._layer][which][plan.paged.used]
        return torch.cat([*parts, _joined(pages[plan.paged.pages])], dim=2)

    def _shared_layer(self, which: int) -> list[Tensor]:
        stores = (self._starts, self._slots) if self._starts.count else (self._slots,)
        return [store.layers[self._layer][which] for store in stores]

    def attend(self, query: Tensor, scaling: float, softcap: float | None, window: int | None) -> Tensor:
        """Attention of the rows' new tokens in the layer last updated.

        Args:
            query: ``(rows, query heads, 1, size)``.
            scaling: of the products.
            softcap: bounds them by ``softcap * tanh(product / softcap)``.
            window: how many tokens a row looks back on, its new one included.

        Returns:
            ``(rows, 1, query heads, size)``.
        """
        plan, paged = self._now, self._now.paged
        page_keys, page_values = (table[paged.used] for table in self._pages.layers[self._layer])
        rows, heads = query.shape[0], page_keys.shape[1]
        query = query.view(rows, heads, -1, query.shape[-1])  # query heads that share a key head
        shared = query.shape[2]
        scores = [
            s.spread(s.gather(query) @ keys[s.used].transpose(2, 3), shared)
            for s, keys in zip(plan.shared, self._shared_layer(0), strict=True)
        ]
        of_pages = query[paged.row] @ page_keys.transpose(2, 3)  # (pages, heads, shared, PAGE)
        scores.append(of_pages[paged.pages].permute(0, 2, 3, 1, 4).flatten(3))
        products = torch.cat(scores, dim=3).float().mul_(scaling)
        if softcap is not None:
            products = products.div_(softcap).tanh_().mul_(softcap)
        if window not in self._biases:
            self._biases[window] = plan.bias(window)
        weights = torch.softmax(products.add_(self._biases[window]), dim=3).to(query.dtype)
        *of_shared, of_tail = torch.split(weights, [part.shape[3] for part in scores], dim=3)
        seen = torch.zeros_like(query)
        for s, values, part in zip(plan.shared, self._shared_layer(1), of_shared, strict=True):
            seen += s.spread(s.gather(part) @ values[s.used], shared)
        from_pages = of_tail.view(rows, heads, shared, -1, PAGE)[paged.row, :, :, paged.part] @ page_values
        for of_rows, pages in paged.parts:
            seen[of_rows] += from_pages[pages]
        return seen.reshape(rows, 1, -1, seen.shape[-1])

    @property
    def _now(self) -> _Plan:
        assert self._plan is not None, "only within a step"
        return self._plan

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Keys before a step's new one."""
        return self.get_mask_sizes(1, layer_idx)[0] - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length and offset of the keys that a step looks at."""
        del query_length, layer_idx
        return self._now.distance.shape[1], 0


def _shared(pieces: Tensor) -> _Shared:
    """Rows by the pieces, ``(rows,)``, that they have."""
    used, piece = _dense(pieces)
    counts = torch.bincount(piece)
    order = piece.argsort(stable=True)
    first = counts.cumsum(0) - counts
    place = torch.empty_like(piece)
    place[order] = torch.arange(len(piece)) - first[piece[order]]
    members = torch.zeros(len(counts), int(counts.max()), dtype=torch.int64)
    members[piece, place] = torch.arange(len(piece))
    return _Shared(used, members, piece, place)


def _paged(row_pages: list[list[int]], tails: Tensor) -> _Paged:
    """Rows by the pages of each, and by the tokens, ``(rows,)``, that are there before the new one."""
    most = max(map(len, row_pages))
    listed = torch.tensor([pages + [-1] * (most - len(pages)) for pages in row_pages])
    held = listed >= 0
    used, numbers = _dense(listed[held])
    pages = torch.zeros_like(listed)
    pages[held] = numbers
    row, part = torch.zeros(2, 1 + int(numbers.max()), dtype=torch.int64)
    row[numbers], part[numbers] = held.nonzero().T
    parts = [(held[:, i].nonzero().squeeze(1), pages[held[:, i], i]) for i in range(most)]
    page = listed[torch.arange(len(listed)), tails // PAGE]
    return _Paged(used, row, part, pages, parts, page, tails % PAGE)


def _dense(used: Tensor) -> tuple[slice | Tensor, Tensor]:
    """What to take of a store so that all of ``used`` is there, and where each then lies.

    All up to the last is a view; where little of it is in use, copies of that little are faster.
    """
    last = int(used.max()) + 1
    distinct, where = torch.unique(used, return_inverse=True)
    return (distinct, where) if 3 * len(distinct) < last else (slice(0, last), used)


def _joined(of_pages: Tensor) -> Tensor:
    """``(rows, most, heads, PAGE, x)`` to ``(rows, heads, most * PAGE, x)``."""
    return of_pages.transpose(1, 2).flatten(2, 3)


def _moved(thing: Any, device: torch.device) -> Any:
    """A plan, or a part of one, with its tensors on the device."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, list | tuple):
        return type(thing)(_moved(part, device) for part in thing)
    if isinstance(thing, _Plan | _Paged | _Shared):
        return type(thing)(*(_moved(getattr(thing, field.name), device) for field in fields(thing)))
    return thing


_STEPPING: ContextVar[SharedCache] = ContextVar("stepping")


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of a step, in the form that transformers calls."""
    del module, key, value, attention_mask
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _STEPPING.get().attend(query, factor, softcap, sliding_window), None


AttentionInterface.register(ATTENTION, attend)
