"""Batches computed in chunks of texts of similar length, so that memory does not limit the batch size.

Chunks fit into a CPU's caches and contain little padding. If a loss is a sum over texts, its gradients are
computed chunk by chunk (``sum_of_losses``). If it depends on all texts together, activations are kept for the
backward pass while there is room; of further chunks only the results are kept, and they are recomputed in the
backward pass with the same dropout, which costs a third more arithmetic (``compute_chunks``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pairsmith.models.encode import batches_by_length, tokens_at_once
from pairsmith.training.processes import Processes

Features = Mapping[str, Any]

KEPT_BYTES = 2**30
"""The most bytes of activations that ``compute_chunks`` keeps for the backward pass, to recompute less."""


def chunked(
    lengths: Sequence[int],
    features: Callable[[list[int]], Features],
    device: torch.device,
    batch_tokens: int | None = None,
) -> dict[str, Any]:
    """Split n texts of these lengths in tokens into chunks of similar length.

    ``features`` makes the features of the texts with these indices, padded to the longest. A chunk has at
    most ``batch_tokens`` tokens, padding included, unless a single text has more; None: what suits the
    device.

    Returns:
        ``chunks``, the features of each, and ``order``, ``(n,)`` int64, the index of the text at each
        position of the concatenated chunks: a mapping that a trainer can move to a device.
    """
    most = batch_tokens or tokens_at_once(device)
    return _chunks_of(list(batches_by_length(lengths, batch_tokens=most)), features)


def grouped(
    lengths: Sequence[int],
    features: Callable[[list[int]], Features],
    device: torch.device,
    batch_tokens: int | None = None,
) -> dict[str, Any]:
    """Split the n texts of one chunk into the groups of similar length that take the least time.

    The time of a group is that of its tokens, padding included, and of a call of the model. Arguments and
    result are those of ``chunked``; without ``batch_tokens``, a group may be of any size.
    """
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    ends = least_padded(np.array([lengths[number] for number in order]), _call_tokens(device), batch_tokens)
    return _chunks_of([order[start:end] for start, end in pairwise([0, *ends])], features)


def least_padded(lengths: NDArray[np.int64], call: int, most: int | None = None) -> list[int]:
    """The end of each group, if texts of decreasing ``lengths``, ``(n,)``, are grouped at the least cost.

    A group costs its tokens, padded to the longest text, and ``call`` tokens for calling the model. A group
    has at most ``most`` tokens, unless a single text has more; None: no limit.
    """
    costs = np.zeros(len(lengths) + 1)  # the least cost of the first texts, by their number
    starts = [0]  # where the last group of the first texts starts, by their number
    for end in range(1, len(costs)):
        tokens = lengths[:end] * np.arange(end, 0, -1)  # of the groups from each text to this end
        too_large = tokens[:-1] > (most or math.inf)
        costs_from = costs[:end] + tokens + call
        costs_from[:-1][too_large] = math.inf
        starts.append(int(costs_from.argmin()))
        costs[end] = costs_from[starts[end]]
    ends = [len(lengths)] if len(lengths) else []
    while ends and starts[ends[-1]]:
        ends.append(starts[ends[-1]])
    return ends[::-1]


def _call_tokens(device: torch.device) -> int:
    """The number of tokens that take as long as a call of a small encoder takes besides its tokens."""
    return tokens_at_once(device) // (32 if device.type == "cpu" else 8)


def _chunks_of(batches: Sequence[list[int]], features: Callable[[list[int]], Features]) -> dict[str, Any]:
    order = torch.tensor([number for batch in batches for number in batch])
    return {"chunks": [features(batch) for batch in batches], "order": order}


def compute_chunks(
    compute: Callable[[Features], Tensor],
    inputs: Mapping[str, Any],
    kept_bytes: Callable[[Features], float] = lambda _: math.inf,
) -> Tensor:
    """The results of ``compute`` for all chunks of ``chunked``, ``(texts, …)``, in the order of the texts.

    ``kept_bytes`` estimates the bytes that a chunk keeps for the backward pass (``activation_bytes``). Chunks
    are kept up to ``KEPT_BYTES`` in all, the others are recomputed; the results and gradients are the same.
    """
    chunks = inputs["chunks"]
    results, room = [], float(KEPT_BYTES)
    for chunk in chunks:
        if len(chunks) == 1 or not torch.is_grad_enabled():
            results.append(compute(chunk))
        elif (needed := kept_bytes(chunk)) <= room:
            room -= needed
            results.append(compute(chunk))
        else:
            results.append(checkpoint(compute, chunk, use_reentrant=False))
    return torch.cat(results)[inputs["order"].argsort()]


def activation_bytes(config: Any, chunk: Features) -> float:
    """An estimate of the bytes that a transformer keeps of a chunk for the backward pass, in float32.

    ``config`` is the transformer's configuration, and ``chunk`` has ``input_ids``, ``(n, tokens)``. Each
    layer keeps, for each token, a dozen vectors of the hidden size, four vectors as wide as the inner layer
    of the perceptron, and three rows of attention weights for each head. The result is infinity if the
    configuration lacks one of the sizes.
    """
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    sizes = [size for name in names if isinstance(size := getattr(config, name, None), int)]
    if "input_ids" not in chunk or len(sizes) < len(names):
        return math.inf
    layers, width, heads = sizes
    inner: int = getattr(config, "intermediate_size", None) or 4 * width
    rows, length = chunk["input_ids"].shape
    values = int(rows) * int(length) * layers * (12 * width + 4 * inner + 3 * heads * int(length))
    return 4.0 * values


def mean_of_losses(
    losses: Callable[[Features], Tensor], chunks: Sequence[Features], model: nn.Module, count: int | Tensor
) -> dict[str, Tensor]:
    """The mean loss as a mapping with ``loss``, ``()`` float32: ``sum_of_losses`` divided by ``count``.

    ``count`` is the number of losses that are summed. Processes that share a training divide by the mean of
    their counts: as their gradients are averaged, each example of the whole batch weighs as much as in one
    process.
    """
    total = sum_of_losses(losses, chunks, model)
    return {"loss": total / Processes.current().mean(count, total.device)}


def sum_of_losses(
    losses: Callable[[Features], Tensor], chunks: Sequence[Features], model: nn.Module
) -> Tensor:
    """The sum of all texts' losses, ``()`` float32, on which ``backward`` may be called once.

    The gradients of the model's weights are computed chunk by chunk in the forward pass. ``losses`` gives the
    losses of a chunk's texts, ``(texts,)``; there is at least one chunk.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not torch.is_grad_enabled() or not weights:
        return torch.stack([losses(chunk).sum() for chunk in chunks]).sum()
    total: Tensor = _Summed.apply(losses, chunks, *weights)  # type: ignore[no-untyped-call]  # torch has no types for it
    return total


class _Summed(torch.autograd.Function):
    """The sum of the losses of chunks; its forward pass stores the gradients, and no activations."""

    @staticmethod
    def forward(
        ctx: Any, losses: Callable[[Features], Tensor], chunks: Sequence[Features], *weights: Tensor
    ) -> Tensor:
        total = torch.zeros((), device=weights[0].device)
        gradients: list[Tensor | None] = [None] * len(weights)
        for number, chunk in enumerate(chunks):
            with torch.enable_grad():
                loss = losses(chunk).sum()
            with torch.autocast(total.device.type, enabled=False):  # gradients use the forward pass's dtypes
                chunk_gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            last = number == len(chunks) - 1
            for place, gradient in enumerate(chunk_gradients):
                earlier = gradients[place]
                if gradient is not None and earlier is not None:
                    earlier.add_(gradient)
                elif gradient is not None:
                    # Nothing may be added to what torch returned: it may be the gradient of several weights.
                    gradients[place] = gradient if last else gradient.clone()
            total += loss.detach()
        ctx.gradients = gradients
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if outer[0] == 1:
            return None, None, *gradients
        return None, None, *(None if gradient is None else gradient * outer[0] for gradient in gradients)
