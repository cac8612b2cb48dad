"""The option ``--reuse`` of several steps: unchanged items keep the rows that an earlier run made of them.

finished folder with the same settings -> its rows and rejects by item -> shards whose items are all unchanged
are committed before a model is loaded
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pairsmith.core.errors import FolderError, PairsmithError
from pairsmith.data.schemas import Reject
from pairsmith.runs import DatasetFolder, FolderWriter, Run
from pairsmith.runs.folder import REJECTS, check_files, read_manifest
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.mapped import Records, RecordShard, RowsAndRejects, record_shards, shards_left
from pairsmith.runs.work import Work


class PartlyMade(Protocol):
    """A record of a step's input, some of whose items, such as passages, have rows of an earlier run."""

    @property
    def kept(self) -> int:
        """The number of items that keep the rows of an earlier run."""
        ...

    @property
    def left(self) -> int:
        """The number of items whose rows have to be made."""
        ...


S = TypeVar("S")
T = TypeVar("T", bound=PartlyMade)
RowsOfItem = tuple[list[dict[str, Any]], list[Reject]]
"""The rows and the rejects of an item, in their order."""


def is_complete(run: Run, identity: Identity) -> bool:
    """Whether the run's folder already has the finished result, so that no earlier run is needed."""
    try:
        manifest = read_manifest(run.out)
    except PairsmithError:  # the step reports problems with the folder
        return False
    return not run.fresh and manifest.complete and manifest.fingerprint == identity.fingerprint


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


def commit_unchanged(
    writer: FolderWriter,
    records: Records[S],
    fill: Callable[[RecordShard[S]], RecordShard[T]],
    count: int,
    size: int,
    work: Work[RecordShard[T], RowsAndRejects],
    run: Run,
    *,
    unit: str,
) -> tuple[int, int]:
    """Commit the shards whose items all keep the rows of an earlier run.

    Args:
        writer: the writer of the run's folder.
        records: the records of the step's input, as in ``commit_records``.
        fill: adds the rows of the earlier run to the records of a shard.
        count: the number of records.
        size: the number of records in a shard.
        work: makes the rows and rejects of a shard; for these shards it needs no model.
        run: the run.
        unit: the name of the records in the progress.

    Returns:
        two numbers of items in the shards that were not committed before: of those that keep their rows, and
        of all.
    """
    remaining, done = shards_left(writer, -(-count // size), count, size)
    kept = total = 0
    with run.progress.task("look for earlier rows", count, unit) as bar:
        bar.skip(done)
        for shard in map(fill, record_shards(records, size, remaining)):
            kept += sum(record.kept for record in shard.records)
            total += sum(record.kept + record.left for record in shard.records)
            if not any(record.left for record in shard.records):
                rows, rejects = work(shard, lambda _: None)
                writer.commit(shard.number, {"train": rows}, rejects)
            bar.advance(len(shard.records))
    return kept, total
