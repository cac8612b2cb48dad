"""What all executors share: the types of items, workers and results, and the loop that distributes items."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

W = TypeVar("W")
R = TypeVar("R")

Advance = Callable[[int], None]
"""Called with the number of units of work that were finished; negative if units have to be done again."""
Work = Callable[[W, Advance], R]
"""Processes an item, and returns its result."""
Load = Callable[[int], Work[W, R]]
"""Called in each worker with its number, from 0; loads the models and returns the work. The function is
picklable."""

DEATHS = 3
"""An item during which this many workers have ended is given up."""


@dataclass(frozen=True, slots=True)
class Done(Generic[W, R]):
    """An item and its result."""

    item: W
    result: R


@dataclass(frozen=True, slots=True)
class LostItem(Generic[W]):
    """An item during which ``DEATHS`` workers have ended, and how the last of these ended, in words."""

    item: W
    how: str


class Waiting(Generic[W]):
    """The items that still have to be given to workers, numbered from 0; each is read when its turn comes.

    If the worker of an item ends, the item is given to another worker before all other items, until
    ``DEATHS`` workers have ended during it.
    """

    def __init__(self, items: Iterable[W], workers: int) -> None:
        numbered = enumerate(items)
        first = list(islice(numbered, workers))
        self.workers = len(first)  # number of workers that are needed: no more than there are items
        self._items = chain(first, numbered)
        self._again: list[tuple[int, W]] = []
        self._deaths: Counter[int] = Counter()

    def take(self) -> tuple[int, W] | None:
        """The next item with its number; None if none is left."""
        return self._again.pop() if self._again else next(self._items, None)

    def put_back(self, number: int, item: W) -> bool:
        """Put back an item whose worker ended; False if too many workers have ended during it."""
        self._deaths[number] += 1
        if self._deaths[number] >= DEATHS:
            return False
        self._again.append((number, item))
        return True

    def is_empty(self) -> bool:
        """Whether no item is left. This reads the next item, so call it when no worker is busy."""
        if not self._again and (entry := next(self._items, None)):
            self._again.append(entry)
        return not self._again


@dataclass(eq=False)
class Worker:
    """A worker.

    Attributes:
        index: number of the worker, from 0.
        ready: whether it has loaded its work.
        number: number of its current item; None if it has none.
        item: its current item.
        units: number of finished units of work of this item.
    """

    index: int
    ready: bool = False
    number: int | None = None
    item: Any = None
    units: int = 0


V = TypeVar("V", bound=Worker)


class Pool(Protocol[V]):
    """Several workers of one kind: processes of this machine, or actors of a cluster."""

    @property
    def workers(self) -> Sequence[V]:
        """The current workers, at least one."""

    def give(self, worker: V) -> None:
        """Send a worker that is ready its item."""

    def events(self) -> Iterator[tuple[V, str, Any]]:
        """Wait for the next events, and yield each as worker, kind and value.

        The kinds are ``"advance"`` with a number of units, ``"done"`` with a result, and ``"ended"`` with
        words on how the worker ended. An exception of a worker is raised here. A worker that has loaded its
        work is marked as ready.
        """

    def replace(self, worker: V, how: str) -> None:
        """Start another worker in place of one that ended, or continue without it, and tell the user.

        Raises:
            WorkerError: too many workers ended while they were loading.
        """


def work_through(
    pool: Pool[V], waiting: Waiting[W], advance: Advance
) -> Iterator[Done[W, Any] | LostItem[W]]:
    """Give all items to the workers; yields the outcome of each item, in the order in which they finish."""
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
                advance(-worker.units)  # the finished units of its item have to be done again
                pool.replace(worker, value)
                if number is not None and not waiting.put_back(number, item):
                    yield LostItem(item, value)
