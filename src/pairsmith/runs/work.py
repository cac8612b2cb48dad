"""What all executors share: types of an item of work, of its loader and result; the loop over a pool."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

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


@dataclass(eq=False)
class Worker:
    """A worker, which is ready once it has loaded; its current item with its number and finished units."""

    index: int
    ready: bool = False
    number: int | None = None
    item: Any = None
    units: int = 0


V = TypeVar("V", bound=Worker)


class Pool(Protocol[V]):
    """Workers of one kind."""

    @property
    def workers(self) -> Sequence[V]:
        """Those there are; at least one."""

    def give(self, worker: V) -> None:
        """Have a ready worker begin its item."""

    def events(self) -> Iterator[tuple[V, str, Any]]:
        """Wait for what happens next, and yield it.

        That is ``"advance"`` with a number of units, ``"done"`` with a result, or ``"ended"`` and how, of a
        worker that is gone. What a worker raised is raised here; a worker that has loaded is made ready.
        """

    def replace(self, worker: V, how: str) -> None:
        """Put another worker in place of one that ended, or go on without it, and say so.

        Raises a ``WorkerError`` if too many ended while loading.
        """


def work_through(
    pool: Pool[V], waiting: Waiting[W], advance: Advance
) -> Iterator[Done[W, Any] | LostItem[W]]:
    """Have the workers do all items; yields what becomes of each, in the order in which they finish."""
    while True:
        for worker in pool.workers:
            if worker.ready and worker.number is None and (entry := waiting.take()):
                worker.number, worker.item = entry
                pool.give(worker)
        if all(worker.number is None for worker in pool.workers) and waiting.is_empty():
            return
        for worker, event, value in pool.events():
            number, item = worker.number, worker.item
            if event == "advance":
                worker.units += value
                advance(value)
            elif event == "done":
                worker.number, worker.item, worker.units = None, None, 0
                yield Done(item, value)
            else:
                advance(-worker.units)  # what it had done of its item is done again
                pool.replace(worker, value)
                if number is not None and not waiting.put_back(number, item):
                    yield LostItem(item, value)
