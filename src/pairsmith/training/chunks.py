"""Batches computed in chunks of texts of similar length, so that memory does not limit the batch size.

Chunks fit into a CPU's caches and contain little padding. If a loss is a sum over texts, its gradients are
computed chunk by chunk. If it depends on all texts together, only the results of chunks are kept, and each
chunk is recomputed in the backward pass, with the same dropout: a third more arithmetic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pairsmith.models.encode import batches_by_length, tokens_at_once

Features = Mapping[str, Any]

_CALLS = 8
"""This many calls of a model with hardly any tokens take no longer than one with ``tokens_at_once``."""


@dataclass(frozen=True, slots=True)
class Chunked:
    """Features of n texts in chunks.

    Attributes:
        chunks: the features of each chunk, padded to its longest text.
        order: ``(n,)`` int64, the index of the text at each position of the concatenated chunks.
    """

    chunks: Sequence[Features]
    order: Tensor

    def as_inputs(self) -> dict[str, Any]:
        """As a mapping, which a trainer can move to a device."""
        return {"chunks": list(self.chunks), "order": self.order}


def chunked(
    lengths: Sequence[int],
    features: Callable[[list[int]], Features],
    device: torch.device,
    batch_tokens: int | None = None,
) -> Chunked:
    """Split n texts into chunks of similar length.

    Args:
        lengths: of the texts, in tokens.
        features: makes the features of the texts with these indices.
        device: where they are computed; it decides the size of chunks if ``batch_tokens`` does not.
        batch_tokens: most tokens in a chunk, padding included, unless a single text has more.
    """
    most = batch_tokens or tokens_at_once(device)
    batches = list(batches_by_length(lengths, len(lengths), most))
    return _of(batches, features)


def grouped(
    lengths: Sequence[int],
    features: Callable[[list[int]], Features],
    device: torch.device,
    batch_tokens: int | None = None,
) -> Chunked:
    """Split the n texts of one chunk where padding would cost more than another call of the model.

    Args:
        lengths: of the texts, in tokens.
        features: makes the features of the texts with these indices.
        device: where they are computed; it decides what a call costs.
        batch_tokens: most tokens in a call, padding included, unless a single text has more; None: no limit.
    """
    most = tokens_at_once(device) // _CALLS
    groups: list[list[int]] = []
    padding = 0
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        longest = lengths[groups[-1][0]] if groups else 0
        padding += longest - lengths[number] if groups else 0
        full = batch_tokens is not None and groups and longest * (len(groups[-1]) + 1) > batch_tokens
        if not groups or padding > most or full:
            groups.append([])
            padding = 0
        groups[-1].append(number)
    return _of(groups, features)


def _of(batches: Sequence[list[int]], features: Callable[[list[int]], Features]) -> Chunked:
    order = torch.tensor([number for batch in batches for number in batch])
    return Chunked([features(batch) for batch in batches], order)


def compute_chunks(compute: Callable[[Features], Tensor], inputs: Mapping[str, Any]) -> Tensor:
    """The results of ``compute`` for all chunks: one row for each text, in the order of the texts.

    Args:
        compute: maps a chunk's features to a tensor ``(texts, …)``.
        inputs: what ``Chunked.as_inputs`` returned.
    """
    chunks = inputs["chunks"]
    if len(chunks) == 1 or not torch.is_grad_enabled():
        found = [compute(chunk) for chunk in chunks]
    else:
        found = [checkpoint(compute, chunk, use_reentrant=False) for chunk in chunks]
    return torch.cat(found)[inputs["order"].argsort()]


def sum_of_losses(
    losses: Callable[[Features], Tensor], chunks: Sequence[Features], model: nn.Module
) -> Tensor:
    """The sum of all texts' losses; its gradients are computed chunk by chunk in the forward pass.

    Args:
        losses: maps a chunk's features to the losses of its texts, ``(texts,)``, computed with
            ``model``.
        chunks: features of the texts; at least one chunk.
        model: the model whose weights get the gradients.

    Returns:
        ``()`` float32; ``backward`` may be called on it once.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not torch.is_grad_enabled() or not weights:
        return torch.stack([losses(chunk).sum() for chunk in chunks]).sum()
    total: Tensor = _Summed.apply(losses, chunks, *weights)  # type: ignore[no-untyped-call]  # torch has no types for it
    return total


class _Summed(torch.autograd.Function):
    """A sum of chunks' losses that stores its gradients, and no chunk's activations."""

    @staticmethod
    def forward(
        ctx: Any, losses: Callable[[Features], Tensor], chunks: Sequence[Features], *weights: Tensor
    ) -> Tensor:
        total = torch.zeros((), device=weights[0].device)
        gradients: list[Tensor | None] = [None] * len(weights)
        for chunk in chunks:
            with torch.enable_grad():
                loss = losses(chunk).sum()
            with torch.autocast(total.device.type, enabled=False):  # gradients use the forward pass's dtypes
                found = torch.autograd.grad(loss, weights, allow_unused=True)
            for place, gradient in enumerate(found):
                if gradient is not None:
                    before = gradients[place]
                    gradients[place] = gradient.clone() if before is None else before.add_(gradient)
            total += loss.detach()
        ctx.gradients = gradients
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return None, None, *(None if each is None else each.mul_(outer[0]) for each in gradients)
