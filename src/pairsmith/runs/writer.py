"""Writing a dataset folder shard by shard, so that a run can be killed at any moment and continued.

The order is what makes it safe: the files of a shard come first, each whole or not at all; the
manifest that lists them with their hashes comes last. What the manifest does not list does not
exist, and is removed by the next run. A folder carries the fingerprint of everything that decides
its rows; a run with another fingerprint is refused, with the difference.
"""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

import pyarrow as pa

from pairsmith.modelfiles import hash_file
from pairsmith.records.schemas import REJECT
from pairsmith.runs import lock
from pairsmith.runs.card import Card, render
from pairsmith.runs.claim import Run, claim
from pairsmith.runs.folder import (
    MANIFEST,
    REJECTS,
    SHARD_FILE,
    Counts,
    DatasetFolder,
    FileEntry,
    Manifest,
    ShardEntry,
    file_name,
    read_manifest,
    read_parquet,
)
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import (
    JSON,
    clear_temporary,
    encode_table,
    hash_bytes,
    storage_errors,
    write_atomic,
    write_json,
)

_SPLIT = re.compile(r"\w+")
_MAX_SHARD = 99_999


class FolderWriter:
    """The one way into a dataset folder. Made by ``start``; ``finish`` ends it."""

    def __init__(self, run: Run, schema: pa.Schema, manifest: Manifest) -> None:
        self._run = run
        self._out = run.out
        self._schema = schema
        self._manifest = manifest

    @classmethod
    def start(
        cls,
        run: Run,
        *,
        step: str,
        schema: pa.Schema,
        settings: Mapping[str, JSON],
        inputs: Mapping[str, str],
        models: Mapping[str, str],
    ) -> Self:
        """Make ``run.out``, or continue what an earlier run of the same work left there.

        Args:
            run: where to write; with ``fresh``, a dataset folder that is there is written anew.
            step: name of the step, e.g. ``generate``.
            schema: columns of every split.
            settings: every setting that changes rows.
            inputs: from an input's name to the hash of its content.
            models: from a model's name to its revision or hash.

        Raises:
            FolderError: the folder holds something else, or another run is writing to it.
            StorageError: it cannot be written.
        """
        identity = Identity.of(step, settings, inputs, models)
        there = claim(run, identity, MANIFEST, read_manifest)
        if there is None or run.fresh:
            writer = cls(run, schema, _new_manifest(identity))
            # First the new manifest: from here on the old files are strays, whatever happens.
            writer._save(writer._manifest)
            with storage_errors(run.out):
                (run.out / "README.md").unlink(missing_ok=True)
        else:
            writer = cls(run, schema, there)
            writer._keep_whole_shards()
        writer._clear_strays()
        if writer.finished:
            lock.release(run.out)
        return writer

    @property
    def finished(self) -> bool:
        """Whether the folder is complete; there is nothing left to do but ``folder()``."""
        return self._manifest.complete

    @property
    def done(self) -> tuple[int, ...]:
        """The numbers of the finished shards, ascending."""
        return tuple(entry.shard for entry in self._manifest.shards)

    @property
    def counts(self) -> Counts:
        """Rows and rejects of the finished shards."""
        return self._manifest.counts

    def is_done(self, shard: int) -> bool:
        """Whether ``shard`` is in the folder, whole."""
        return shard in self.done

    def commit(self, shard: int, tables: Mapping[str, pa.Table], rejects: pa.Table) -> None:
        """Add a finished shard: its rows by split, and the rows that were not kept.

        Raises:
            StorageError: it cannot be written; earlier shards stay, this one is not there.
            ValueError: ``shard`` is out of range, done already, or a split's name is not usable.
            TypeError: a table has other columns than the folder.
        """
        self._check_commit(shard, tables, rejects)
        entries = tuple(self._write(split, shard, table) for split, table in tables.items())
        entries += (self._write(REJECTS, shard, rejects),)
        shards = sorted(
            (*self._manifest.shards, ShardEntry(shard=shard, files=entries)), key=lambda e: e.shard
        )
        counts = _add(self._manifest.counts, entries, rejects)
        self._save(self._manifest.model_copy(update={"shards": tuple(shards), "counts": counts}))

    def finish(self, card: Card) -> DatasetFolder:
        """Write the data set card, mark the folder complete and open it.

        Raises:
            StorageError: it cannot be written; run again, every shard is kept.
            ValueError: no table was committed.
        """
        if self.finished:
            return self.folder()
        complete = self._manifest.model_copy(update={"complete": True})
        folder = DatasetFolder(self._out, complete)
        if not folder.splits:
            raise ValueError("a data set needs a table, if an empty one; commit it before finishing")
        text = render(card, folder, self._schema)
        write_atomic(self._out / "README.md", text.encode("utf-8"))
        self._save(complete)
        lock.release(self._out)
        return self.folder()

    def folder(self) -> DatasetFolder:
        """The finished folder, opened for reading.

        Raises:
            FolderError: it is not finished.
        """
        return DatasetFolder.open(self._out)

    def _check_commit(self, shard: int, tables: Mapping[str, pa.Table], rejects: pa.Table) -> None:
        if self.finished:
            raise ValueError(f"{self._out} is finished; nothing can be added")
        if not 0 <= shard <= _MAX_SHARD or self.is_done(shard):
            raise ValueError(f"shard {shard} is done already, or not in 0..{_MAX_SHARD}")
        for split, table in tables.items():
            if not _SPLIT.fullmatch(split) or split == REJECTS:
                raise ValueError(f"a split cannot be called {split!r}")
            _check_schema(split, table, self._schema)
        _check_schema(REJECTS, rejects, REJECT)

    def _write(self, split: str, shard: int, table: pa.Table) -> FileEntry:
        name = file_name(split, shard)
        data = encode_table(table)
        write_atomic(self._out / name, data)
        return FileEntry(
            path=name, split=split, rows=table.num_rows, sha256=hash_bytes(data), bytes=len(data)
        )

    def _save(self, manifest: Manifest) -> None:
        write_json(self._out / MANIFEST, manifest.model_dump(mode="json"))
        self._manifest = manifest

    def _keep_whole_shards(self) -> None:
        """Forget shards with a file that is missing or is not what was written; they are made again."""
        whole = tuple(entry for entry in self._manifest.shards if self._is_whole(entry))
        card_missing = self.finished and not (self._out / "README.md").is_file()
        if len(whole) == len(self._manifest.shards) and not card_missing:
            return
        counts = Counts()
        for entry in whole:
            counts = _add(counts, entry.files, read_parquet(self._out / file_name(REJECTS, entry.shard)))
        self._save(self._manifest.model_copy(update={"shards": whole, "counts": counts, "complete": False}))

    def _is_whole(self, entry: ShardEntry) -> bool:
        for file in entry.files:
            path = self._out / file.path
            if not path.is_file() or path.stat().st_size != file.bytes or hash_file(path) != file.sha256:
                self._run.progress.say(f"{path} is not as it was written; shard {entry.shard} is made again")
                return False
        return True

    def _clear_strays(self) -> None:
        """Remove temporary files, and files of shards that were never entered in the manifest."""
        listed = {file.path for entry in self._manifest.shards for file in entry.files}
        for folder in (self._out, self._out / "data", self._out / "rejects"):
            clear_temporary(folder)
            with storage_errors(folder):
                for path in folder.glob("*.parquet"):
                    name = path.relative_to(self._out).as_posix()
                    if SHARD_FILE.fullmatch(name) and name not in listed:
                        path.unlink()


def _new_manifest(identity: Identity) -> Manifest:
    seed: Any = identity.settings.get("seed")
    return Manifest(
        **identity.as_record(),
        seed=seed if isinstance(seed, int) else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _check_schema(name: str, table: pa.Table, schema: pa.Schema) -> None:
    if not table.schema.equals(schema, check_metadata=False):
        raise TypeError(f"the table for {name} has the columns {table.schema}, the folder has {schema}")


def _add(counts: Counts, files: tuple[FileEntry, ...], rejects: pa.Table) -> Counts:
    pairs = zip(rejects["filter"].to_pylist(), rejects["reason"].to_pylist(), strict=True)
    reasons = Counter(counts.rejects_by_reason)
    reasons.update(f"{name}: {reason}" for name, reason in pairs)
    return Counts(
        rows=counts.rows + sum(file.rows for file in files if file.split != REJECTS),
        rejects=counts.rejects + rejects.num_rows,
        rejects_by_reason=dict(sorted(reasons.items())),
    )
