"""What trainings of text generators have in common: the loss and the accuracy on the target tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pairsmith.training.chunks import sum_of_losses

IGNORED = -100
"""The label of positions that do not count in the loss, such as padding."""

_LOOKED_AT = 32
"""Validation examples whose logits over the vocabulary are held in memory at once."""

T = TypeVar("T")


class Writer(nn.Module):
    """A text generator in training; called with a batch of pairs, it returns the loss on the target tokens.

    A batch is what ``chunked`` returns; each chunk has ``labels``, ``(n, tokens)`` int64.
    """

    def __init__(self, model: Any, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self._label_smoothing = label_smoothing

    def logits(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The logits for each label of a chunk, given the tokens before it: ``(n, tokens, vocabulary)``."""
        raise NotImplementedError

    def forward(self, pairs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The loss of a batch: the mean over all target tokens."""
        tokens = sum((chunk["labels"] != IGNORED).sum() for chunk in pairs["chunks"])
        return {"loss": sum_of_losses(self._losses, pairs["chunks"], self) / tokens}

    def _losses(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The loss of each text."""
        return sequence_losses(self.logits(chunk), chunk["labels"], self._label_smoothing)


def sequence_losses(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Negative log likelihood of each text, ``(n,)`` float32: the sum over its tokens, given those before.

    Logits are ``(n, tokens, vocabulary)``, of any floating type, labels ``(n, tokens)`` int64, -100 for
    padding. ``label_smoothing``, in [0, 1), is the share of a token's probability that is spread over the
    vocabulary.
    """
    losses = nn.functional.cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return losses.view_as(labels).sum(dim=1)


def chunks_of(
    rows: Sequence[T], batch: Callable[[Sequence[T]], Mapping[str, Any]]
) -> list[Mapping[str, Tensor]]:
    """The chunks of validation rows, made from a few rows at a time."""
    some = [rows[first : first + _LOOKED_AT] for first in range(0, len(rows), _LOOKED_AT)]
    return [chunk for each in some for chunk in batch(each)["pairs"]["chunks"]]


def token_accuracy(model: Writer, chunks: Sequence[Mapping[str, Tensor]]) -> float:
    """Share, ×100, of the target tokens that the model ranks first, given those before them."""
    right = count = 0
    with torch.inference_mode():
        for chunk in chunks:
            here = {name: value.to(model.model.device) for name, value in chunk.items()}
            counted = here["labels"] != IGNORED
            right += int(((model.logits(here).argmax(dim=2) == here["labels"]) & counted).sum())
            count += int(counted.sum())
    return 100.0 * right / count
