"""Cross-encoders: models that read an input and an output together and give the pair a score (M6).

BART's classification head is M6's: ``[CLS] x [SEP] y [SEP]`` goes to the encoder and the decoder, and a
perceptron of two layers scores the last decoder token's final state. Any other sequence classification
model can be used as well. A decoder-only model, such as Llama, reads both texts with a line break between
them, and one layer scores the last token's final state.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.models.encode import batches_by_length, moved, not_finite, one_thread_each, tokens_at_once
from pairsmith.models.heads import Loading, TextModel, load_with_head


class CrossEncoder(TextModel):
    """A model with a classification head of one number; see ``TextModel``."""


def load_cross_encoder(
    model: str, *, fresh_head: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> CrossEncoder:
    """Load ``model`` as a cross-encoder; all arguments are as for ``load_with_head``."""
    loaded = load_with_head(model, "classification", labels=1, fresh_head=fresh_head, seed=seed, **how)
    return CrossEncoder(*loaded)


def score_pairs(
    cross: CrossEncoder,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> NDArray[np.float32]:
    """The score of each pair (M6), ``(n,)`` float32, unbounded, the same however many threads there are.

    The model is put into evaluation mode. A batch has at most ``batch_tokens`` tokens, padding included, or
    as many as suit the device; ``advance`` is called with the number of pairs that were finished.
    """
    if not inputs:
        return np.zeros(0, np.float32)
    cross.model.eval()
    device = cross.model.device
    counts = cross.token_counts(inputs, outputs)
    scores: NDArray[np.float32] = np.empty(len(inputs), np.float32)

    def scored(features: Mapping[str, Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits = cross.model(**moved(features, device)).logits
            found: NDArray[np.float32] = logits.float().squeeze(1).cpu().numpy()
            return found

    def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Future[NDArray[np.float32]]:
        return pool.submit(scored, cross.features([inputs[i] for i in rows], [outputs[i] for i in rows]))

    most = batch_tokens or tokens_at_once(device)
    with one_thread_each(device) as pool:
        for rows, found in pool.each(begin, batches_by_length(counts, 1_024, most)):
            scores[rows] = found
            advance(len(rows))
    if not np.isfinite(scores).all():
        raise not_finite("the cross-encoder gives scores")
    return scores
