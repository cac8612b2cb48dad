"""What ``--reuse`` does in all steps: unchanged items keep the rows that an earlier run made of them.

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
    """The input of a step, with what an earlier run made of its items, such as the passages of a text."""

    @property
    def kept(self) -> int:
        """The number of items that keep the rows of an earlier run."""
        ...

    @property
    def left(self) -> int:
        """The number of items that rows have to be made of."""
        ...


S = TypeVar("S")
T = TypeVar("T", bound=PartlyMade)
RowsOfItem = tuple[list[dict[str, Any]], list[Reject]]
"""The rows and the rejects that were made of an item, in their order."""


def is_complete(run: Run, identity: Identity) -> bool:
    """Whether the run's folder holds this work, finished: then nothing of an earlier run is needed."""
    try:
        manifest = read_manifest(run.out)
    except PairsmithError:  # the step says what is wrong with the folder, if anything
        return False
    return not run.fresh and manifest.complete and manifest.fingerprint == identity.fingerprint


def open_earlier(
    path: str, identity: Identity, *, choosing: Collection[str], sources: str, rows: str
) -> DatasetFolder:
    """Open the folder of an earlier run, which has to have the settings and models of this one.

    Args:
        path: the folder.
        identity: of the run.
        choosing: settings that may differ: they decide which items there are, or how their rows are saved.
        sources: the name that the identity gives to the sources of the items, which may differ, too.
        rows: what the rows are, as messages name them.

    Raises:
        FolderError: the folder is unfinished or has changed, or its rows were made with other settings.
    """
    folder = DatasetFolder.open(path)
    there = folder.manifest
    settings = _replaced(identity.settings, there.settings, lambda name: name in choosing)
    inputs = _replaced(identity.inputs, there.inputs, lambda name: name.startswith(f"{sources} "))
    if changes := differences(there, replace(identity, settings=settings, inputs=inputs)):
        raise FolderError(f"--reuse {path}: its {rows} were made otherwise: {'; '.join(changes[:8])}")
    files = {file.path: file.sha256 for shard in there.shards for file in shard.files}
    check_files(folder.path, f"--reuse {path}", files, rows)
    return folder


def _replaced(
    own: Mapping[str, Any], other: Mapping[str, Any], differs: Callable[[str], bool]
) -> dict[str, Any]:
    """``own``, with those entries of ``other`` that may differ in the place of its own."""
    return {name: value for name, value in own.items() if not differs(name)} | {
        name: value for name, value in other.items() if differs(name)
    }


class EarlierRows:
    """The rows and rejects of a finished folder by the item that they were made of.

    Memory holds the shard of each item, the rows of one shard, and those of the items that are looked up
    together. The items of a corpus that has grown come mostly in the order of the folder, so that few shards
    are read twice; in another order, each look-up reads most shards.

    Args:
        folder: each item's rows and rejects are in one shard.
        item_of: the item of a row, given as columns.
        item_of_reject: the item of a reject.
    """

    def __init__(
        self,
        folder: DatasetFolder,
        item_of: Callable[[Mapping[str, Any]], str],
        item_of_reject: Callable[[Reject], str],
    ) -> None:
        self._folder, self._item_of, self._item_of_reject = folder, item_of, item_of_reject
        self._read: tuple[int, Mapping[str, RowsOfItem]] = -1, {}
        self._shard_of = {
            item: number for number in range(len(folder.manifest.shards)) for item in self._shard(number)
        }

    def __contains__(self, item: str) -> bool:
        """Whether there is anything of an item."""
        return item in self._shard_of

    def of(self, items: Iterable[str]) -> dict[str, RowsOfItem]:
        """What there is of each of these items; those of which there is nothing are left out."""
        in_folder = [item for item in items if item in self._shard_of]
        return {
            item: self._shard(self._shard_of[item])[item]
            for item in sorted(in_folder, key=self._shard_of.__getitem__)
        }

    def _shard(self, number: int) -> Mapping[str, RowsOfItem]:
        """The rows and rejects of a shard by item; those of the last shard that was read are kept."""
        if self._read[0] != number:
            of_items = defaultdict[str, RowsOfItem](lambda: ([], []))
            for table in self._folder.shards(numbers=[number]):
                for row in table.to_pylist():
                    of_items[self._item_of(row)][0].append(row)
            for table in self._folder.shards(REJECTS, numbers=[number]):
                for reject in (Reject(**row) for row in table.to_pylist()):
                    of_items[self._item_of_reject(reject)][1].append(reject)
            self._read = number, dict(of_items)
        return self._read[1]


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
    """Commit the shards in which no item is left.

    ``records`` are ``count`` in shards of ``size``, as in ``commit_records``; ``fill`` adds what an earlier
    run made of their items. ``work`` needs no model for the shards that are committed.

    Returns:
        of the shards that were not committed before, the number of items that keep their rows, and of all.
    """
    remaining, done = shards_left(writer, -(-count // size), count, size)
    kept = every = 0
    with run.progress.task("look for earlier rows", count, unit) as bar:
        bar.skip(done)
        for shard in map(fill, record_shards(records, size, remaining)):
            kept += sum(record.kept for record in shard.records)
            every += sum(record.kept + record.left for record in shard.records)
            if not any(record.left for record in shard.records):
                rows, rejects = work(shard, lambda _: None)
                writer.commit(shard.number, {"train": rows}, rejects)
            bar.advance(len(shard.records))
    return kept, every
