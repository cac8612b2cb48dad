"""A batch computed in chunks of texts of one length, so that its size is no matter of memory.

Forward, a chunk keeps its result alone; backward it is computed once more, with the same dropout. A third
more arithmetic, but on memory that stays in the processor's caches, and hardly any padding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pairsmith.encoders.encode import batches_by_length, tokens_at_once

Features = Mapping[str, Any]


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
    lengths: Sequence[int], features: Callable[[list[int]], Features], device: torch.device
) -> Chunked:
    """Cut n texts, of so many tokens each, into chunks.

    Args:
        lengths: of the texts.
        features: makes those of the texts of these numbers.
        device: where they will be computed; it says how large a chunk may be.
    """
    batches = list(batches_by_length(lengths, len(lengths), tokens_at_once(device)))
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
