"""Encodes texts as vectors in batches of texts of similar length. On a CPU, each batch has one thread.

The result of a batch that one thread computes does not depend on the number of threads. So the vectors of a
corpus do not depend on the machine's cores or on the number of workers. It is also faster, as the matrix
products of a small encoder are too small to be divided among threads.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Side = Literal["query", "document"]
"""The side of a retrieval encoder: it selects the tower of a two-tower encoder, and the prompt."""

F = TypeVar("F")
T = TypeVar("T")


def encode_texts(
    encoder: "SentenceTransformer",
    texts: Sequence[str],
    *,
    side: Side | None = None,
    batch_size: int = 1_024,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Float32s:
    """The vectors of n texts: ``(n, d)`` float32. The longest texts are encoded first.

    Damaged weights give vectors that are not finite; the caller must look for them and raise ``not_finite``.

    Args:
        encoder: the sentence encoder; it is put into evaluation mode.
        texts: n texts, none of which is blank.
        side: the side of an encoder that distinguishes queries and documents; None: its default side.
        batch_size: the largest number of texts in a batch.
        batch_tokens: the largest number of tokens in a batch, padding included, unless a single text has
            more; None: what suits the device.
        advance: is called after each batch with the number of its texts.
    """
    encoder.eval()
    texts = beginnings(encoder, texts)
    task = {"task": side} if side else {}
    prompt = side_prompt(encoder, side)
    width = encoder.get_embedding_dimension() if texts else 0  # the encoder may truncate its vectors to it
    vectors: Float32s = np.empty((len(texts), width or 0), np.float32)

    def features(rows: list[int]) -> dict[str, Any]:
        inputs: dict[str, Any] = encoder.preprocess([texts[row] for row in rows], prompt=prompt, **task)
        return inputs

    def encoded(features: dict[str, Any]) -> Float32s:
        with torch.inference_mode():
            embedded = embed_batch(encoder, moved(features, encoder.device), side)
            numbers: Float32s = embedded.float().cpu().numpy()
            return numbers

    for rows, batch_vectors in results_by_length(
        token_counts(encoder, texts),
        features,
        encoded,
        encoder.device,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
    ):
        vectors[rows] = batch_vectors[:, :width]
        advance(len(rows))
    return vectors


def embed_batch(
    encoder: "SentenceTransformer", features: Mapping[str, Any], side: Side | None = None
) -> Tensor:
    """The vectors of a batch of n texts, ``(n, d)`` in the encoder's dtype; see ``refuse_unknown_tokens``."""
    try:
        vectors: Tensor = encoder(dict(features), **({"task": side} if side else {}))["sentence_embedding"]
    except IndexError:
        config: Any = getattr(encoder.transformers_model, "config", None)
        if config is not None and "input_ids" in features:
            refuse_unknown_tokens(config, features["input_ids"])
        raise
    return vectors


def refuse_unknown_tokens(config: Any, tokens: Sequence[Sequence[int]] | Tensor) -> None:
    """Raise a ``ModelError`` if a model with this configuration has no vector for one of the tokens.

    ``tokens`` has a row for each text. A tokenizer may have more tokens than its model as long as they are in
    no text, such as a padding token that was added later. On a GPU one of them would end the whole process.
    """
    # Of a model of encoder and decoder, only the encoder may have a marker.
    part = config.encoder if config.model_type == "encoder-decoder" else config.get_text_config()
    rows = tokens.tolist() if torch.is_tensor(tokens) else tokens
    largest, count = max(chain.from_iterable(rows), default=0), getattr(part, "vocab_size", None)
    if count is not None and largest >= count:
        raise ModelError(
            f"the tokenizer gives the token {largest}, but the model has vectors only for tokens below "
            f"{count}; give it the tokenizer that it was trained with"
        )


def moved(features: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Model inputs with all tensors moved to a device; other values are unchanged."""
    return {name: x.to(device) if torch.is_tensor(x) else x for name, x in features.items()}


def padded_tokens(rows: Sequence[Sequence[int] | Tensor], filler: int) -> Tensor:
    """n rows of tokens, padded on the right with the token ``filler``: ``(n, longest)`` int64."""
    tokens = [torch.as_tensor(row, dtype=torch.int64) for row in rows]
    return pad_sequence(tokens, batch_first=True, padding_value=filler)


def padded_inputs(rows: Sequence[Sequence[int] | Tensor], filler: int) -> dict[str, Tensor]:
    """Model inputs for n rows of tokens: token ids and attention mask, each ``(n, longest)`` int64."""
    mask = padded_tokens([torch.ones(len(row)) for row in rows], 0)
    return {"input_ids": padded_tokens(rows, filler), "attention_mask": mask}


def not_finite(subject: str) -> ModelError:
    """The error for a model whose output contains NaN or infinity.

    ``subject`` is the beginning of the message, such as "the encoder gives vectors".
    """
    return ModelError(
        f"{subject} that are not finite; its weights are damaged, or its number format is too narrow: "
        "try float32"
    )


def tokens_at_once(device: torch.device) -> int:
    """The default number of tokens in a batch. On a CPU, a layer's activations then fit into its caches."""
    return 2_048 if device.type == "cpu" else 32_768


def batches_by_length(
    lengths: Sequence[int], *, batch_size: int | None = None, batch_tokens: int | None = None
) -> Iterator[list[int]]:
    """Batches of the indices of rows, sorted by decreasing length.

    Args:
        lengths: the number of tokens of each row.
        batch_size: the largest number of rows in a batch; None: no limit.
        batch_tokens: the largest number of tokens in a batch, padding included, unless a single row has more;
            None: no limit.
    """
    limit = math.inf if batch_tokens is None else batch_tokens
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if batch and (len(batch) == batch_size or lengths[batch[0]] * (len(batch) + 1) > limit):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def results_by_length(
    lengths: Sequence[int],
    features: Callable[[list[int]], F],
    compute: Callable[[F], T],
    device: torch.device,
    *,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
) -> Iterator[tuple[list[int], T]]:
    """Compute the ``batches_by_length``; yields the row indices and the result of each batch, in their order.

    On a CPU, one batch per thread is computed at a time; on other devices, one batch after the other.

    Args:
        lengths: the number of tokens of each row.
        features: makes the model's input for the rows with these indices. It is called in the caller's
            thread, as tokenizers are not thread-safe, a few batches ahead.
        compute: computes the result of a batch from its features; it is called in another thread.
        device: the device of the model.
        batch_size: the largest number of rows in a batch; None: no limit.
        batch_tokens: the largest number of tokens in a batch, padding included; None: what suits the device.
    """
    batches = batches_by_length(
        lengths, batch_size=batch_size, batch_tokens=batch_tokens or tokens_at_once(device)
    )
    before = torch.get_num_threads()
    count, threads = (before, 1) if device.type == "cpu" else (1, before)
    torch.set_num_threads(threads)  # MKL has one setting for the whole process
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
            submitted = ((rows, pool.submit(compute, features(rows))) for rows in batches)
            pending = deque(islice(submitted, 2 * count))
            while pending:
                rows, future = pending.popleft()
                yield rows, future.result()
                pending.extend(islice(submitted, 1))
    finally:
        torch.set_num_threads(before)


_AT_ONCE = 1_024
"""Number of texts that are tokenized in one call to count their tokens."""


def token_counts(encoder: "SentenceTransformer", texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text, at least 1; an estimate if the encoder has no usual tokenizer."""
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    if not texts or not hasattr(tokenizer, "pad_token"):
        return [1 + len(text) // 4 for text in texts]
    options = {"truncation": True, "max_length": encoder.max_seq_length, "verbose": False}
    texts = beginnings(encoder, texts)
    # In batches, as the tokens of all texts would take far more memory than the texts.
    batches = in_batches(texts, _AT_ONCE)
    return [max(1, len(ids)) for batch in batches for ids in tokenizer(list(batch), **options)["input_ids"]]


_CHARACTERS = 50
"""Characters of a text that are tokenized first for each token of the limit; English has 4 or 5 per token."""
_CUT_WORD = 100
"""Largest number of tokens of the beginning of a long word that as a whole is one unknown token."""


def beginnings(encoder: "SentenceTransformer", texts: Sequence[str]) -> Sequence[str]:
    """The texts, each cut after the part that the encoder reads, as tokenizers take minutes for megabytes.

    Only texts much longer than the encoder's maximum are cut, with a margin; see ``beginning``. If the
    encoder has no maximum length, or truncates texts at their beginning, the texts are unchanged.
    """
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    if getattr(tokenizer, "truncation_side", "") != "right" or not encoder.max_seq_length:
        return texts
    return [beginning(tokenizer, text, encoder.max_seq_length) for text in texts]


def beginning(tokenizer: Any, text: str, limit: int) -> str:
    """A beginning of a text that contains its first ``limit`` tokens, not counting special tokens.

    Longer and longer beginnings are tokenized until one has more than ``limit`` tokens, with a margin for a
    word that is cut at its end; twice this beginning is returned. The whole text is returned if it is short.
    """
    end = _CHARACTERS * limit
    while 2 * end < len(text):
        tokens = tokenizer(text[:end], add_special_tokens=False, verbose=False)["input_ids"]
        if len(tokens) >= limit + _CUT_WORD:
            return text[: 2 * end]
        end *= 8
    return text


def side_prompt(encoder: "SentenceTransformer", side: Side | None) -> str | None:
    """The prompt that the encoder puts before each text of this side; None if it has none."""
    name = side if side in encoder.prompts else encoder.default_prompt_name
    return encoder.prompts.get(name) if name else None
