"""Memory for the keys and values of many pieces of text, in every layer of a model."""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import torch
from torch import Tensor

LayerStates = tuple[Tensor, Tensor]
"""Keys and values of one piece of text in one layer, each ``(heads, length, size)``."""


class Store:
    """Keys and values of ``count`` pieces of at most ``length`` tokens.

    All memory is allocated when the first piece is written, and never grows. Unwritten parts are zero.
    """

    def __init__(self, count: int, length: int) -> None:
        self.count = count
        self.length = length
        self.lengths = torch.zeros(count, dtype=torch.int64)
        self.layers: list[LayerStates] = []

    def prepare(self, like: Sequence[LayerStates]) -> None:
        """Allocate the memory, ``(count, heads, length, size)`` per tensor, unless this was done before."""
        if not self.layers:
            self.layers = [(self._zeros(keys), self._zeros(values)) for keys, values in like]

    def write(self, piece: int, states: Sequence[LayerStates]) -> None:
        """Write a piece from its first token on."""
        self.prepare(states)
        length = states[0][0].shape[1]
        for (keys, values), (new_keys, new_values) in zip(self.layers, states, strict=True):
            keys[piece, :, :length] = new_keys
            values[piece, :, :length] = new_values
        self.lengths[piece] = length

    def read(self, piece: int) -> list[LayerStates]:
        """The keys and values of a piece, as views."""
        length = int(self.lengths[piece])
        return [(keys[piece, :, :length], values[piece, :, :length]) for keys, values in self.layers]

    def _zeros(self, like: Tensor) -> Tensor:
        shape = (self.count, like.shape[0], self.length, like.shape[2])
        if like.device.type != "cpu" or not prod(shape):
            return like.new_zeros(shape)
        # The system zeroes this memory on first use, which is far cheaper with large pages.
        private: dict[str, Any] = {}
        if hasattr(mmap, "MAP_ANONYMOUS"):
            private["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            memory = mmap.mmap(-1, prod(shape) * like.element_size(), **private)
        except OSError as error:
            raise MemoryError(f"{prod(shape) * like.element_size()} bytes for keys and values") from error
        with suppress(AttributeError, OSError):  # another system, or one without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(memory, dtype=like.dtype).view(shape)
