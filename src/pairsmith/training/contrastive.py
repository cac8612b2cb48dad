"""The contrastive loss of bi-encoders (M2), and the vectors of a batch's inputs and outputs in chunks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from pairsmith.models.encode import Side, embed_batch, side_prompt, token_counts
from pairsmith.training.chunks import activation_bytes, chunked, compute_chunks


def contrastive_loss(x: Tensor, y: Tensor, same: Tensor, scale: float) -> Tensor:
    """Mean negative log likelihood of each input's own output among all outputs (M2).

    Args:
        x: ``(n, d)`` floating, the vectors of inputs.
        y: ``(m, d)`` floating, m >= n: row i < n is input i's own output; additional negatives follow.
        same: ``(n, m)`` bool, whether output j is a positive of input i. Positives other than the input's own
            output are left out of the softmax.
        scale: factor that multiplies the cosines.

    Returns:
        ``()`` float32, at least 0.
    """
    # Under autocast the product would be in bfloat16, where cosines near 1 are 0.004 apart.
    with torch.autocast(x.device.type, enabled=False):
        x, y = (nn.functional.normalize(vectors.float(), dim=1) for vectors in (x, y))
        logits = scale * (x @ y.T)
    own = torch.eye(len(x), len(y), dtype=torch.bool, device=x.device)
    logits = logits.masked_fill(same & ~own, -torch.inf)
    return nn.functional.cross_entropy(logits, torch.arange(len(x), device=x.device))


def side_features(encoder: SentenceTransformer, texts: Sequence[str], side: Side) -> dict[str, Any]:
    """Features of n texts, in chunks of similar length, for ``side_vectors`` (M2); see ``chunked``."""
    prompt = side_prompt(encoder, side)

    def features(numbers: list[int]) -> Any:
        return encoder.preprocess([texts[number] for number in numbers], prompt=prompt, task=side)

    return chunked(token_counts(encoder, texts), features, encoder.device)


def side_vectors(encoder: SentenceTransformer, features: Mapping[str, Any], side: Side) -> Tensor:
    """The vectors of n texts (M2), ``(n, d)`` in the encoder's dtype, in the order of the texts.

    If the activations of these texts exceed ``KEPT_BYTES``, only the vectors of further chunks are kept, not
    their activations, so that memory does not limit the batch size.
    """
    width = encoder.get_embedding_dimension()
    return compute_chunks(
        lambda chunk: embed_batch(encoder, chunk, side)[:, :width],
        features,
        partial(activation_bytes, encoder.config),
    )
