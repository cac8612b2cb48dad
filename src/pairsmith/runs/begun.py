"""Settings that a continued run takes from the earlier run in its folder where they are not given."""

from contextlib import suppress
from typing import ClassVar, Protocol

from pairsmith.core.errors import FolderError, PairsmithError
from pairsmith.core.fields import ShardBounds
from pairsmith.core.paths import Place, reaching
from pairsmith.runs.claim import Run
from pairsmith.runs.journal import read_run
from pairsmith.runs.ranks import rank_folders
from pairsmith.runs.status import record_of


class _Sharded(Protocol):
    """Settings of a step whose shards get their size from the number of items where none is given."""

    shard_bounds: ClassVar[ShardBounds]

    @property
    def shard_size(self) -> int | None: ...


def shard_size_of(settings: _Sharded, run: Run, count: int) -> int:
    """How many of ``count`` items are saved together: as given, as the work was begun, or by their number.

    The ranks of an array job agree, as all count the same items and see the same folders.
    """
    if settings.shard_size is not None:
        return settings.shard_size
    if run.kept and not run.fresh:
        for folder in (run.out, run.whole, *rank_folders(run.whole)):
            size = begun_with(folder, "shard_size")
            if isinstance(size, int) and size > 0:
                return size
    return settings.shard_bounds.pick(count)


def begun_with(folder: Place, name: str) -> object:
    """A setting of the work that was begun in a folder; None without such work."""
    settings: object = None
    # Faults of a record are reported when the folder is claimed, or repaired from the journal.
    with suppress(PairsmithError), reaching(folder, FolderError):
        settings = (record_of(folder) or {}).get("settings")
    with suppress(PairsmithError), reaching(folder, FolderError):
        if run := read_run(folder):
            settings = run.settings
    return settings.get(name) if isinstance(settings, dict) else None
