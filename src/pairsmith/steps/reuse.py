"""The option ``--reuse`` of several steps: items that have not changed keep the rows of an earlier run.

An item is a part of the input for which rows are made, such as a passage. The earlier run is a finished
folder with the same settings. Shards whose items all keep their rows are committed before a model is loaded.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pairsmith.core.errors import FolderError, PairsmithError
from pairsmith.data.schemas import Reject
from pairsmith.runs import DatasetFolder, FolderWriter, Run
from pairsmith.runs.folder import check_files
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.manifest import REJECTS, read_manifest
from pairsmith.runs.mapped import RecordShard, RowsAndRejects, Shards, shards_left
from pairsmith.runs.work import Work

T = TypeVar("T")
E = TypeVar("E")
RowsOfItem = tuple[list[dict[str, Any]], list[Reject]]
"""The rows and the rejects of an item, in their order."""


@dataclass(frozen=True, slots=True)
class WithEarlier(Generic[T, E]):
    """A record of a step's input, and what an earlier run made of some of its items.

    Attributes:
        record: the record.
        earlier: the id of an item -> what the earlier run made of it.
        left: with an earlier run, the number of the other items, whose rows have to be made.
    """

    record: T
    earlier: Mapping[str, E] = field(default_factory=dict)
    left: int = 0


ShardWithEarlier = RecordShard[WithEarlier[T, E]]


def without_earlier(shard: RecordShard[T]) -> ShardWithEarlier[T, Any]:
    """A shard of records for which no earlier run made any rows."""
    return RecordShard(shard.number, tuple(map(WithEarlier, shard.records)))


def is_complete(run: Run, identity: Identity) -> bool:
    """Whether the step's folder already has the finished result, so that no earlier run is needed.

    In a rank of an array job, this is the folder in which the shares are put together.
    """
    try:
        manifest = read_manifest(run.job_folder)
    except PairsmithError:  # the step reports problems with the folder
        return False
    return not run.fresh and manifest.has_finished(identity.fingerprint)


def open_earlier(
    path: str, identity: Identity, *, choosing: Collection[str], sources: str, rows: str
) -> DatasetFolder:
    """Open the folder of an earlier run with the same settings and models.

    Args:
        path: the folder of the earlier run.
        identity: the identity of this run.
        choosing: the names of settings that may differ, as they only decide which items are read or how rows
            are saved.
        sources: the name of the items' sources in ``identity.inputs``; the sources may differ.
        rows: the name of the rows in messages, such as ``questions``.

    Raises:
        FolderError: the folder is unfinished or has changed, or its rows were made with other settings.
    """
    folder = DatasetFolder.open(path)
    earlier = folder.manifest
    settings = _replaced(identity.settings, earlier.settings, lambda name: name in choosing)
    inputs = _replaced(identity.inputs, earlier.inputs, lambda name: name.startswith(f"{sources} "))
    if changes := differences(earlier, replace(identity, settings=settings, inputs=inputs)):
        raise FolderError(
            f"--reuse {path}: its {rows} were made with other settings or models: {'; '.join(changes[:8])}"
        )
    files = {file.path: file.sha256 for shard in earlier.shards for file in shard.files}
    check_files(folder.path, f"--reuse {path}", files, rows)
    return folder


def _replaced(
    own: Mapping[str, Any], other: Mapping[str, Any], may_differ: Callable[[str], bool]
) -> dict[str, Any]:
    """``own`` with the entries that may differ replaced by those of ``other``."""
    return {name: value for name, value in own.items() if not may_differ(name)} | {
        name: value for name, value in other.items() if may_differ(name)
    }


class EarlierRows:
    """The rows and rejects of a finished folder, looked up by the item that they were made of.

    Memory holds the shard number of each item, the rows of one shard, and the rows of the items that are
    looked up together. If items are looked up mostly in the order of the folder, as those of a corpus that
    has grown, few shards are read twice; in another order, each look-up reads most shards.

    Args:
        folder: the folder; all rows and rejects of an item are in one shard.
        item_of: returns the item of a row, which is given as columns.
        item_of_reject: returns the item of a reject.
    """

    def __init__(
        self,
        folder: DatasetFolder,
        item_of: Callable[[Mapping[str, Any]], str],
        item_of_reject: Callable[[Reject], str],
    ) -> None:
        self._folder, self._item_of, self._item_of_reject = folder, item_of, item_of_reject
        self._cached: tuple[int, Mapping[str, RowsOfItem]] = -1, {}
        self._shard_of = {
            item: number for number in range(len(folder.manifest.shards)) for item in self._shard(number)
        }

    def __contains__(self, item: str) -> bool:
        """Whether the folder has rows or rejects of an item."""
        return item in self._shard_of

    def of(self, items: Iterable[str]) -> dict[str, RowsOfItem]:
        """The rows and rejects of each of these items; items without any are left out."""
        in_folder = [item for item in items if item in self._shard_of]
        return {
            item: self._shard(self._shard_of[item])[item]
            for item in sorted(in_folder, key=self._shard_of.__getitem__)
        }

    def _shard(self, number: int) -> Mapping[str, RowsOfItem]:
        """The rows and rejects of a shard by item; the shard that was read last is kept in memory."""
        if self._cached[0] != number:
            of_items = defaultdict[str, RowsOfItem](lambda: ([], []))
            for table in self._folder.shards(numbers=[number]):
                for row in table.to_pylist():
                    of_items[self._item_of(row)][0].append(row)
            for table in self._folder.shards(REJECTS, numbers=[number]):
                for reject in (Reject(**row) for row in table.to_pylist()):
                    of_items[self._item_of_reject(reject)][1].append(reject)
            self._cached = number, dict(of_items)
        return self._cached[1]


def commit_kept(
    writer: FolderWriter,
    shards: Shards[ShardWithEarlier[T, E]],
    merge: Work[ShardWithEarlier[T, E], RowsAndRejects],
    *,
    path: str,
    items: str,
    rows: str,
) -> None:
    """Commit the shards whose items all have rows of an earlier run; report how many of all items have some.

    Args:
        writer: the folder to write to.
        shards: the records of all shards, with what the earlier run made of their items.
        merge: makes the rows and rejects of a shard whose items all keep their rows; it needs no model.
        path: the folder of the earlier run.
        items: the plural of the items in the message, such as ``passages``.
        rows: the plural of their rows, such as ``questions``.
    """
    progress = writer.run.progress
    kept = total = 0
    numbers, done, count = shards_left(writer, shards.sizes)
    with progress.task("look for earlier rows", count, shards.unit) as bar:
        bar.skip(done)
        for shard in shards.read(numbers):
            remaining = sum(record.left for record in shard.records)
            kept_in_shard = sum(len(record.earlier) for record in shard.records)
            kept, total = kept + kept_in_shard, total + kept_in_shard + remaining
            if not remaining:
                table, rejects = merge(shard, lambda _: None)
                writer.commit(shard.number, {"train": table}, rejects)
            bar.advance(len(shard.records))
    if total:
        progress.say(f"{kept:,} of {total:,} {items} to do are as in {path} and keep their {rows}")
