"""``shards.jsonl``: a line for every finished shard, while a run goes on.

A line is appended when the shard's files are on the disk, and synced; rewriting the manifest
instead would cost more with every shard. A later line of a shard takes the place of an earlier
one. When the run is finished the lines move into ``manifest.json`` and the journal goes.
"""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from pairsmith.runs.folder import ShardEntry
from pairsmith.runs.storage import append_synced, storage_errors, write_atomic

JOURNAL = "shards.jsonl"


def read_journal(folder: Path) -> tuple[dict[int, ShardEntry], int]:
    """The entries by shard, and how many lines are cut short or are not ours.

    A kill while a line was written leaves it cut short; its shard counts as not made.
    """
    path = folder / JOURNAL
    entries: dict[int, ShardEntry] = {}
    bad = 0
    if path.is_file():
        with storage_errors(path):
            lines = path.read_bytes().splitlines()
        for line in lines:
            try:
                entry = ShardEntry.model_validate_json(line)
            except ValidationError:
                bad += 1
                continue
            entries[entry.shard] = entry
    return entries, bad


def append(folder: Path, entry: ShardEntry) -> None:
    """Add a line.

    Raises:
        StorageError: it cannot be written; the journal is as it was.
    """
    append_synced(folder / JOURNAL, _line(entry))


def rewrite(folder: Path, entries: Iterable[ShardEntry]) -> None:
    """Make the journal hold these lines and no others, atomically.

    Raises:
        StorageError: it cannot be written; the journal is as it was.
    """
    write_atomic(folder / JOURNAL, b"".join(map(_line, entries)))


def remove(folder: Path) -> None:
    """Remove the journal, if there is one."""
    with storage_errors(folder / JOURNAL):
        (folder / JOURNAL).unlink(missing_ok=True)


def _line(entry: ShardEntry) -> bytes:
    return entry.model_dump_json(exclude_defaults=True).encode() + b"\n"
