"""Cuts rows into batches."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

Part_co = TypeVar("Part_co", covariant=True)


class Sliceable(Protocol[Part_co]):
    """Rows with a length, of which a slice can be taken: a list, a range, an array or a tensor."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Part_co: ...


def in_batches(rows: Sliceable[Part_co], size: int) -> Iterator[Part_co]:
    """Slices of ``size`` consecutive rows, 1 or more, one after the other; the last may have fewer.

    Those of ``range(n)`` are ranges: they say from where to where each batch of n rows reaches.
    """
    return (rows[first : first + size] for first in range(0, len(rows), size))
