"""The contrastive loss of bi-encoders, and the vectors of a batch's two sides, computed in chunks (M2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from pairsmith.models.encode import Side, side_prompt, token_counts
from pairsmith.training.chunks import chunked, compute_chunks


def contrastive_loss(x: Tensor, y: Tensor, same: Tensor, scale: float) -> Tensor:
    """Negative log likelihood of each input's own output among all outputs, the mean over the inputs (M2).

    Args:
        x: ``(n, d)`` floating, inputs.
        y: ``(m, d)``, m >= n: the output of input i in row i, after these additional negatives.
        same: ``(n, m)`` bool: output j is a positive of input i, and ignored unless it is its own.
        scale: factor of the cosines.

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

    Of each chunk only these are kept, so memory limits no batch.
    """
    width = encoder.get_embedding_dimension()
    return compute_chunks(
        lambda chunk: encoder(dict(chunk), task=side)["sentence_embedding"][:, :width], features
    )
