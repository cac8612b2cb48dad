"""Items of work, the functions that do them, and what becomes of each: what all executors have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")

Advance = Callable[[int], None]
"""Called with the number of units of work that were finished."""
Work = Callable[[W, Advance], R]
Load = Callable[[int], Work[W, R]]
"""Returns a worker's work, with its models loaded, given the worker's number from 0. It must be picklable."""
Say = Callable[[str], None]

DEATHS = 3
"""An item that ended this many workers is set aside."""


@dataclass(frozen=True, slots=True)
class Done(Generic[W, R]):
    """An item and its result."""

    item: W
    result: R


@dataclass(frozen=True, slots=True)
class LostItem(Generic[W]):
    """An item that ended ``DEATHS`` workers, and how the last of them ended."""

    item: W
    how: str
