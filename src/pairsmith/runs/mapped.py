"""Work that is a map over numbered items, each committed as a shard of a dataset folder when it is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, overload

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import OtherWorkError, WorkerError
from pairsmith.runs.card import Card
from pairsmith.runs.claim import Run
from pairsmith.runs.executors import ExecutorChoice, execute
from pairsmith.runs.folder import DatasetFolder, summary
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Load, LostItem
from pairsmith.runs.writer import FolderWriter


class Item(Protocol):
    """The work of one shard."""

    @property
    def number(self) -> int:
        """The shard's number."""
        ...


W = TypeVar("W", bound=Item)
Made = tuple[pa.Table, pa.Table]
"""A shard's rows and rejects."""


@dataclass(frozen=True, slots=True)
class RowShard:
    """Rows that are processed and saved together."""

    number: int
    rows: pa.Table


class RowShards(Sequence[RowShard]):
    """The shards of a table with these numbers, of ``size`` rows each; each is copied when it is accessed.

    A slice would be sent to another process with its whole table.
    """

    def __init__(self, table: pa.Table, size: int, numbers: Sequence[int]) -> None:
        self._table, self._size, self._numbers = table, size, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> RowShard: ...
    @overload
    def __getitem__(self, place: slice) -> "RowShards": ...
    def __getitem__(self, place: int | slice) -> "RowShard | RowShards":
        if isinstance(place, slice):
            return RowShards(self._table, self._size, self._numbers[place])
        number = self._numbers[place]
        rows = self._table.slice(number * self._size, self._size)
        return RowShard(number, rows.take(np.arange(len(rows))))


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

    Other work in the folder is replaced: the step's own folder was claimed before, which is refused
    without ``--fresh`` if it contains parts of other work. Any such parts have therefore been given up.
    """

    def start(fresh: bool) -> FolderWriter:
        return FolderWriter.start(
            Run(run.out, run.progress, fresh),
            step=step,
            schema=schema,
            settings=settings,
            inputs=inputs,
            models=models,
            planned=planned,
        )

    try:
        return start(fresh=False)
    except OtherWorkError:
        run.progress.say(f"{run.out} was made with other settings or inputs; it is made again from the start")
        return start(fresh=True)


def commit_each(
    writer: FolderWriter,
    load: Load[W, Made],
    items: Sequence[W],
    where: ExecutorChoice,
    run: Run,
    *,
    title: str,
    unit: str,
    done: int,
    total: int,
) -> None:
    """Process the items and commit each, with a progress bar that starts at ``done`` of ``total``."""
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


def commit_rows(
    writer: FolderWriter,
    load: Load[RowShard, Made],
    table: pa.Table,
    size: int,
    where: ExecutorChoice,
    run: Run,
    *,
    title: str,
    unit: str,
) -> None:
    """Process the rows of a table, ``size`` at a time, and commit each such shard; see ``commit_each``."""
    numbers = undone(writer, shard_count(table, size))
    commit_each(
        writer,
        load,
        RowShards(table, size, numbers),
        where,
        run,
        title=title,
        unit=unit,
        done=items_done(numbers, table.num_rows, size),
        total=table.num_rows,
    )


def undone(writer: FolderWriter, shards: int) -> list[int]:
    """The numbers of the first ``shards`` shards that are not committed."""
    return [number for number in range(shards) if not writer.is_done(number)]


def items_done(left: Sequence[int], count: int, size: int) -> int:
    """How many of ``count`` items, ``size`` per shard, are in shards other than those in ``left``."""
    return count - sum(max(0, min(size, count - number * size)) for number in left)


def completed(writer: FolderWriter, run: Run, commit: Callable[[], None], card: Card) -> DatasetFolder:
    """The folder that ``commit`` fills, shard by shard, with its card; a finished one is left unchanged."""
    if writer.finished:
        run.progress.say(f"{run.out} is finished already; nothing to do")
        return writer.folder()
    commit()
    folder = writer.finish(card)
    run.progress.say(summary(folder))
    return folder


def shard_count(table: pa.Table, size: int) -> int:
    """How many shards of ``size`` rows a table makes; an empty one makes one without rows."""
    rows: int = table.num_rows
    return max(1, -(-rows // size))
