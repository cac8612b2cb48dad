"""``journal/``: the manifest of a run, and a line for every finished shard.

    journal/run.json        a copy of the manifest from when the run was last started
    journal/00000.jsonl     the first part with up to 200 lines; further parts are 00001.jsonl, …

Once a shard's files are on the disk, its line is added by rewriting the last part. So the storage only needs
to write one small file completely or not at all: an object store can neither append nor rename. As parts are
small, a line costs the same at the end of a long run as at its beginning. If a shard has several lines, the
last one counts.

Each run writes only to parts that it has created, as far as the storage can create a file exclusively. A
process may stall just before it adds a line, and lose the folder to another process meanwhile. When it goes
on, it adds the line all the same; so it must not overwrite a part of the other process.

The journal is kept when the run is finished. ``manifest.json`` then has the same entries; if one of the two
is damaged, the other is used.
"""

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from pydantic import ValidationError

from pairsmith.core.errors import StorageError
from pairsmith.core.paths import (
    JOURNAL,
    MANIFEST_COPY,
    Place,
    inside,
    map_in_threads,
    reaching,
    remove_files,
    size_of,
)
from pairsmith.runs.manifest import Manifest, ShardEntry, record_in
from pairsmith.runs.storage import create_atomic, storage_errors, write_atomic, write_json

_PART_LINES = 200
"""Largest number of lines in a part."""
_PART = re.compile(r"\d{5,}\.jsonl")


class Journal:
    """The journal of one folder, read once and then added to."""

    def __init__(self, out: Place) -> None:
        self.entries: dict[int, ShardEntry] = {}  # the last line of each shard
        self.bad = 0  # number of invalid lines, such as incomplete lines; their shards count as unfinished
        self._folder = out / JOURNAL
        self._run = out / MANIFEST_COPY
        self._number = 0
        self._lines: list[bytes] = []

    @classmethod
    def read(cls, out: Place) -> Self:
        """The journal of the folder ``out``; empty if the folder has none."""
        journal = cls(out)
        with reaching(out / JOURNAL, StorageError), _without_collections():
            files = _parts(out / JOURNAL)
            for data in map_in_threads(lambda part: part.read_bytes(), files):
                for line in data.splitlines():
                    try:
                        entry = ShardEntry.model_validate_json(line)
                    except ValidationError:
                        journal.bad += 1
                        continue
                    journal.entries[entry.shard] = entry
            journal._begin_after(files)
        return journal

    def save_run(self, manifest: Manifest) -> None:
        """Save a copy of the manifest, so that a damaged one can be restored."""
        write_json(self._run, manifest.model_dump(mode="json"))

    def add(self, entries: Sequence[ShardEntry]) -> None:
        """Add a line for each entry; each part is written once, with all lines that fit into it."""
        while entries:
            if not self._lines or len(self._lines) >= _PART_LINES:
                self._begin_after(_parts(self._folder))  # another run may have added parts meanwhile
            free = _PART_LINES - len(self._lines)
            lines = [entry.model_dump_json(exclude_defaults=True).encode() for entry in entries[:free]]
            data = b"\n".join([*self._lines, *lines, b""])
            if self._lines:
                write_atomic(self._part, data)
            else:
                self._create_part(data)
            self._lines += lines
            self.entries.update((entry.shard, entry) for entry in entries[:free])
            entries = entries[free:]

    def clear(self) -> None:
        """Remove every line."""
        with storage_errors(self._folder):
            parts = _parts(self._folder)
            remove_files(parts)
        self.entries, self.bad = {}, 0
        self._begin_after(parts)

    @property
    def _part(self) -> Place:
        return self._folder / f"{self._number:05d}.jsonl"

    def _create_part(self, data: bytes) -> None:
        """Create a part with this content, with the next number for which there is no part yet."""
        while True:
            try:
                create_atomic(self._part, data)
                return
            except Exception as error:
                # The storage cannot create files exclusively, or this write failed half way.
                if not isinstance(error, FileExistsError) and self._is_start_of(data):
                    write_atomic(self._part, data)
                    return
            self._number += 1  # another run created the part after this one had listed the folder

    def _is_start_of(self, data: bytes) -> bool:
        """Whether the part is missing, or holds the beginning of ``data`` and nothing else."""
        with reaching(self._part, StorageError):
            return size_of(self._part) is None or data.startswith(self._part.read_bytes())

    def _begin_after(self, parts: Sequence[Place]) -> None:
        following = int(parts[-1].stem) + 1 if parts else 0
        self._number, self._lines = max(self._number, following), []


@contextmanager
def _without_collections() -> Iterator[None]:
    """A context without garbage collection, which would go through all entries again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_run(out: Place) -> Manifest | None:
    """The journal's copy of the manifest, or None if it is missing or invalid."""
    file = out / MANIFEST_COPY
    if size_of(file) is None:
        return None
    with reaching(file, StorageError):
        try:
            return record_in(file.read_bytes(), Manifest)
        except ValidationError:
            return None


def _parts(folder: Place) -> list[Place]:
    files = (file for file in inside(folder) if _PART.fullmatch(file.name))
    return sorted(files, key=lambda file: int(file.stem))
