"""Steps that map numbered items to rows: each item is committed as a shard of a dataset folder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import OtherWorkError, WorkerError
from pairsmith.runs.attribution import model_display_name
from pairsmith.runs.card import Card
from pairsmith.runs.claim import Run
from pairsmith.runs.executors import ExecutorChoice, execute
from pairsmith.runs.folder import DatasetFolder, summary
from pairsmith.runs.identity import Identity
from pairsmith.runs.source_hashes import refuse_changed_sources
from pairsmith.runs.work import Advance, Load, LostItem
from pairsmith.runs.writer import FolderWriter


class Item(Protocol):
    """The input of one shard."""

    @property
    def number(self) -> int:
        """The shard's number."""
        ...


W = TypeVar("W", bound=Item)
T = TypeVar("T")
Records = Callable[[], Iterator[T]]
"""Returns an iterator over all records from the beginning; every call gives the same records."""
RowsAndRejects = tuple[pa.Table, pa.Table]
"""The rows and the rejects of a shard."""


@dataclass(frozen=True, slots=True)
class RowShard:
    """The rows of a table that are the input of the shard ``number``."""

    number: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class RecordShard(Generic[T]):
    """The records that are the input of the shard ``number``."""

    number: int
    records: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Shards(Generic[W]):
    """The input of a step, cut into shards.

    Attributes:
        read: returns the inputs of the shards with these numbers, which are in ascending order.
        sizes: the number of units of work in each shard.
        unit: the plural of these units, for the progress bar.
    """

    read: Callable[[Sequence[int]], Iterable[W]]
    sizes: Sequence[int]
    unit: str


def row_shards(table: pa.Table, size: int, numbers: Iterable[int]) -> Iterator[RowShard]:
    """The shards with these numbers of a table that is cut into shards of ``size`` rows.

    Each shard is copied when its turn comes, as a slice would be sent to another process with its whole
    table.
    """
    for number in numbers:
        rows = table.slice(number * size, size)
        yield RowShard(number, rows.take(np.arange(len(rows))))


def record_shards(records: Records[T], size: int, numbers: Iterable[int]) -> Iterator[RecordShard[T]]:
    """The shards with these numbers, in ascending order, of records cut into shards of ``size``.

    Records are read when their shard's turn comes.
    """
    stream, at = records(), 0
    for number in numbers:
        skipped = (number - at) * size
        yield RecordShard(number, tuple(islice(stream, skipped, skipped + size)))
        at = number + 1


def start_part(run: Run, identity: Identity, schema: pa.Schema, *, planned: int) -> FolderWriter:
    """Start the folder of a part of a step; its work is kept even if the step itself starts over.

    ``run`` is the run of the part, ``identity`` its work, ``schema`` the columns of its rows, and ``planned``
    its number of shards. If the part's folder has work with other settings or inputs, that work is replaced.
    This is safe: the step has claimed its own folder before, and without ``--fresh`` this claim is refused if
    the folder contains parts of other work.
    """
    try:
        return FolderWriter.start(replace(run, fresh=False), identity, schema, planned=planned)
    except OtherWorkError as error:
        run.progress.say(f"{run.out} is made again from the start, as its {error.changed} have changed")
        return FolderWriter.start(replace(run, fresh=True), identity, schema, planned=planned)


def say_loading(run: Run, model: str) -> None:
    """Tell the user that ``model`` is being loaded, which may take a minute; nothing if ``model`` is ""."""
    if model:
        run.progress.say(f"loading {model_display_name(model)}")


def commit_each(
    writer: FolderWriter,
    shards: Shards[W],
    load: Load[W, RowsAndRejects],
    where: ExecutorChoice,
    *,
    title: str,
    model: str = "",
) -> None:
    """Process the inputs of the shards that are not finished, and commit the rows and rejects of each.

    Args:
        writer: the folder to write to.
        shards: the input of all shards.
        load: loads the work in each worker; the work turns the input of a shard into rows and rejects.
        where: where the work is done.
        title: label of the progress bar.
        model: name of the model that ``load`` loads, for a message; "" for none.

    Raises:
        InputError: a source has changed since it was hashed. Shards that were committed before are kept.
        WorkerError: an item made its worker exit three times.
    """
    run = writer.run
    left, done, total = shards_left(writer, shards.sizes)
    if done < total:
        say_loading(run, model)
    from_sources = False
    with run.progress.task(title, total, shards.unit) as bar:
        bar.skip(done)
        items = shards.read(left)
        for outcome in execute(load, items, bar.advance, where, partial(run.tell, "worker")):
            if isinstance(outcome, LostItem):
                raise WorkerError(
                    f"{title}: part {outcome.item.number} made its worker exit three times ({outcome.how}); "
                    "the other parts are saved\nrun the same command again, with fewer --workers or smaller "
                    "batches if memory ran out"
                )
            rows, rejects = outcome.result
            from_sources = isinstance(outcome.item, RecordShard)
            if from_sources:  # so that no shard has rows of the new content
                refuse_changed_sources(writer.inputs.values(), few_files=True)
            writer.commit(outcome.item.number, {"train": rows}, rejects)
    if from_sources:
        refuse_changed_sources(writer.inputs.values())


def shards_left(writer: FolderWriter, sizes: Sequence[int]) -> tuple[list[int], int, int]:
    """The numbers of the unfinished shards, the total size of the finished shards, and that of all shards.

    A rank of an array job counts only the shards of its share.
    """
    own = [number for number in range(len(sizes)) if writer.has(number)]
    left = [number for number in own if not writer.is_done(number)]
    total = sum(sizes[number] for number in own)
    return left, total - sum(sizes[number] for number in left), total


def equal_shards(count: int, size: int) -> list[int]:
    """The sizes of the shards of ``count`` items: ``size`` each, the last one perhaps fewer."""
    return [min(size, count - start) for start in range(0, count, size)]


def nothing_to_do(writer: FolderWriter) -> DatasetFolder:
    """The folder of a step that an earlier run has finished; the user is told so."""
    writer.run.progress.say(f"{writer.run.out} is finished already; nothing to do")
    return writer.folder()


def finished(writer: FolderWriter, card: Card) -> DatasetFolder:
    """Finish the folder of a step, and tell the user how many rows it has."""
    folder = writer.finish(card)
    writer.run.progress.say(summary(folder))
    return folder


class ProgressScaler:
    """Converts numbers of finished units, such as passages, into numbers of records for the progress bar.

    ``records`` and ``units`` are the totals; ``advance`` is called with numbers of records.
    """

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
