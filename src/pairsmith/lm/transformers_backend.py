"""Any causal LM of transformers as a ``SteerableModel``.

Keys and values lie in a fixed table with one slot a row, each row filled from its first place on,
so rows of different lengths continue together without padding between prompt and text, and rows
enter and leave without the others being copied.
"""

import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from pairsmith.errors import ModelError
from pairsmith.lm.protocols import Prompt

PREFILL_TOKENS = 4096
"""Prompts are computed in batches of about so many tokens, to bound memory."""

LENGTH_LIMITS = ("max_position_embeddings", "sliding_window", "window_size", "attention_chunk_size")
"""What configurations call the number of tokens a layer can look back on."""

GROWTH = 64
"""Slots grow by so many places at a time."""


class TransformersModel:
    """A causal LM and its tokenizer; see ``pairsmith.lm.loading.load_model`` for one by name."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, revision: str) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self.name = name
        self.revision = revision
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        text_config = model.config.get_text_config()
        # Rows of unequal length share one mask, so none may be longer than a layer's window sees.
        limits = (getattr(text_config, name, None) for name in LENGTH_LIMITS)
        self.context: int = min(
            (limit for limit in limits if isinstance(limit, int) and limit > 0), default=2048
        )
        ends = model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        self.end_tokens = frozenset(int(end) for end in listed if end is not None)

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, as the tokenizer makes them, special tokens included."""
        tokens: list[int] = self._tokenizer(text, verbose=False)["input_ids"]
        if tokens and tokens[-1] in self.end_tokens:  # some tokenizers close every text
            tokens = tokens[:-1]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens and without any tidying of spaces."""
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def tokens_with(self, piece: str) -> frozenset[int]:
        """The tokens whose own text holds ``piece``."""
        return frozenset(number for number, text in enumerate(self._token_texts) if piece in text)

    @cached_property
    def _token_texts(self) -> list[str]:
        known = len(self._tokenizer)
        texts: list[str] = self._tokenizer.batch_decode(
            [[number] for number in range(known)], clean_up_tokenization_spaces=False
        )
        return texts

    def session(self, rows: int) -> "TransformersSession":
        """A session of at most ``rows`` rows."""
        return TransformersSession(self._model, rows)


class TransformersSession:
    """Rows in a ``SlotCache``, and the computed prompts they are copied from."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._device = model.device
        self._cache = SlotCache(model.config.get_text_config().num_hidden_layers, rows)
        self._prompts: dict[Prompt, tuple[list[tuple[Tensor, Tensor]], Tensor]] = {}

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute prompts in batches of similar length."""
        ordered = sorted((tuple(prompt) for prompt in prompts), key=len)
        while ordered:
            size = max(1, PREFILL_TOKENS // len(ordered[-1]))
            self._prefill(ordered[-size:])
            del ordered[-size:]

    def _prefill(self, prompts: list[Prompt]) -> None:
        width = max(map(len, prompts))
        tokens = torch.zeros(len(prompts), width, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = torch.arange(width) < lengths[:, None]
        cache = DynamicCache()  # without the config: full attention, every key kept
        ends, which = torch.unique(lengths - 1, return_inverse=True)
        output = self._model(
            input_ids=tokens.to(self._device),
            attention_mask=mask.to(self._device, torch.int64),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=ends.to(self._device),
        )
        if not cache.layers or not all(getattr(layer, "is_initialized", False) for layer in cache.layers):
            raise ModelError(
                "this kind of model keeps no keys and values (a recurrent one?); use a transformer"
            )
        logits = output.logits[torch.arange(len(prompts)), which].float()
        for row, prompt in enumerate(prompts):
            size = len(prompt)
            states = [
                (layer.keys[row, :, :size].clone(), layer.values[row, :, :size].clone())
                for layer in cache.layers
            ]
            self._prompts[prompt] = states, logits[row].clone()

    def forget(self, prompt: Sequence[int]) -> None:
        """Free a prompt's keys and values."""
        del self._prompts[tuple(prompt)]

    def add_rows(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Copy each prompt's keys and values into a free slot."""
        known = [self._prompts[tuple(prompt)] for prompt in prompts]
        self._cache.add([states for states, _ in known])
        return torch.stack([logits for _, logits in known])

    def step(self, tokens: Tensor) -> Tensor:
        """Feed every row one token at its own position."""
        lengths = self._cache.lengths
        seen = torch.arange(self._cache.width + 1, device=self._device) <= lengths[:, None].to(self._device)
        output = self._model(
            input_ids=tokens[:, None].to(self._device),
            attention_mask=seen.to(torch.int64),
            position_ids=lengths[:, None].to(self._device),
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache.advance()
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep these rows in this order."""
        self._cache.keep(list(rows))


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, ``(slots, heads, capacity, size)``; slot i belongs to row i."""

    is_sliding = False

    def __init__(self, owner: "SlotCache") -> None:
        super().__init__()
        # No circle of references: the memory goes with the last use, not with a later garbage collection.
        self._owner = cast("SlotCache", weakref.proxy(owner))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the memory once the shapes, ``(…, heads, places, size)``, are known."""
        self.keys = self._table(key_states)
        self.values = self._table(value_states)
        self.is_initialized = True

    def grow(self) -> None:
        """Take a table of the owner's new capacity and move what is there."""
        if self.is_initialized:
            keys, values = self.keys, self.values
            self.lazy_initialization(keys, values)
            self.keys[:, :, : keys.shape[2]] = keys
            self.values[:, :, : values.shape[2]] = values

    def _table(self, like: Tensor) -> Tensor:
        return like.new_zeros(self._owner.slots, like.shape[-3], self._owner.capacity, like.shape[-1])

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write each row's new key and value at its own place; returns all up to the longest row."""
        rows = torch.arange(key_states.shape[0], device=key_states.device)
        places = self._owner.lengths.to(key_states.device)
        self.keys[rows, :, places] = key_states[:, :, 0]
        self.values[rows, :, places] = value_states[:, :, 0]
        upto = self._owner.width + 1
        return self.keys[: len(rows), :, :upto], self.values[: len(rows), :, :upto]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a step looks at."""
        return self._owner.width + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens in the longest row."""
        return self._owner.width

    def get_max_length(self) -> int:
        """Tokens that fit into a slot."""
        return self._owner.capacity


class SlotCache(Cache):
    """One slot for each row, as long as the longest row needs; see the module's text."""

    def __init__(self, layers: int, slots: int) -> None:
        super().__init__(layers=[SlotLayer(self) for _ in range(layers)])
        self.slots = slots
        self.capacity = 0
        self.lengths = torch.zeros(0, dtype=torch.int64)
        self.width = 0

    def add(self, rows: list[list[tuple[Tensor, Tensor]]]) -> None:
        """Append rows that start from prompts' states: of each layer, a ``(heads, length, size)`` pair."""
        start = len(self.lengths)
        lengths = [states[0][0].shape[1] for states in rows]
        self._set_lengths(torch.cat([self.lengths, torch.tensor(lengths)]))
        for number, layer in enumerate(self.layers):
            if not layer.is_initialized:
                layer.lazy_initialization(*rows[0][number])
            for i, states in enumerate(rows):
                keys, values = states[number]
                layer.keys[start + i, :, : lengths[i]] = keys
                layer.values[start + i, :, : lengths[i]] = values

    def advance(self) -> None:
        """Every row has one token more."""
        self._set_lengths(self.lengths + 1)

    def keep(self, rows: list[int]) -> None:
        """Row ``rows[i]`` becomes row i; what moves goes from the end into gaps before it."""
        moves = [(to, origin) for to, origin in enumerate(rows) if to != origin]
        if moves:
            places = torch.tensor([to for to, _ in moves])
            origins = torch.tensor([origin for _, origin in moves])
            for layer in self.layers:
                layer.keys[places] = layer.keys[origins]
                layer.values[places] = layer.values[origins]
        self._set_lengths(self.lengths[rows])

    def _set_lengths(self, lengths: Tensor) -> None:
        """Note the rows' lengths, and see that each has room for one token more."""
        self.lengths = lengths
        self.width = int(lengths.max()) if len(lengths) else 0
        if self.width >= self.capacity:
            self.capacity = (self.width // GROWTH + 1) * GROWTH
            for layer in self.layers:
                layer.grow()
