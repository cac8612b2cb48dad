"""Divides rows into batches."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

Part_co = TypeVar("Part_co", covariant=True)


class Sliceable(Protocol[Part_co]):
    """Rows that have a length and can be sliced: a list, a range, an array or a tensor."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Part_co: ...


def in_batches(rows: Sliceable[Part_co], size: int) -> Iterator[Part_co]:
    """Yield consecutive slices of ``size`` rows, 1 or more; the last slice may have fewer rows.

    If ``rows`` is ``range(n)``, the slices are ranges, with the indices of the rows of each batch.
    """
    return (rows[first : first + size] for first in range(0, len(rows), size))
