"""Any causal LM of transformers as a ``SteerableModel``.

A prefix that prompts share is computed once, and the rest of the prompts in batches. Rows then start from
their keys and values in a ``SharedCache``. On a GPU, where a call of a small model takes as long as thousands
of tokens, batches are larger, and a prefix that only few prompts share is computed for each of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.hooks import RemovableHandle
from transformers.cache_utils import DynamicCache

from pairsmith.core.errors import ModelError, first_line
from pairsmith.models.language.attention_plan import rounded_up
from pairsmith.models.language.chats import chat_tokens
from pairsmith.models.language.kv_store import LayerStates
from pairsmith.models.language.prefixes import by_prefix, common_starts
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.shared_cache import ATTENTION, SharedCache
from pairsmith.models.memory import MOST_ROWS, call_tokens, free_memory

PREFILL_TOKENS = 4096
"""Prompts are computed in batches of about this many tokens, or ``call_tokens``, to bound memory."""

FILLED = 0.75
"""On a CPU, where padding takes as long as tokens, each prompt of a batch has at least this share of the
tokens of the longest one, not counting the prefix that all of them share."""

FEW_TOKENS = 64
"""A batch with at most this many padding tokens is not divided."""

LENGTH_LIMITS = ("max_position_embeddings", "window_size", "attention_chunk_size", "sliding_window")
"""Names in model configurations for the number of tokens that a layer can attend to."""

SHARED_ATTENTION_TYPES = (
    "gpt2", "gpt_neox", "opt", "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "mistral",
    "phi", "phi3", "olmo2", "qwen3_moe", "mixtral", "starcoder2", "granite", "cohere", "stablelm", "smollm3",
)  # fmt: skip
"""Types of models whose attention ``SharedCache.attend`` computes, and which use their linear layers only by
calling them. Any other model is decoded with its own attention, from keys and values copied for each row."""


class TransformersModel:
    """A causal LM and its tokenizer; ``pairsmith.models.language.loading.load_model`` loads one by name.

    It is not thread-safe.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str, revision: str) -> None:
        self._model = model.eval()
        self.vocab_size: int = model.get_output_embeddings().out_features
        self._embedded: int = model.get_input_embeddings().num_embeddings
        self._tokenizer = tokenizer
        self.name = name
        self.revision = revision
        self.context: int = context_of(model.config, shared=has_shared_attention(model))
        ends = model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        self._closing = frozenset(int(end) for end in listed if end is not None)
        special = getattr(tokenizer, "all_special_ids", ())  # chat markers and padding are not text
        self.end_tokens = frozenset(int(end) for end in (*listed, *special) if end is not None)

    def __repr__(self) -> str:
        """The model's name, number format and device."""
        dtype = str(self._model.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({self.name!r}, dtype={dtype}, device={self._model.device})"

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, after the special tokens that the tokenizer puts before a text.

        The name of a special token in the text, such as ``<|im_end|>``, is ordinary text.
        """
        tokens: list[int] = self._tokenizer(text, split_special_tokens=True, verbose=False)["input_ids"]
        if tokens and tokens[-1] in self._closing:  # some tokenizers append an end token to every text
            tokens = tokens[:-1]
        return self._checked(tokens)

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the tokenizer's template, ending with the given beginning of the answer."""
        if not getattr(self._tokenizer, "chat_template", None):
            raise ModelError(
                f"model {self.name}: its tokenizer has no chat template, so it is not made for chats; give "
                "an instruct model, or leave the chat out (`format: plain` in a task, no --chat for ask)"
            )
        return self._checked(chat_tokens(self._tokenize, self._render, message, answer))

    def _tokenize(self, text: str, *, parse_special: bool) -> list[int]:
        how = {"add_special_tokens": False, "split_special_tokens": not parse_special, "verbose": False}
        return list(self._tokenizer(text, **how)["input_ids"])

    def _render(self, message: str) -> str:
        """The chat of a user's message in the tokenizer's template, up to the place of the answer."""
        chat = [{"role": "user", "content": message}]
        try:
            return str(self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # templates are programs
            raise ModelError(f"model {self.name}: its chat template fails: {first_line(error)}") from error

    def _checked(self, tokens: list[int]) -> list[int]:
        """``tokens``, unless the model has no vector for one: on a GPU it would end the whole process.

        A tokenizer may have more tokens than the model as long as prompts hold none of them, such as a
        padding token that was added later.
        """
        if tokens and (largest := max(tokens)) >= self._embedded:
            raise ModelError(
                f"model {self.name}: its tokenizer gives the token {largest}, but the model has only "
                f"{self._embedded:,} tokens; save the model's own tokenizer into its folder, or fit the "
                "model to this one with resize_token_embeddings"
            )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens and without any tidying of spaces."""
        how = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(list(tokens), **how))

    def tokens_with(self, piece: str) -> frozenset[int]:
        """The tokens whose own text contains ``piece``."""
        return frozenset(number for number, text in enumerate(self._token_texts) if piece in text)

    @cached_property
    def _token_texts(self) -> list[str]:
        numbers = [[number] for number in range(len(self._tokenizer))]
        return list(self._tokenizer.batch_decode(numbers, clean_up_tokenization_spaces=False))

    def rows_that_fit(self, tokens: int) -> int:
        """The number of rows that fit into half of the free memory, from 16 to ``MOST_ROWS``.

        The memory of a row is that of the keys and values of its tokens, as if no prompt were shared, and of
        three copies of its logits: two in the model's format, one in float32.
        """
        row = self._token_bytes() * tokens + self.vocab_size * (2 * self._model.dtype.itemsize + 4)
        most = MOST_ROWS["cpu" if self._model.device.type == "cpu" else "other"]
        return int(max(16, min(most, free_memory(self._model.device) // 2 // row)))

    def _token_bytes(self) -> int:
        """The bytes that a token's keys and values take."""
        config = self._model.config.get_text_config()
        # Recurrent models have no heads, and are refused later.
        queries = getattr(config, "num_attention_heads", 1)
        heads = getattr(config, "num_key_value_heads", None) or queries
        size = getattr(config, "head_dim", None) or config.hidden_size // queries
        return int(2 * config.num_hidden_layers * heads * size * self._model.dtype.itemsize)

    def session(self, rows: int, prompts: Iterable[Prompt], tail: int) -> "TransformersSession":
        """A session of up to ``rows`` rows from these prompts, with up to ``tail`` tokens fed to each."""
        together = call_tokens(self._model, self._token_bytes())
        return TransformersSession(self._model, rows, prompts, tail, together)


@dataclass(slots=True)
class _ComputedPrompt:
    """Next-token logits of a prompt, ``(vocab,)``, and where the keys and values after its start are.

    They are in a slot of the cache if rows begin from the prompt or did so lately, else in ``states``.
    """

    logits: Tensor
    states: list[LayerStates]
    slot: int | None = None


class TransformersSession:
    """Computed prompts, and the rows that began from them."""

    def __init__(self, model: Any, rows: int, prompts: Iterable[Prompt], tail: int, call_tokens: int) -> None:
        self._model = model
        self._device = model.device
        self._shared = has_shared_attention(model)
        self.call_tokens = call_tokens
        self._start_of = common_starts(prompts, rows // 2, call_tokens)
        self._starts: dict[Prompt, int] = {}  # their numbers, once they are computed
        different = set(self._start_of.values()) - {()}
        starts = len(different), max(map(len, different), default=0)
        rest = max((len(prompt) - len(start) for prompt, start in self._start_of.items()), default=0)
        slots = max(1, min(rows, len(self._start_of)))  # rows that begin from one prompt share its slot
        self._cache = SharedCache(rows, starts, rest, tail, slots=slots, shared=self._shared)
        self._free = list(range(slots))  # a heap: low slots first, as steps multiply all up to the last
        self._prompts: dict[Prompt, _ComputedPrompt] = {}

    def prefill(self, prompts: Sequence[Prompt]) -> None:
        """Compute prompts in batches; a start, or a longer prefix that some of them share, only once."""
        by_start: dict[Prompt, list[Prompt]] = defaultdict(list)
        for prompt in dict.fromkeys(prompts):
            if prompt not in self._prompts:
                by_start[self._start_of[prompt]].append(prompt)
        new = [start for start in by_start if start and start not in self._starts]
        for start, states, _ in self._compute_in_batches(new, []):
            self._starts[start] = len(self._starts)  # low numbers first, as steps multiply all up to the last
            self._cache.starts.write(self._starts[start], states)
        for start, waiting in by_start.items():
            before = self._cache.starts.read(self._starts[start]) if start else []
            sharing = by_prefix(waiting, start, self.call_tokens)
            prefixes = [prefix for prefix in sharing if prefix != start]
            of_prefix = {prefix: states for prefix, states, _ in self._compute_in_batches(prefixes, before)}
            for prefix, members in sharing.items():
                shared = of_prefix.get(prefix, [])
                for prompt, states, logits in self._compute_in_batches(members, _joined(before, shared)):
                    self._prompts[prompt] = _ComputedPrompt(logits, _joined(shared, states))

    def _compute_in_batches(
        self, prompts: Sequence[Prompt], before: list[LayerStates]
    ) -> Iterator[tuple[Prompt, list[LayerStates], Tensor]]:
        """Each prompt with the keys and values of its tokens after ``before``, and its next-token logits.

        Prompts of similar length are computed in one batch, the longest first.
        """
        start_length = before[0][0].shape[1] if before else 0
        on_cpu = self._device.type == "cpu"
        most = max(PREFILL_TOKENS, self.call_tokens)
        waiting = sorted(prompts, key=len)
        while waiting:
            longest = len(waiting[-1])
            batch = waiting[-max(1, most // longest) :]
            if on_cpu and sum(longest - len(prompt) for prompt in batch) > FEW_TOKENS:
                batch = [
                    prompt
                    for prompt in batch
                    if len(prompt) - start_length >= FILLED * (longest - start_length)
                ]
            del waiting[-len(batch) :]
            yield from zip(batch, *self._compute_batch(batch, before), strict=True)

    def _compute_batch(
        self, prompts: list[Prompt], before: list[LayerStates]
    ) -> tuple[Iterator[list[LayerStates]], Tensor]:
        """Compute a batch of prompts with a common prefix, whose keys and values are ``before``.

        Returns the keys and values of each prompt's tokens after the prefix, and the next-token logits of all
        prompts, ``(prompts, vocab)``.
        """
        cache = DynamicCache()  # without the config: full attention, every key kept
        shared = before[0][0].shape[1] if before else 0
        for layer, (keys, values) in enumerate(before):
            cache.update(*(x.expand(len(prompts), -1, -1, -1) for x in (keys, values)), layer)
        width = max(map(len, prompts)) - shared
        tokens = torch.zeros(len(prompts), width, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt) - shared] = torch.tensor(prompt[shared:])
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = torch.arange(shared + width) < lengths[:, None]
        last = (lengths - shared - 1).to(self._device)
        with self._logits_only_at(last), _named_failures(self._model):
            output = self._model(
                input_ids=tokens.to(self._device),
                attention_mask=mask.to(self._device, torch.int64),
                position_ids=torch.arange(shared, shared + width, device=self._device).expand(
                    len(prompts), -1
                ),
                past_key_values=cache,
                use_cache=True,
            )
        if not cache.layers or not all(getattr(layer, "is_initialized", False) for layer in cache.layers):
            raise ModelError(
                "this kind of model keeps no keys and values (a recurrent one?); use a transformer"
            )
        logits = output.logits
        if logits.shape[1] > 1:  # the hook cannot reach this model's head
            logits = logits[torch.arange(len(prompts), device=logits.device), last][:, None]
        ends = lengths.tolist()
        states = (
            [(x.keys[row, :, shared:end], x.values[row, :, shared:end]) for x in cache.layers]
            for row, end in enumerate(ends)
        )
        return states, logits[:, 0].clone()  # copied, so that the batch, which may be large, is freed

    def _logits_only_at(self, places: Tensor) -> RemovableHandle:
        """A context in which logits are computed for one token of each row, at ``places``, ``(rows,)``."""

        def narrow(_: Any, args: tuple[Tensor]) -> tuple[Tensor]:
            (hidden,) = args
            return (hidden[torch.arange(len(places), device=hidden.device), places][:, None],)

        hook: RemovableHandle = self._model.get_output_embeddings().register_forward_pre_hook(narrow)
        return hook

    def forget(self, prompt: Prompt) -> None:
        """Free the memory of a prompt that no row needs."""
        slot = self._prompts.pop(prompt).slot
        if slot is not None:
            heappush(self._free, slot)

    def add_rows(self, prompts: Sequence[Prompt]) -> Tensor:
        """Append one row for each prompt; returns next-token logits, ``(prompts, vocab)``."""
        slots = []
        for prompt in prompts:
            computed = self._prompts[prompt]
            if computed.slot is None:
                if not self._free:
                    self._vacate(keeping=prompts)
                computed.slot = heappop(self._free)
                start = self._starts.get(self._start_of[prompt], -1)
                self._cache.put(computed.slot, start, computed.states)
                computed.states = []
            slots.append(computed.slot)
        self._cache.add_rows(slots)
        return torch.stack([self._prompts[prompt].logits for prompt in prompts])

    def _vacate(self, keeping: Sequence[Prompt]) -> None:
        """Move prompts that no current row uses out of their slots; later rows may still need them."""
        busy = self._cache.slots_in_use | {self._prompts[prompt].slot for prompt in keeping}
        for computed in self._prompts.values():
            if computed.slot is not None and computed.slot not in busy:
                computed.states = [(k.clone(), v.clone()) for k, v in self._cache.slots.read(computed.slot)]
                heappush(self._free, computed.slot)
                computed.slot = None

    def step(self, tokens: Tensor) -> Tensor:
        """Feed every row one token, ``(rows,)`` int64, at its position; returns logits, ``(rows, vocab)``."""
        rows = len(tokens)
        called = rounded_up(rows) if self._shared else rows  # with padding rows
        with self._attention(), self._cache.step(self._device, called) as (positions, seen):
            tokens, positions = (pad(x, (0, called - rows)) for x in (tokens, positions))
            output = self._model(
                input_ids=tokens[:, None].to(self._device),
                attention_mask=None if self._shared else seen,
                position_ids=positions[:, None].to(self._device),
                past_key_values=self._cache,
                use_cache=True,
            )
        logits: Tensor = output.logits[:rows, -1]
        return logits

    @contextmanager
    def _attention(self) -> Iterator[None]:
        """Within this context the model uses the cache's attention, where it can."""
        if not self._shared:
            yield
            return
        usual = self._model.config._attn_implementation
        self._model.set_attn_implementation(ATTENTION)
        try:
            yield
        finally:
            self._model.set_attn_implementation(usual)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep these rows in this order."""
        self._cache.keep_rows(list(rows))


def _joined(first: list[LayerStates], then: list[LayerStates]) -> list[LayerStates]:
    """Keys and values of a text, and of the text after it; either may be empty."""
    if not first or not then:
        return first or then
    return [
        (torch.cat([one, keys], dim=1), torch.cat([other, values], dim=1))
        for (one, other), (keys, values) in zip(first, then, strict=True)
    ]


def context_of(config: Any, *, shared: bool | None = None) -> int:
    """The largest number of tokens that a model can read.

    Args:
        config: the model's configuration.
        shared: whether the shared attention replaces the model's own; None: decided by the model type.
    """
    text_config = config.get_text_config()
    if shared is None:
        shared = text_config.model_type in SHARED_ATTENTION_TYPES
    # The model's own attention is called without sliding windows, so rows must not be longer than one window.
    limits = (getattr(text_config, name, None) for name in (LENGTH_LIMITS[:1] if shared else LENGTH_LIMITS))
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=2048)


def has_shared_attention(model: Any) -> bool:
    """Whether the shared attention can replace the model's own."""
    supported = model.config.get_text_config().model_type in SHARED_ATTENTION_TYPES
    return bool(supported and model._can_set_attn_implementation())


@contextmanager
def _named_failures(model: Any) -> Iterator[None]:
    """Turn the errors of models that cannot be continued from keys and values into a ``ModelError``."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        kind = model.config.model_type
        raise ModelError(f"models of the kind {kind} cannot be decoded here: {first_line(error)}") from error
