"""Types shared by all executors: an item of work, its loader, its result."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice
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


class Waiting(Generic[W]):
    """The items that still have to be given to workers, numbered from 0; each is read when its turn comes.

    An item whose worker was lost comes again, before all others, until it has ended ``DEATHS`` workers.
    """

    def __init__(self, items: Iterable[W], workers: int) -> None:
        numbered = enumerate(items)
        first = list(islice(numbered, workers))
        self.workers = len(first)  # how many of the workers are needed
        self._items = chain(first, numbered)
        self._again: list[tuple[int, W]] = []
        self._deaths: Counter[int] = Counter()

    def take(self) -> tuple[int, W] | None:
        """The next item with its number; None if none is left."""
        return self._again.pop() if self._again else next(self._items, None)

    def put_back(self, number: int, item: W) -> bool:
        """Have an item whose worker was lost done again; False if it has ended too many of them."""
        self._deaths[number] += 1
        if self._deaths[number] >= DEATHS:
            return False
        self._again.append((number, item))
        return True

    def is_empty(self) -> bool:
        """Whether no item is left; the next one is read for it, so ask when no worker is busy."""
        if not self._again and (entry := next(self._items, None)):
            self._again.append(entry)
        return not self._again
