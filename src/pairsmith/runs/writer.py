"""Writing a dataset folder shard by shard, so that a run can be killed at any moment and continued.

The order of the writes makes this safe. First the files of a shard are written, each completely or not at
all. Then a line of the journal lists them with their hashes. Files that no line lists do not count, and the
next run removes them. The manifest has the fingerprint of everything that decides the rows. A run with
another fingerprint is refused with a message that lists the differences, unless it only adds to the work.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

import pyarrow as pa

from pairsmith import __version__
from pairsmith.core.errors import FolderError, SettingsError, StorageError, redacted
from pairsmith.core.paths import MANIFEST, Place, size_of
from pairsmith.data.schemas import REJECT
from pairsmith.runs import lock
from pairsmith.runs.card import Card, render_card
from pairsmith.runs.claim import Run, claim
from pairsmith.runs.existing import (
    copy_share,
    entries_of,
    has_saved_parts,
    intact_work,
    locked_shares,
    read_or_restore_manifest,
    refuse_job_folder,
    refuse_other_ranks,
    remove_rank_folder,
    remove_rank_folders,
    remove_unlisted_files,
    share_in_job_folder,
)
from pairsmith.runs.folder import DatasetFolder
from pairsmith.runs.identity import Identity, only_adds
from pairsmith.runs.journal import Journal
from pairsmith.runs.log import log
from pairsmith.runs.manifest import (
    REJECTS,
    FileEntry,
    Manifest,
    ShardEntry,
    ShardTotals,
    file_name,
    run_of,
)
from pairsmith.runs.parquet import read_parquet
from pairsmith.runs.storage import encode_table, hash_bytes, storage_errors, write_atomic, write_json

_SPLIT = re.compile(r"\w+")
MOST_SHARDS = 100_000
"""Largest number of shards in a folder: with more, file names would not sort in the order of the shards."""


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """The inputs of a shard, and how much is to be generated for each."""

    items: int = 0  # number of inputs
    content: str = ""  # SHA-256 of the names of the inputs, in order
    asked: str = ""  # how much is generated for each input, e.g. ``2 texts in 3 tries``


@dataclass(frozen=True)
class Growth:
    """How a step's work can grow such that finished rows are kept."""

    settings: frozenset[str]  # names of the settings that only add to the work when they are increased
    # Called with a finished shard; returns whether the shard with this number now begins with its inputs.
    holds: Callable[[ShardEntry], bool]


class FolderWriter:
    """Writes a dataset folder, from ``start`` to ``finish``; nothing else writes shards.

    ``run`` has the folder, and reports progress.
    """

    def __init__(
        self,
        run: Run,
        schema: pa.Schema,
        manifest: Manifest,
        entries: Mapping[int, ShardEntry],
        journal: Journal,
        in_job_folder: Mapping[int, ShardEntry],
    ) -> None:
        self.run = run
        self.inputs = manifest.inputs  # the hash of each source, by name
        self._out = run.out
        self._schema = schema
        self._manifest = manifest
        self._journal = journal
        self._entries = dict(entries)
        self._counts = ShardTotals().plus(*self._entries.values())
        self._in_job_folder = in_job_folder

    @classmethod
    def start(
        cls,
        run: Run,
        identity: Identity,
        schema: pa.Schema,
        *,
        growth: Growth | None = None,
        planned: int | None = None,
        asked: str = "",
    ) -> Self:
        """Create ``run.out``, or continue what an earlier run of the same work left there.

        If an array job is finished already, a rank of it gets the job's finished folder and begins no share.

        Args:
            run: where to write; with ``fresh``, an existing dataset folder is started over.
            identity: the work to be done.
            schema: columns of every split.
            growth: how the work may grow; with it, a folder whose work has only grown is continued, too.
            planned: the total number of shards, for status reports.
            asked: how much is generated for each input, for status reports (see ``ShardSpec``).
        """
        if planned is not None and planned > MOST_SHARDS:
            raise SettingsError(
                f"{planned:,} shards are more than the {MOST_SHARDS:,} that a folder can hold; "
                "give a larger --shard-size"
            )
        base = identity.base(growth.settings if growth else ())
        extends = partial(_extends, identity, growth)
        in_job_folder: Mapping[int, ShardEntry] = {}
        had_share = False
        if run.rank:
            if not run.within:
                refuse_job_folder(run, identity, extends)
                refuse_other_ranks(run, identity, base)
            had_share = size_of(run.out / MANIFEST) is not None
            in_job_folder, job_manifest = share_in_job_folder(run, run.rank, base)
            if not run.within and job_manifest and job_manifest.has_finished(identity.fingerprint):
                return cls._of_finished_job(run, schema, job_manifest)
        earlier = claim(
            run, identity, MANIFEST, lambda _: read_or_restore_manifest(run), partial(extends, run.out)
        )
        if run.rank and not run.within and had_share and earlier is None:
            # Another rank has put the shares together meanwhile, and removed this rank's share.
            in_job_folder, job_manifest = share_in_job_folder(run, run.rank, base)
            if job_manifest and job_manifest.has_finished(identity.fingerprint):
                remove_rank_folder(run.out)
                lock.release(run.out)
                return cls._of_finished_job(run, schema, job_manifest)
        if run.fresh:
            earlier = None
        seed: Any = identity.settings.get("seed")
        manifest = Manifest(
            **identity.as_record(),
            seed=seed if isinstance(seed, int) else None,
            base=base,
            planned=run.rank.share_of(planned) if run.rank and planned else planned,
            asked=asked,
            created=(earlier and earlier.created) or datetime.now(UTC).isoformat(timespec="seconds"),
        )
        try:
            journal, entries, finished_manifest = intact_work(run, manifest, earlier)
            if finished_manifest:
                writer = cls(run, schema, finished_manifest, entries, journal, in_job_folder)
                with suppress(StorageError):  # the folder may be read-only
                    remove_unlisted_files(run.out, entries.values())
            else:
                writer = cls(run, schema, manifest, entries, journal, in_job_folder)
                # Shares are refused before the folder is changed.
                with locked_shares(run, identity, extends) as shares:
                    writer._record(begun=earlier is not None)
                    for folder, rank_manifest in shares:
                        copy_share(folder, rank_manifest, run, writer._copy_shard)
        except FolderError:
            lock.release(run.out)
            raise
        run.on_begun()
        if finished_manifest:
            lock.release(run.out)
        else:
            done = len(writer.done)
            log(run.out, "start", step=identity.step, shards=planned, done=done, pairsmith=__version__)
        return writer

    @classmethod
    def _of_finished_job(cls, run: Run, schema: pa.Schema, job_manifest: Manifest) -> Self:
        """The finished folder of an array job, for a rank that has nothing to do."""
        joined, journal = replace(run, out=run.job_folder, rank=None), Journal(run.job_folder)
        return cls(joined, schema, job_manifest, entries_of(job_manifest, journal), journal, {})

    def _record(self, *, begun: bool) -> None:
        """Record the run in its folder; ``begun`` says whether it continues an earlier run.

        Files that do not belong to the run are removed.
        """
        # The journal is written before the manifest is replaced: as long as the manifest says complete, its
        # own list of shards counts; after that, no line may list files of other work.
        if begun:
            recorded = self._journal.entries
            self._journal.add(
                [entry for entry in self._entries.values() if recorded.get(entry.shard) != entry]
            )
        else:
            self._journal.clear()
        write_json(self._out / MANIFEST, self._manifest.model_dump(mode="json"))
        self._journal.save_run(self._manifest)
        if not begun:
            with storage_errors(self._out):
                (self._out / "README.md").unlink(missing_ok=True)
        remove_unlisted_files(self._out, self._entries.values())

    @property
    def finished(self) -> bool:
        """Whether the folder is complete, so that only ``folder()`` may still be called."""
        return self._manifest.complete

    @property
    def done(self) -> tuple[int, ...]:
        """The numbers of the finished shards, in ascending order."""
        return tuple(sorted(self._entries))

    @property
    def counts(self) -> ShardTotals:
        """The numbers of rows and rejects in the finished shards."""
        return self._counts

    def is_done(self, shard: int, spec: ShardSpec | None = None) -> bool:
        """Whether ``shard`` is finished in this folder, and was made for all of ``spec``.

        In a rank of an array job, a shard that belongs to another rank also counts as done.
        """
        if not self.has(shard):
            return True
        entry = self._entries.get(shard, self._in_job_folder.get(shard))
        return entry is not None and spec in (None, ShardSpec(entry.items, entry.content, entry.asked))

    def has(self, shard: int) -> bool:
        """Whether the shard belongs to this folder, and not to another rank of an array job."""
        return self.run.rank is None or self.run.rank.has(shard)

    def tables(self, shard: int) -> tuple[dict[str, pa.Table], pa.Table] | None:
        """The rows by split, and the rejects, of a finished shard; None if it is not finished.

        In a rank of an array job, the shard may also be one of the job's folder, which the rank extends.
        """
        folder, entry = self._out, self._entries.get(shard)
        if entry is None:
            folder, entry = self.run.job_folder, self._in_job_folder.get(shard)
        if entry is None:
            return None
        tables = {file.split: read_parquet(folder / file.path) for file in entry.files}
        rejects = tables.pop(REJECTS)
        return tables, rejects

    def commit(
        self, shard: int, tables: Mapping[str, pa.Table], rejects: pa.Table, spec: ShardSpec | None = None
    ) -> None:
        """Add a finished shard: its rows by split, and the rejected rows.

        A shard that was committed before is replaced if its ``spec`` has grown.
        """
        self._check_commit(shard, tables, rejects, spec)
        lock.check(self._out)
        files = tuple(self._write(split, shard, table) for split, table in tables.items())
        spec = spec or ShardSpec()
        pairs = zip(rejects["filter"].to_pylist(), rejects["reason"].to_pylist(), strict=True)
        reasons = Counter(f"{name}: {reason}" for name, reason in pairs)
        entry = ShardEntry(
            shard=shard,
            files=(*files, self._write(REJECTS, shard, rejects)),
            reasons=dict(sorted(reasons.items())),
            items=spec.items,
            content=spec.content,
            asked=spec.asked,
            run=run_of(self._manifest.base),
        )
        lock.check(self._out)  # again, as writing the files may have taken long
        self._add(entry)
        rows = sum(table.num_rows for table in tables.values())
        log(self._out, "shard", shard=shard, rows=rows, rejects=rejects.num_rows)

    def commit_all(self, tables: Mapping[str, pa.Table], rejects: pa.Table) -> None:
        """Commit all rows of a step as one shard, unless an earlier run has committed it."""
        if not self.is_done(0):
            self.commit(0, tables, rejects)

    def finish(self, card: Card) -> DatasetFolder:
        """Write the data set card, mark the folder as complete, and open it.

        The folder of a rank of an array job has only a part of the shards, so it gets no card and is not
        marked as complete.
        """
        if self.finished or self.run.rank is not None:
            lock.release(self._out)
            return self.folder()
        lock.check(self._out)
        shards = tuple(self._entries[number] for number in self.done)
        done = {"complete": True, "shards": shards, "counts": self._counts, "about": card.about()}
        complete = self._manifest.model_copy(update=done)
        folder = DatasetFolder(self._out, complete)
        if not folder.splits:
            raise ValueError(
                "a data set needs at least one table, even an empty one; commit it before finishing"
            )
        text = render_card(card, folder, self._schema, self.run.options)
        write_atomic(self._out / "README.md", redacted(text).encode("utf-8", "backslashreplace"))
        lock.check(self._out)
        write_json(self._out / MANIFEST, complete.model_dump(mode="json"))
        self._manifest = complete
        log(self._out, "finish", rows=self._counts.rows, rejects=self._counts.rejects)
        if not self.run.within:
            remove_rank_folders(self.run, complete)
        lock.release(self._out)
        return self.folder()

    def folder(self) -> DatasetFolder:
        """The finished folder, or the folder of a rank, opened for reading."""
        if self.run.rank is not None:
            fields = {"shards": tuple(self._entries.values()), "counts": self._counts}
            return DatasetFolder(self._out, self._manifest.model_copy(update=fields))
        return DatasetFolder.open(self._out)

    def _check_commit(
        self, shard: int, tables: Mapping[str, pa.Table], rejects: pa.Table, spec: ShardSpec | None
    ) -> None:
        if self.finished:
            raise ValueError(f"{self._out} is finished; nothing can be added")
        if not 0 <= shard < MOST_SHARDS or self.is_done(shard, spec):
            raise ValueError(f"shard {shard} is done already, or not in 0..{MOST_SHARDS - 1}")
        for split, table in tables.items():
            if not _SPLIT.fullmatch(split) or split == REJECTS:
                raise ValueError(f"a split cannot be called {split!r}")
            _check_schema(split, table, self._schema)
        _check_schema(REJECTS, rejects, REJECT)

    def _copy_shard(self, folder: Place, entry: ShardEntry) -> None:
        """Copy a shard that a rank made in ``folder``, unless this folder has the shard to the same extent.

        The rank may have extended a shard that this folder has.
        """
        own = self._entries.get(entry.shard)
        if own is not None and self._extent(entry) <= self._extent(own):
            return
        contents = [(folder / file.path).read_bytes() for file in entry.files]
        for file, data in zip(entry.files, contents, strict=True):
            if hash_bytes(data) != file.sha256:
                text = f"{folder / file.path} has changed; shard {entry.shard} is made again"
                self.run.tell("damaged", text)
                return
        # Written only after all hashes were checked, as this folder may have an earlier form of the shard.
        for file, data in zip(entry.files, contents, strict=True):
            write_atomic(self._out / file.path, data)
        self._add(entry)

    def _extent(self, entry: ShardEntry) -> tuple[int, bool, int]:
        """The extent of a shard, by which two forms of the same shard are compared; the larger one is kept.

        It consists of the number of inputs, whether everything asked for each input was made, and the number
        of rows and rejects.
        """
        rows = sum(file.rows for file in entry.files)
        return entry.items, entry.asked == self._manifest.asked, rows

    def _add(self, entry: ShardEntry) -> None:
        """Add a line to the journal for a shard whose files are written, and count its rows."""
        self._journal.add([entry])
        replaced, self._entries[entry.shard] = self._entries.get(entry.shard), entry
        self._counts = self._counts.plus(entry)
        if replaced:
            self._counts = self._counts.plus(replaced, sign=-1)

    def _write(self, split: str, shard: int, table: pa.Table) -> FileEntry:
        name = file_name(split, shard)
        data = encode_table(table)
        write_atomic(self._out / name, data)
        rows = table.num_rows
        return FileEntry(path=name, split=split, rows=rows, sha256=hash_bytes(data), bytes=len(data))


def _extends(identity: Identity, growth: Growth | None, out: Place, earlier: Manifest) -> bool:
    """Whether the work to be done includes all that the ``earlier`` run, of other work, made in ``out``."""
    journal = Journal.read(out)
    entries = entries_of(earlier, journal).values()
    if earlier.step == identity.step and not earlier.complete and not entries and not journal.bad:
        return not has_saved_parts(out)  # nothing would be lost
    if growth is None or not only_adds(earlier, identity, growth.settings):
        return False
    return all(map(growth.holds, entries))


def _check_schema(name: str, table: pa.Table, schema: pa.Schema) -> None:
    if not table.schema.equals(schema, check_metadata=False):
        raise TypeError(f"the table for {name} has the columns {table.schema}, the folder has {schema}")
