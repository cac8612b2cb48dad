"""BERTScores of pairs of texts by an encoder's layers (Q8)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.metrics.bertscore import bertscore
from pairsmith.models.encode import results_by_length
from pairsmith.models.token_vectors import TokenEncoder

_AT_ONCE = 512
"""Most pairs in a batch."""


def pair_scores(
    encoder: TokenEncoder,
    pairs: Sequence[tuple[str, str]],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Float32s:
    """The BERTScore F of each pair with each of ``layers`` (Q8): ``(pairs, layers)`` float32, at most 1.

    Where the encoder's vectors are not finite, scores are NaN.

    Args:
        encoder: encoder of the vectors that are compared; it is put into evaluation mode.
        pairs: pairs of texts, none blank.
        layers: 0 to ``encoder.layers``.
        special_tokens: whether the means count special tokens too; see ``bertscore``.
        batch_tokens: most tokens in a batch, padding included; None: what suits the device.
        advance: called with the number of pairs that were finished.
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
    """Encoder inputs for n pairs: the first texts, then the second, each ``(2 · n, longest)`` int64."""
    return encoder.features([first for first, _ in pairs] + [second for _, second in pairs])


def batch_scores(
    encoder: TokenEncoder,
    features: Mapping[str, Tensor],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Tensor:
    """The BERTScore F of n pairs with each layer (Q8): ``(layers, n)`` float32, at most 1.

    ``features`` are the pairs' ``pair_features``, ``layers`` numbers from 0 to ``encoder.layers``. Gradients
    flow into the encoder, as fine-tuning needs them (Q9).
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
