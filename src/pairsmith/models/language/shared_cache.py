"""Attention for many rows that start from few prompts.

Keys and values of a prefix that many prompts share are stored once, in a **start**; those of the rest of a
prompt once, in a **slot**, however many rows start from it; and those of the tokens fed to a row since, its
**tail**, in **pages** of a few tokens, so that short tails take little memory. A step of attention computes
one product of a start's or slot's keys with the queries of all its rows, and one of each page with its
row's query; takes one softmax over all three; and applies the weights to the values in the same way.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from pairsmith.models.language.attention_plan import PAGE, Plan, Tier, plan_step
from pairsmith.models.language.kv_store import LayerStates, Store

ATTENTION = "pairsmith_shared_prompts"
"""The name under which transformers finds ``attend``. It makes no mask for it; a step's plan has one."""


class SharedCache(Cache):
    """The cache of a session.

    Args:
        rows: the most rows at once, and the number of slots.
        starts: the number of starts and the tokens of the longest one; (0, 0) for none.
        slot: the most tokens of a prompt after its start.
        tail: the most tokens fed to a row.
        folded: whether the model's attention is ``attend``. Otherwise ``update`` returns each row's keys and
            values in full, in order, for the model's own attention.
    """

    def __init__(self, rows: int, starts: tuple[int, int], slot: int, tail: int, *, folded: bool) -> None:
        super().__init__(layers=[])
        self._most_pages = -(-tail // PAGE)
        self.starts = Store(*starts)
        self.slots = Store(rows, slot)
        self._pages = Store(rows * self._most_pages, PAGE)
        self._start_of = torch.full((rows,), -1)  # the start of each slot's prompt
        self._row_slots: list[int] = []
        self._row_pages: list[list[int]] = []
        self._tails: list[int] = []  # tokens fed to each row
        self._free_pages = list(range(self._pages.count))  # a heap
        self._folded = folded
        self._plan: Plan | None = None  # of the current step
        self._none = torch.zeros(0, 0, dtype=torch.int64)
        self._order = self._none  # of each row's keys in that step, for the model's own attention
        self._biases: dict[int | None, Tensor] = {}
        self._layer = 0

    def put(self, slot: int, start: int, states: Sequence[LayerStates]) -> None:
        """Write a prompt's states after its start, or all of them if that is -1, into an unused slot."""
        self.slots.write(slot, states)
        self._pages.prepare(states)
        self._start_of[slot] = start

    @property
    def slots_in_use(self) -> set[int]:
        """The slots that current rows started from."""
        return set(self._row_slots)

    def add_rows(self, slots: Iterable[int]) -> None:
        """Append rows that begin from slots."""
        for slot in slots:
            self._row_slots.append(slot)
            self._row_pages.append([])
            self._tails.append(0)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Make row ``rows[i]`` row i, and drop the others."""
        for row in set(range(len(self._tails))).difference(rows):
            for page in self._row_pages[row]:
                heappush(self._free_pages, page)
        self._row_slots = [self._row_slots[row] for row in rows]
        self._row_pages = [self._row_pages[row] for row in rows]
        self._tails = [self._tails[row] for row in rows]

    @property
    def positions(self) -> Tensor:
        """The position of each row's next token, ``(rows,)`` int64."""
        return sum(self._row_lengths()) + torch.tensor(self._tails)

    def _row_lengths(self) -> tuple[Tensor, Tensor]:
        """Tokens of each row's start and of its slot, each ``(rows,)``."""
        starts = self._start_of[self._row_slots]
        none = torch.zeros_like(starts)
        of_start = torch.where(starts < 0, none, self.starts.lengths[starts]) if self.starts.count else none
        return of_start, self.slots.lengths[self._row_slots]

    @contextmanager
    def step(self, device: torch.device) -> Iterator[Tensor]:
        """A step that feeds every row one token; yields the mask of the keys that each row sees.

        The mask, ``(rows, keys)`` int64, is for models whose attention is not ``attend``.
        """
        for tail, pages in zip(self._tails, self._row_pages, strict=True):
            if tail % PAGE == 0:
                pages.append(heappop(self._free_pages))
        slots, tails = torch.tensor(self._row_slots), torch.tensor(self._tails)
        start, slot = self._row_lengths()
        stores = [
            (self._start_of[slots].clamp(min=0), start, self.starts),
            (slots, slot, self.slots),
        ]
        self._plan = plan_step(stores, self._row_pages, tails, self._pages, device)
        self._order, seen = (self._none, self._none) if self._folded else self._plan.in_order()
        token = _STEPPING.set(self)
        try:
            yield seen.to(torch.int64)
        finally:
            _STEPPING.reset(token)
            self._plan, self._biases = None, {}
        self._tails = [tail + 1 for tail in self._tails]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Write the rows' new keys and values, ``(rows, heads, 1, size)``; padding rows are left out.

        Its arguments are returned if ``attend`` reads the stores, else all keys and values of the rows.
        """
        paged = self._now.paged
        keys, values = self._pages.layers[layer_idx]
        rows = len(paged.page)
        keys[paged.page, :, paged.offset] = key_states[:rows, :, 0]
        values[paged.page, :, paged.offset] = value_states[:rows, :, 0]
        self._layer = layer_idx
        return (key_states, value_states) if self._folded else (self._in_full(0), self._in_full(1))

    def _in_full(self, which: int) -> Tensor:
        """Each row's keys (0) or values (1) in order, ``(rows, heads, keys, size)``."""
        plan = self._now
        parts = [tier.take(self._layer_of(tier, which))[tier.piece] for tier in plan.tiers]
        pages = self._pages.layers[self._layer][which][plan.paged.used][plan.paged.pages]
        joined = torch.cat([*parts, pages.transpose(1, 2).flatten(2, 3)], dim=2)
        order = self._order[:, None, :, None].expand(-1, joined.shape[1], -1, joined.shape[3])
        return joined.gather(2, order)

    def _layer_of(self, tier: Tier, which: int) -> Tensor:
        return (self.starts, self.slots)[tier.store].layers[self._layer][which]

    def attend(self, query: Tensor, scaling: float, softcap: float | None, window: int | None) -> Tensor:
        """Attention of the rows' new tokens in the layer last updated.

        From ``(rows, query heads, 1, size)``, where padding rows may follow the cache's rows, to
        ``(rows, 1, query heads, size)``, zeros for padding. ``softcap`` bounds the products by
        ``softcap * tanh(product / softcap)``; a row attends to ``window`` tokens, including its new one.
        """
        plan, paged = self._now, self._now.paged
        page_keys, page_values = (table[paged.used] for table in self._pages.layers[self._layer])
        given, rows, heads = query.shape[0], len(paged.page), page_keys.shape[1]
        before, after = (scaling, 1.0) if query.dtype == torch.float16 else (1.0, scaling)  # may overflow
        # (rows, key heads, query heads that share one, size)
        query = (query[:rows] * before).view(rows, heads, -1, query.shape[-1])
        shared = query.shape[2]
        scores = [
            tier.spread(tier.gather(query) @ tier.take(self._layer_of(tier, 0)).transpose(2, 3), shared)
            for tier in plan.tiers
        ]
        # (pages, heads, shared, PAGE)
        of_pages = query.index_select(0, paged.row) @ page_keys.transpose(2, 3)
        scores.append(of_pages[paged.pages].permute(0, 2, 3, 1, 4).flatten(3))
        products = torch.cat(scores, dim=3).float().mul_(after)
        if softcap is not None:
            products = products.div_(softcap).tanh_().mul_(softcap)
        if window not in self._biases:
            self._biases[window] = plan.bias(window)
        weights = torch.softmax(products.add_(self._biases[window]), dim=3).to(query.dtype)
        *of_shared, of_tail = torch.split(weights, [part.shape[3] for part in scores], dim=3)
        seen = query.new_zeros(given, *query.shape[1:])
        for tier, part in zip(plan.tiers, of_shared, strict=True):
            seen[:rows] += tier.spread(tier.gather(part) @ tier.take(self._layer_of(tier, 1)), shared)
        from_pages = of_tail.view(rows, heads, shared, -1, PAGE)[paged.row, :, :, paged.part] @ page_values
        for of_rows, pages in paged.parts:
            seen[of_rows] += from_pages[pages]
        return seen.reshape(given, 1, -1, seen.shape[-1])

    @property
    def _now(self) -> Plan:
        assert self._plan is not None, "only within a step"
        return self._plan

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of keys before a step's new one."""
        return self.get_mask_sizes(1, layer_idx)[0] - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length and offset of the keys that a step attends to."""
        del query_length, layer_idx
        return self._order.shape[1], 0


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
    """Attention of a step, with the signature that transformers calls."""
    del module, key, value, attention_mask
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _STEPPING.get().attend(query, factor, softcap, sliding_window), None


AttentionInterface.register(ATTENTION, attend)
