"""Work that is a map over numbered items, each committed as a shard of a dataset folder when it is done."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Load, LostItem
from pairsmith.runs.writer import FolderWriter


class Item(Protocol):
    """The work of one shard."""

    @property
    def number(self) -> int:
        """The shard's number."""
        ...


W = TypeVar("W", bound=Item)
T = TypeVar("T")
Records = Callable[[], Iterator[T]]
"""Returns an iterator over all records from the beginning, the same each time."""
RowsAndRejects = tuple[pa.Table, pa.Table]
"""A shard's rows and rejects."""


@dataclass(frozen=True, slots=True)
class RowShard:
    """Rows that are processed and saved together."""

    number: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class RecordShard(Generic[T]):
    """Records that are processed and saved together."""

    number: int
    records: tuple[T, ...]


def row_shards(table: pa.Table, size: int, numbers: Iterable[int]) -> Iterator[RowShard]:
    """The shards of a table with these numbers, of ``size`` rows each; each is copied when it is needed.

    A slice would be sent to another process with its whole table.
    """
    for number in numbers:
        rows = table.slice(number * size, size)
        yield RowShard(number, rows.take(np.arange(len(rows))))


def record_shards(records: Records[T], size: int, numbers: Iterable[int]) -> Iterator[RecordShard[T]]:
    """The shards of ``size`` records with these numbers, in ascending order, read as they are needed."""
    stream, at = records(), 0
    for number in numbers:
        skipped = (number - at) * size
        yield RecordShard(number, tuple(islice(stream, skipped, skipped + size)))
        at = number + 1


def start_part(
    run: Run,
    *,
    step: str,
    schema: pa.Schema,
    settings: Mapping[str, JSON],
    inputs: Mapping[str, str],
    models: Mapping[str, str],
    planned: int,
) -> FolderWriter:
    """Start the folder of a part of a step, whose work is kept even where the step itself starts over.

    Work with other settings or inputs in the folder is replaced. This is safe, as the step has claimed its
    own folder before: if that contained parts of other work, the claim was refused without ``--fresh``.
    """
    start = partial(
        FolderWriter.start,
        step=step,
        schema=schema,
        settings=settings,
        inputs=inputs,
        models=models,
        planned=planned,
    )
    try:
        return start(replace(run, fresh=False))
    except OtherWorkError as error:
        run.progress.say(f"{run.out} is made again from the start, as its {error.changed} changed")
        return start(replace(run, fresh=True))


def say_loading(run: Run, model: str) -> None:
    """Say that a model is loaded, which may take a minute; with ``model`` empty nothing is said."""
    if model:
        run.progress.say(f"loading {model_display_name(model)}")


def commit_each(
    writer: FolderWriter,
    load: Load[W, RowsAndRejects],
    items: Iterable[W],
    where: ExecutorChoice,
    run: Run,
    *,
    title: str,
    unit: str,
    done: int,
    total: int,
    model: str = "",
) -> None:
    """Process the items and commit each, with a progress bar that starts at ``done`` of ``total``.

    ``model`` is the name of the model that ``load`` loads, to be told if anything is left to do.
    """
    if done < total:
        say_loading(run, model)
    with run.progress.task(title, total, unit) as bar:
        bar.skip(done)
        for outcome in execute(load, items, bar.advance, where, lambda text: run.tell("worker", text)):
            if isinstance(outcome, LostItem):
                raise WorkerError(
                    f"{title}: part {outcome.item.number} made its worker exit three times ({outcome.how}); "
                    "the other parts are saved\nrun the same command again, with fewer --workers or smaller "
                    "batches if memory ran out"
                )
            rows, rejects = outcome.result
            writer.commit(outcome.item.number, {"train": rows}, rejects)


def commit_records(
    writer: FolderWriter,
    load: Load[RecordShard[T], RowsAndRejects],
    records: Records[T],
    count: int,
    size: int,
    where: ExecutorChoice,
    run: Run,
    *,
    title: str,
    unit: str,
    model: str = "",
) -> None:
    """Process ``count`` records, ``size`` at a time, and commit each such shard; see ``commit_each``."""
    remaining, done = shards_left(writer, -(-count // size), count, size)
    shards = record_shards(records, size, remaining)
    commit_each(writer, load, shards, where, run, title=title, unit=unit, done=done, total=count, model=model)


def shards_left(writer: FolderWriter, shards: int, count: int, size: int) -> tuple[list[int], int]:
    """Which of the first ``shards`` shards are not committed; how many of ``count`` items the others hold."""
    remaining = [number for number in range(shards) if not writer.is_done(number)]
    return remaining, count - sum(max(0, min(size, count - number * size)) for number in remaining)


def nothing_to_do(writer: FolderWriter, run: Run) -> DatasetFolder:
    """The folder of a step that is finished already."""
    run.progress.say(f"{run.out} is finished already; nothing to do")
    return writer.folder()


def finished(writer: FolderWriter, card: Card, run: Run) -> DatasetFolder:
    """Finish the folder of a step, and say what it holds."""
    folder = writer.finish(card)
    run.progress.say(summary(folder))
    return folder


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
