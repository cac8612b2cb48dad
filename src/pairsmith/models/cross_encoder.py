"""Cross-encoders: models that read an input and an output together and give the pair a score (M6).

BART's classification head is M6's: ``[CLS] x [SEP] y [SEP]`` goes to the encoder and the decoder, and a
perceptron of two layers scores the last decoder token's final state. Any other sequence classification
model can be used as well.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import DtypeName
from pairsmith.models.encode import batches_by_length, one_thread_each, tokens_at_once
from pairsmith.models.heads import load_with_head


@dataclass(frozen=True, slots=True)
class CrossEncoder:
    """A model with a classification head of one number, its tokenizer, and the longest input in tokens."""

    model: Any
    tokenizer: Any
    max_length: int

    def features(self, inputs: Sequence[str], outputs: Sequence[str]) -> Mapping[str, Any]:
        """Model inputs for n pairs: padded tensors of shape ``(n, longest)``.

        In a pair that is too long, the longer text is cut first.
        """
        found: Mapping[str, Any] = self.tokenizer(
            list(inputs),
            list(outputs),
            truncation="longest_first",
            max_length=self.max_length,
            padding=True,
            split_special_tokens=True,  # a text may hold what looks like a special token
            return_tensors="pt",
            verbose=False,
        )
        return found

    def token_counts(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[int]:
        """The number of tokens of each pair."""
        found = self.tokenizer(
            list(inputs),
            list(outputs),
            truncation="longest_first",
            max_length=self.max_length,
            split_special_tokens=True,
            verbose=False,
        )
        return [len(ids) for ids in found["input_ids"]]


def load_cross_encoder(
    model: str,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
    fresh_head: bool = False,
    seed: int = 0,
    max_length: int | None = None,
) -> CrossEncoder:
    """Load ``model`` as a cross-encoder.

    Args:
        model: a folder or Hub id in the format of transformers; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2``.
        device: as for ``pick_device``.
        dtype: number format of the weights.
        fresh_head: give a model without a classification head of one number a random one, to be trained.
        seed: seed of the random head.
        max_length: longest input in tokens; never more than the model's context, which is the default.
    """
    network, tokenizer, context = load_with_head(
        model, "classification", device=device, dtype=dtype, fresh_head=fresh_head, seed=seed, labels=1
    )
    return CrossEncoder(network, tokenizer, min(max_length or context, context))


def score_pairs(
    cross: CrossEncoder,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> NDArray[np.float32]:
    """The unnormalised score of each pair (M6), the same however many threads there are.

    Args:
        cross: the cross-encoder; it is put into evaluation mode.
        inputs: n texts.
        outputs: n texts, one for each input.
        batch_tokens: most tokens in a batch, padding included; None: what suits the device.
        advance: called with the number of pairs that were finished.

    Returns:
        ``(n,)`` float32, unbounded, the higher the better.
    """
    if not inputs:
        return np.zeros(0, np.float32)
    cross.model.eval()
    device = cross.model.device
    counts = cross.token_counts(inputs, outputs)
    scores: NDArray[np.float32] = np.empty(len(inputs), np.float32)

    def scored(features: Mapping[str, Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            moved = {name: value.to(device) for name, value in features.items()}
            found: NDArray[np.float32] = cross.model(**moved).logits.float().squeeze(1).cpu().numpy()
            return found

    def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Any:
        return pool.submit(scored, cross.features([inputs[i] for i in rows], [outputs[i] for i in rows]))

    most = batch_tokens or tokens_at_once(device)
    with one_thread_each(device) as pool:
        for rows, found in pool.each(begin, batches_by_length(counts, 1_024, most)):
            scores[rows] = found
            advance(len(rows))
    if not np.isfinite(scores).all():
        raise ModelError(
            "the cross-encoder gives scores that are not finite; its weights are damaged, or its number "
            "format is too narrow: try float32"
        )
    return scores
