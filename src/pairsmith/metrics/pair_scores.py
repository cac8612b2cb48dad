"""BERTScores of pairs of texts with each layer of an encoder (Q8)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.metrics.bertscore import bertscore
from pairsmith.models.encode import results_by_length
from pairsmith.models.token_vectors import TokenEncoder

_AT_ONCE = 512
"""Largest number of pairs in a batch."""


def pair_scores(
    encoder: TokenEncoder,
    pairs: Sequence[tuple[str, str]],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Float32s:
    """The BERTScore F of each pair with each of ``layers``: ``(pairs, layers)`` float32, at most 1 (Q8).

    A score is NaN if the encoder's vectors are not finite.

    Args:
        encoder: the encoder that computes the token vectors; it is put into evaluation mode.
        pairs: the pairs of texts, none of which is blank.
        layers: the numbers of the layers, from 0 to ``encoder.layers``.
        special_tokens: whether the similarities of special tokens are averaged, too; see ``bertscore``.
        batch_tokens: the largest number of tokens in a batch, padding included; None: what suits the device.
        advance: is called after each batch with the number of its pairs.
    """
    encoder.model.eval()
    scores: Float32s = np.empty((len(pairs), len(layers)), np.float32)
    if not pairs:
        return scores
    lengths = [encoder.token_counts(list(side)) for side in zip(*pairs, strict=True)]
    longest = [2 * max(both) for both in zip(*lengths, strict=True)]

    def scored(features: Mapping[str, Tensor]) -> Float32s:
        with torch.inference_mode():
            by_layer = batch_scores(encoder, features, layers, special_tokens=special_tokens)
            return np.asarray(by_layer.T.cpu().numpy(), np.float32)

    for rows, results in results_by_length(
        longest,
        lambda rows: pair_features(encoder, [pairs[row] for row in rows]),
        scored,
        encoder.model.device,
        batch_size=_AT_ONCE,
        batch_tokens=batch_tokens,
    ):
        scores[rows] = results
        advance(len(rows))
    return scores


def pair_features(encoder: TokenEncoder, pairs: Sequence[tuple[str, str]]) -> Mapping[str, Tensor]:
    """The encoder's inputs for n pairs, first texts before second texts: ``(2 · n, longest)`` int64."""
    return encoder.features([first for first, _ in pairs] + [second for _, second in pairs])


def batch_scores(
    encoder: TokenEncoder,
    features: Mapping[str, Tensor],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Tensor:
    """The BERTScore F of n pairs with each of ``layers``: ``(layers, n)`` float32, at most 1 (Q8).

    ``features`` are the ``pair_features`` of the pairs; the layers are numbers from 0 to ``encoder.layers``.
    Gradients are propagated to the encoder, as fine-tuning needs them (Q9).
    """
    by_layer = encoder.states(features)
    states = torch.stack([by_layer[layer] for layer in layers])  # (layers, 2 · n, longest, d)
    attended = features["attention_mask"].bool().to(states.device)
    counted = attended
    if not special_tokens:
        plain = attended & ~encoder.is_special(features).to(states.device)
        counted = torch.where(plain.any(dim=1, keepdim=True), plain, attended)
    first, second = states.chunk(2, dim=1)
    return bertscore(first, second, *attended.chunk(2), *counted.chunk(2))
