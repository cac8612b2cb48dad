"""A batch computed in chunks of texts of one length, so that its size is no matter of memory.

Chunks are small enough for a processor's caches, and hold hardly any padding. A loss that is a sum over texts
goes backward chunk by chunk. Where the loss takes all texts together, a chunk keeps its result alone and is
computed once more on the way backward, with the same dropout: a third more arithmetic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pairsmith.encoders.encode import batches_by_length, tokens_at_once

Features = Mapping[str, Any]

_CALLS = 8
"""So many calls of a model with hardly any tokens take as long as one with ``tokens_at_once``, or less."""


@dataclass(frozen=True, slots=True)
class Chunked:
    """Features of n texts in chunks.

    Attributes:
        chunks: those of each chunk, padded to the longest in it.
        order: ``(n,)`` int64, the number of the text at each place of all chunks together.
    """

    chunks: Sequence[Features]
    order: Tensor

    def as_inputs(self) -> dict[str, Any]:
        """As a trainer can move it to a device."""
        return {"chunks": list(self.chunks), "order": self.order}


def chunked(
    lengths: Sequence[int],
    features: Callable[[list[int]], Features],
    device: torch.device,
    batch_tokens: int | None = None,
) -> Chunked:
    """Cut n texts, of so many tokens each, into chunks.

    Args:
        lengths: of the texts.
        features: makes those of the texts of these numbers.
        device: where they will be computed; it says how large a chunk may be, where nothing else does.
        batch_tokens: most tokens of a chunk, padding included, unless one text has more.
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
    """Cut one chunk's n texts where padding would cost more than another call of the model does.

    Args:
        lengths: of the texts, in tokens.
        features: makes those of the texts of these numbers.
        device: where they will be computed; it says what a call costs.
        batch_tokens: most tokens of a call, padding included, unless one text has more; None: any number.
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
    """What ``compute`` makes of each text, a row for each, in the order of the texts.

    Args:
        compute: from a chunk's features to ``(texts, …)``.
        inputs: what ``Chunked.as_inputs`` gave.
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
    """The sum of all texts' losses, whose gradients are computed chunk by chunk along with it.

    Args:
        losses: from a chunk's features to the losses of its texts, ``(texts,)``; it computes with
            ``model``.
        chunks: of the texts; at least one.
        model: whose weights get the gradients.

    Returns:
        ``()`` float32, to go backward from once.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not torch.is_grad_enabled() or not weights:
        return torch.stack([losses(chunk).sum() for chunk in chunks]).sum()
    total: Tensor = _Summed.apply(losses, chunks, *weights)  # type: ignore[no-untyped-call]  # torch has no type
    return total


class _Summed(torch.autograd.Function):
    """A sum of chunks' losses that has its gradients with it, and no chunk's activations."""

    @staticmethod
    def forward(
        ctx: Any, losses: Callable[[Features], Tensor], chunks: Sequence[Features], *weights: Tensor
    ) -> Tensor:
        total = torch.zeros((), device=weights[0].device)
        gradients: list[Tensor | None] = [None] * len(weights)
        for chunk in chunks:
            with torch.enable_grad():
                loss = losses(chunk).sum()
            with torch.autocast(total.device.type, enabled=False):  # backward is in forward's formats
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
