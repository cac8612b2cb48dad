"""The losses of the bi-encoder (M2) and of its style classifier (M4)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pairsmith.methods.mining.style import Style
from pairsmith.models.encode import Side, prompt_of, token_counts
from pairsmith.training.chunks import chunked, compute_chunks

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

STYLE_SCALE = 100.0
"""Factor of the style classifier's weights, which would hardly move at an encoder's learning rate."""


def contrastive_loss(x: Tensor, y: Tensor, same: Tensor, scale: float) -> Tensor:
    """Negative log likelihood of each input's own output among all outputs, the mean over the inputs (M2).

    Args:
        x: ``(n, d)`` floating, inputs.
        y: ``(m, d)``, m >= n: the output of input i in row i, after these additional negatives.
        same: ``(n, m)`` bool: output j is a positive of input i, and ignored unless it is its own.
        scale: factor of the cosines.
    """
    x, y = (nn.functional.normalize(each, dim=1) for each in (x, y))
    logits = (scale * (x @ y.T)).float()
    own = torch.eye(len(x), len(y), dtype=torch.bool, device=x.device)
    logits = logits.masked_fill(same & ~own, -torch.inf)
    return nn.functional.cross_entropy(logits, torch.arange(len(x), device=x.device))


class BiEncoder(nn.Module):
    """A sentence encoder, of one tower or two, and the style classifier; returns the loss of a batch.

    ``style`` is the side that the style classifier judges; without it, there is none.
    """

    def __init__(
        self, encoder: "SentenceTransformer", *, scale: float, style: Side | None, style_weight: float
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.side = style
        self.style = nn.Linear(encoder.get_embedding_dimension(), 1) if style else None
        if self.style is not None:
            nn.init.zeros_(self.style.weight)
            nn.init.zeros_(self.style.bias)
        self._scale = scale
        self._style_weight = style_weight

    def features(self, texts: Sequence[str], side: Side) -> dict[str, Any]:
        """Features of these texts, for ``vectors``."""
        prompt = prompt_of(self.encoder, side)

        def made(numbers: list[int]) -> Any:
            return self.encoder.preprocess([texts[number] for number in numbers], prompt=prompt, task=side)

        return chunked(token_counts(self.encoder, texts), made, self.encoder.device)

    def vectors(self, features: Mapping[str, Any], side: Side) -> Tensor:
        """The texts' vectors, ``(n, d)``."""
        width = self.encoder.get_embedding_dimension()
        return compute_chunks(
            lambda chunk: self.encoder(dict(chunk), task=side)["sentence_embedding"][:, :width], features
        )

    def forward(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        same: Tensor,
        strangers: Mapping[str, Any] | None = None,
    ) -> dict[str, Tensor]:
        """The loss of a batch: of features of n inputs, and of their outputs with the additional negatives.

        ``strangers`` are features of corpus texts, which are not in the style of the seeds.
        """
        x, y = self.vectors(inputs, "query"), self.vectors(outputs, "document")
        loss = contrastive_loss(x, y, same, self._scale)
        if self.side and strangers is not None:
            ours = x if self.side == "query" else y[: len(x)]
            theirs = self.vectors(strangers, self.side)
            loss = loss + self._style_weight * self._style_loss(ours, theirs)
        return {"loss": loss}

    def _style_loss(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """Mean binary cross-entropy over seed texts and over strangers, each with half the weight."""
        assert self.style is not None
        losses = []
        for vectors, target in ((ours, 1.0), (theirs, 0.0)):
            unit = nn.functional.normalize(vectors, dim=1)
            logits = (STYLE_SCALE * self.style(unit)).float().squeeze(1)
            wanted = torch.full_like(logits, target)
            losses.append(nn.functional.binary_cross_entropy_with_logits(logits, wanted))
        return (losses[0] + losses[1]) / 2

    def trained_style(self) -> Style | None:
        """The style classifier with its current weights; None if there is none."""
        if self.style is None:
            return None
        weight = STYLE_SCALE * self.style.weight.detach().float().cpu().squeeze(0)
        return Style(weight.numpy(), STYLE_SCALE * float(self.style.bias.detach()))
