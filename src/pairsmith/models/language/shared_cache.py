"""Attention for many rows that start from few prompts.

Keys and values are stored in three parts. A **start** holds a prefix that several prompts share. A **slot**
holds the rest of a prompt, once for all rows that start from it. The **tail** of a row holds the tokens that
were fed to the row since. A step of attention multiplies the keys of a start or slot with the queries of all
its rows in one product, and the keys of each tail with the query of its row. It takes one softmax over all
three parts, and applies the weights to the values in the same way.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from pairsmith.models.language.attention_plan import Plan, Tier, plan_decoding_step, rounded_up
from pairsmith.models.language.kv_store import LayerStates, Store

ATTENTION = "pairsmith_shared_prompts"
"""The name under which transformers finds ``attend``. Masks come from the plan of a step."""


class SharedCache(Cache):
    """The cache of a session.

    Args:
        rows: the largest number of rows at once.
        starts: the number of starts, and the length in tokens of the longest one; (0, 0) for none.
        slot: the largest number of tokens of a prompt after its start.
        tail: the largest number of tokens that are fed to a row.
        slots: the number of slots.
        shared: whether the model's attention is ``attend``. Otherwise ``update`` returns each row's keys and
            values in full, in order, for the model's own attention.
    """

    def __init__(
        self,
        rows: int,
        starts: tuple[int, int],
        slot: int,
        tail: int,
        *,
        slots: int,
        shared: bool,
    ) -> None:
        super().__init__(layers=[])
        self.starts = Store(*starts)
        self.slots = Store(slots, slot)
        self._tails = Store(rounded_up(rows), tail)
        self._start_of = torch.full((self.slots.count,), -1)  # the start of each slot's prompt
        self._row_slots: list[int] = []
        self._fed: list[int] = []  # tokens fed to each row
        self._shared = shared
        self._plan: Plan | None = None  # of the current step
        self._none = torch.zeros(0, 0, dtype=torch.int64)
        self._order = self._none  # of each row's keys in that step, for the model's own attention
        self._biases: dict[int | None, Tensor] = {}
        self._layer = 0

    def put(self, slot: int, start: int, states: Sequence[LayerStates]) -> None:
        """Write a prompt's keys and values after its start into an unused slot; -1 stands for no start."""
        self.slots.write(slot, states)
        self._tails.prepare(states)
        self._start_of[slot] = start

    @property
    def slots_in_use(self) -> set[int]:
        """The slots that current rows started from."""
        return set(self._row_slots)

    def add_rows(self, slots: Iterable[int]) -> None:
        """Append rows that begin from slots."""
        for slot in slots:
            self._row_slots.append(slot)
            self._fed.append(0)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Make row ``rows[i]`` row i, and drop the others; only tails that change their place are copied."""
        moved = [(place, row) for place, row in enumerate(rows) if place != row]
        if moved:
            (keys, _), *_ = self._tails.layers
            places, old = torch.tensor(moved, device=keys.device).T
            longest = max(self._fed[row] for row in rows)
            for layer in self._tails.layers:
                for table in layer:
                    fed = table[:, :, :longest]
                    fed[places] = fed[old]
        self._row_slots = [self._row_slots[row] for row in rows]
        self._fed = [self._fed[row] for row in rows]

    @contextmanager
    def step(self, device: torch.device, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A step that feeds every row one token: yields the positions of these tokens, and a mask.

        The model is called with ``rows`` rows; those after the cache's own are padding. The positions are
        ``(cache's rows,)`` int64. The mask of the keys that each row sees, ``(rows, keys)`` int64, is for
        models whose attention is not ``attend``.
        """
        slots, fed = torch.tensor(self._row_slots), torch.tensor(self._fed)
        starts, of_slots = self._start_of[slots], self.slots.lengths[slots]
        of_starts = torch.zeros_like(starts)
        if self.starts.count:
            of_starts = self.starts.lengths[starts].where(starts >= 0, of_starts)
        stores = [(starts.clamp(min=0), of_starts, self.starts), (slots, of_slots, self.slots)]
        self._plan = plan_decoding_step(stores, fed, self._tails.length, rows, device)
        self._order, seen = (self._none, self._none) if self._shared else self._plan.in_order()
        token = _STEPPING.set(self)
        try:
            yield of_starts + of_slots + fed, seen.to(torch.int64)
        finally:
            _STEPPING.reset(token)
            self._plan, self._biases = None, {}
        self._fed = [fed + 1 for fed in self._fed]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Write the rows' new keys and values, ``(rows, heads, 1, size)``; padding rows are left out.

        If ``attend`` reads the stores, the arguments are returned; else all keys and values of each row.
        """
        plan = self._now
        for table, new in zip(self._tails.layers[layer_idx], (key_states, value_states), strict=True):
            table[plan.real_rows, :, plan.new_places] = new[: len(plan.real_rows), :, 0]
        self._layer = layer_idx
        return (key_states, value_states) if self._shared else (self._in_full(0), self._in_full(1))

    def _in_full(self, which: int) -> Tensor:
        """Each row's keys (0) or values (1) in order, ``(rows, heads, keys, size)``."""
        plan = self._now
        parts = [tier.take(self._layer_of(tier, which))[tier.piece_of_row] for tier in plan.tiers]
        tails = self._tails.layers[self._layer][which][: len(plan.real_rows), :, : plan.tail]
        joined = torch.cat([*parts, tails], dim=2)
        order = self._order[:, None, :, None].expand(-1, joined.shape[1], -1, joined.shape[3])
        return joined.gather(2, order)

    def _layer_of(self, tier: Tier, which: int) -> Tensor:
        return (self.starts, self.slots)[tier.store].layers[self._layer][which]

    def attend(self, query: Tensor, scaling: float, softcap: float | None, window: int | None) -> Tensor:
        """Attention of the rows' new tokens in the layer last updated.

        ``query`` is ``(rows, query heads, 1, size)``; padding rows may follow the cache's rows. The result is
        ``(rows, 1, query heads, size)``, undefined for padding rows. ``softcap`` bounds the products by
        ``softcap * tanh(product / softcap)``. A row attends to ``window`` tokens, its new token included.
        """
        plan = self._now
        keys, values = (table[: len(query), :, : plan.tail] for table in self._tails.layers[self._layer])
        before, after = (scaling, 1.0) if query.dtype == torch.float16 else (1.0, scaling)  # may overflow
        # (rows, key heads, query heads that share one, size)
        query = (query * before).view(len(query), keys.shape[1], -1, query.shape[-1])
        shared = query.shape[2]
        scores = [
            tier.spread(tier.gather(query) @ tier.take(self._layer_of(tier, 0)).transpose(2, 3), shared)
            for tier in plan.tiers
        ]
        products = torch.cat([*scores, query @ keys.transpose(2, 3)], dim=3).float().mul_(after)
        if softcap is not None:
            products = products.div_(softcap).tanh_().mul_(softcap)
        if window not in self._biases:
            self._biases[window] = plan.bias(window)
        weights = torch.softmax(products.add_(self._biases[window]), dim=3).to(query.dtype)
        widths = [*(part.shape[3] for part in scores), keys.shape[2]]
        *of_shared, of_tail = torch.split(weights, widths, dim=3)
        result: Tensor = of_tail @ values
        for tier, part in zip(plan.tiers, of_shared, strict=True):
            of_rows = tier.spread(tier.gather(part) @ tier.take(self._layer_of(tier, 1)), shared)
            result += of_rows if tier.has_piece is None else of_rows.mul_(tier.has_piece)
        return result.reshape(len(query), 1, -1, result.shape[-1])

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
    """Attention of the step that is being computed, with the signature that transformers calls.

    ``query`` is ``(rows, query heads, 1, size)`` of any floating dtype. The result is ``(rows, 1, query
    heads, size)`` of the same dtype, and None in place of the attention weights. Keys, values and mask come
    from the session's cache; the arguments of these names are ignored. ``scaling``, by default ``size **
    -0.5``, multiplies the products. For ``softcap`` and ``sliding_window`` see ``SharedCache.attend``.
    """
    del module, key, value, attention_mask
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _STEPPING.get().attend(query, factor, softcap, sliding_window), None


AttentionInterface.register(ATTENTION, attend)
