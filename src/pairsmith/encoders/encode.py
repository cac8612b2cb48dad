"""Texts to vectors: batches of texts of nearly one length, and on a processor one thread for each batch.

A batch that is computed by one thread has the same numbers however many threads there are, so that the
vectors of a corpus do not depend on the machine's cores or on the number of workers. It is faster too:
the products of a small encoder are too small to be shared by several threads.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Side = Literal["query", "document"]
"""Which tower of an encoder with two, and which of its prompts."""

T = TypeVar("T")


def encode_texts(
    encoder: "SentenceTransformer",
    texts: Sequence[str],
    *,
    side: Side | None = None,
    batch_size: int = 1_024,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> NDArray[np.float32]:
    """Encode ``texts``, long ones first.

    Args:
        encoder: what to encode with.
        texts: none of them blank.
        side: for an encoder that tells the two apart; None takes its only or its default one.
        batch_size: most texts that are encoded at once.
        batch_tokens: most tokens of these, padding included, unless one text has more; None: what suits
            the device.
        advance: hears of how many are done.

    Returns:
        Shape (len(texts), d), float32, row i that of text i.
    """
    encoder.eval()
    task = {"task": side} if side else {}
    prompt = prompt_of(encoder, side)
    width = encoder.get_embedding_dimension() if texts else 0  # of shortened vectors, where it shortens them
    vectors: NDArray[np.float32] = np.empty((len(texts), width or 0), np.float32)

    def encoded(features: dict[str, Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            moved = {k: v.to(encoder.device) if torch.is_tensor(v) else v for k, v in features.items()}
            numbers: NDArray[np.float32] = encoder(moved, **task)["sentence_embedding"].float().cpu().numpy()
            return numbers

    def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Future[NDArray[np.float32]]:
        # Here and not in the threads: tokenizers are not safe to use from several at once.
        features = encoder.preprocess([texts[row] for row in rows], prompt=prompt, **task)
        return pool.submit(encoded, features)

    most = batch_tokens or tokens_at_once(encoder.device)
    with one_thread_each(encoder.device) as pool:
        for rows, found in pool.each(
            begin, batches_by_length(token_counts(encoder, texts), batch_size, most)
        ):
            vectors[rows] = found[:, :width]
            advance(len(rows))
    return vectors


def tokens_at_once(device: torch.device) -> int:
    """Tokens of a batch: on a processor so many that a layer's numbers stay in its caches."""
    return 2_048 if device.type == "cpu" else 32_768


def batches_by_length(lengths: Sequence[int], batch_size: int, batch_tokens: int) -> Iterator[list[int]]:
    """The numbers of ever shorter texts, cut where a batch would get too large, padding included."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if batch and (len(batch) == batch_size or lengths[batch[0]] * (len(batch) + 1) > batch_tokens):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@contextmanager
def one_thread_each(device: torch.device) -> Iterator["Pool"]:
    """Compute as many batches at a time as there are threads, each in one; elsewhere one after the other."""
    before = torch.get_num_threads()
    count, threads = (before, 1) if device.type == "cpu" else (1, before)
    torch.set_num_threads(threads)  # MKL's number is one for the whole process
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
            yield Pool(pool, count)
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class Pool:
    """Some threads, each of which computes a batch."""

    pool: ThreadPoolExecutor
    count: int

    def each(
        self, begin: Callable[[ThreadPoolExecutor, list[int]], Future[T]], batches: Iterable[list[int]]
    ) -> Iterator[tuple[list[int], T]]:
        """Each batch and what comes of it, in order; ``begin`` is called in this thread, a few ahead."""
        begun = ((rows, begin(self.pool, rows)) for rows in batches)
        waiting = deque(islice(begun, 2 * self.count))
        while waiting:
            rows, future = waiting.popleft()
            yield rows, future.result()
            waiting.extend(islice(begun, 1))


def token_counts(encoder: "SentenceTransformer", texts: Sequence[str]) -> list[int]:
    """Tokens of each text, or nearly; at least 1."""
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    if not texts or not hasattr(tokenizer, "pad_token"):
        return [1 + len(text) // 4 for text in texts]
    found = tokenizer(list(texts), truncation=True, max_length=encoder.max_seq_length, verbose=False)
    return [max(1, len(ids)) for ids in found["input_ids"]]


def prompt_of(encoder: "SentenceTransformer", side: Side | None) -> str | None:
    """What the encoder puts before each text of a side; None for nothing."""
    name = side if side in encoder.prompts else encoder.default_prompt_name
    return encoder.prompts.get(name) if name else None
