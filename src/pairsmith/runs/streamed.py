"""Shards of records that are read as a stream, so that they are never all in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar, overload

from pairsmith.runs.claim import Run
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, commit_each, items_done, undone
from pairsmith.runs.work import Advance, Load
from pairsmith.runs.writer import FolderWriter

T = TypeVar("T")
Records = Callable[[], Iterator[T]]
"""Returns an iterator over all records from the beginning, the same each time."""


@dataclass(frozen=True, slots=True)
class RecordShard(Generic[T]):
    """Records that are processed and saved together."""

    number: int
    records: tuple[T, ...]


class ProgressScaler:
    """Converts finished units, such as passages, to finished records, which the progress bar counts."""

    def __init__(self, records: int, units: int, advance: Advance) -> None:
        self._records, self._units, self._advance = records, max(units, 1), advance
        self._done = self._told = 0

    def __call__(self, units: int) -> None:
        """Report that this many more units are finished."""
        self._done += units
        self._tell(self._records * self._done // self._units)

    def finish(self) -> None:
        """Report that all records are finished."""
        self._tell(self._records)

    def _tell(self, records: int) -> None:
        self._advance(records - self._told)
        self._told = records


class RecordShards(Sequence[RecordShard[T]], Generic[T]):
    """The shards of ``size`` records with these numbers, read as they are accessed, best in order."""

    def __init__(self, records: Records[T], size: int, numbers: Sequence[int]) -> None:
        self._records, self._size, self._numbers = records, size, numbers
        self._stream: Iterator[T] = iter(())
        self._at = -1  # the shard that the stream yields next; -1 before it is opened

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> RecordShard[T]: ...
    @overload
    def __getitem__(self, place: slice) -> "RecordShards[T]": ...
    def __getitem__(self, place: int | slice) -> "RecordShard[T] | RecordShards[T]":
        if isinstance(place, slice):
            return RecordShards(self._records, self._size, self._numbers[place])
        number = self._numbers[place]
        if self._at < 0 or number < self._at:
            self._stream, self._at = self._records(), 0
        skipped = (number - self._at) * self._size
        found = tuple(islice(self._stream, skipped, skipped + self._size))
        self._at = number + 1
        return RecordShard(number, found)


def commit_records(
    writer: FolderWriter,
    load: Load[RecordShard[T], Made],
    records: Records[T],
    count: int,
    size: int,
    where: ExecutorChoice,
    run: Run,
    *,
    title: str,
    unit: str,
) -> None:
    """Process ``count`` records, ``size`` at a time, and commit each such shard; see ``commit_each``."""
    left = undone(writer, -(-count // size))
    commit_each(
        writer,
        load,
        RecordShards(records, size, left),
        where,
        run,
        title=title,
        unit=unit,
        done=items_done(left, count, size),
        total=count,
    )
