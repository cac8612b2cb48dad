"""Finished dataset folders, which a step wrote and the next step reads."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from pairsmith.core.arguments import checked_whole_number
from pairsmith.core.errors import FolderError, counted, known_names_hint
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import MANIFEST, Place, is_folder, map_in_threads, place, reaching, size_of
from pairsmith.core.progress import Say
from pairsmith.data.schemas import REJECT
from pairsmith.data.sources import missing_source
from pairsmith.data.splits import split_of, to_train_on
from pairsmith.runs.manifest import REJECTS, FileEntry, Manifest, read_manifest
from pairsmith.runs.parquet import check_columns, checked_table, in_words, open_shard


@dataclass(frozen=True)
class DatasetFolder:
    """A finished dataset folder, opened for reading.

    Its methods raise a ``FolderError`` if a file is damaged, or if there is no such split or column, and a
    ``SettingsError`` for a number that is no whole number or out of bounds.
    """

    path: Place
    manifest: Manifest

    def __repr__(self) -> str:
        return f"DatasetFolder({str(self.path)!r}, {self.manifest.step}, {self.split_rows})"

    @classmethod
    def open(cls, path: str | Place) -> Self:
        """Open the finished dataset folder ``path``; raises ``FolderError`` if it is not one."""
        path = place(path)
        with reaching(path, FolderError):
            if not is_folder(path):
                if size_of(path) is not None:
                    raise FolderError(
                        f"{path} is a file; a dataset folder is expected; make one of its rows: "
                        f"pairsmith mix --data {shlex.quote(str(path))} --out FOLDER"
                    )
                raise FolderError(str(missing_source(path)))
        manifest = read_manifest(path)
        if not manifest.complete:
            raise FolderError(
                f"{path} is unfinished; rerun the command that writes it ({manifest.step}), "
                "which continues where it stopped"
            )
        folder = cls(path, manifest)
        if not folder.splits:
            raise FolderError(
                f"{path / MANIFEST} lists no files with rows; run the command that wrote it "
                f"({manifest.step}) again"
            )
        return folder

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: ``train`` first, then the others in the order of their first files."""
        names = dict.fromkeys(file.split for file in self.manifest.shard_files if file.split != REJECTS)
        return tuple(sorted(names, key=lambda name: name != "train"))

    @property
    def rows(self) -> int:
        """The number of rows in all splits together, without rejects."""
        return sum(self.split_rows.values())

    @property
    def split_rows(self) -> Mapping[str, int]:
        """The number of rows in each split."""
        return {name: sum(self.shard_rows(name)) for name in self.splits}

    def table(self, split: str = "train", columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of ``split``, in the order of the shards; only the columns ``columns`` if given."""
        if split not in self.splits:
            raise self._no_split(split)
        return self._read(split, columns)

    def shards(
        self,
        split: str = "train",
        columns: Sequence[str] | None = None,
        numbers: Iterable[int] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of ``split``, a table for each shard; only the columns ``columns`` if these are given.

        ``numbers`` are the indices, from 0, of the shards to read; by default all shards are read.
        """
        files = self._files(split)
        for number in range(len(files)) if numbers is None else numbers:
            if not files:
                raise self._no_split(split)
            index = checked_whole_number(number, "each of numbers", most=len(files) - 1)
            yield self._table(files[index], columns)

    def batches(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows of ``split``, at most 5,000 at a time; only the columns ``columns`` if these are given."""
        for file in self._files(split):
            with self._open(file, columns) as opened:
                for batch in opened.iter_batches(batch_size=5_000, columns=columns):
                    yield checked_table(pa.Table.from_batches([batch]))

    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def shard_rows(self, split: str = "train") -> list[int]:
        """The number of rows of ``split`` in each shard."""
        return [file.rows for file in self._files(split)]

    def head(self, count: int) -> list[dict[str, Any]]:
        """At most ``count`` rows of the first split, from its first file that has rows."""
        count = min(checked_whole_number(count, "count"), self.rows)
        files = [file for file in self._files(self.splits[0]) if file.rows]
        return self._table(files[0]).slice(0, count).to_pylist() if files else []

    def rejects(self) -> pa.Table:
        """All rejected rows, with the columns id, filter, reason and row."""
        return self._read(REJECTS)

    def _no_split(self, split: object) -> FolderError:
        return FolderError(f"{self.path} has no split {split!r}; {known_names_hint(str(split), self.splits)}")

    def _files(self, split: str) -> list[FileEntry]:
        # A folder may have only other splits; reading its training rows then yields no rows.
        if split not in (*self.splits, "train", REJECTS):
            raise self._no_split(split)
        return [file for file in self.manifest.shard_files if file.split == split]

    def _read(self, split: str, columns: Sequence[str] | None = None) -> pa.Table:
        return pa.concat_tables(map_in_threads(lambda file: self._table(file, columns), self._files(split)))

    def _table(self, file: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
        with self._open(file, columns) as opened:
            return checked_table(opened.read(columns))

    @contextmanager
    def _open(self, file: FileEntry, columns: Sequence[str] | None) -> Iterator[Any]:
        """A context with one of the folder's Parquet files, opened.

        A ``FolderError`` is raised unless the file has as many rows as the manifest lists, and the columns of
        the folder's first file, with ``columns`` among them.
        """
        path, schema = self.path / file.path, REJECT if file.split == REJECTS else self._schema
        with open_shard(path) as opened:
            if not opened.schema_arrow.equals(schema):
                raise FolderError(
                    f"{path} has the columns {in_words(opened.schema_arrow)}; expected {in_words(schema)}; "
                    f"run the command that wrote it ({self.manifest.step}) again"
                )
            if opened.metadata.num_rows != file.rows:
                raise FolderError(
                    f"{path} has {opened.metadata.num_rows:,} rows; {MANIFEST} lists {file.rows:,}; run the "
                    f"command that wrote it ({self.manifest.step}) again"
                )
            check_columns(columns, opened, self.path)
            yield opened

    @cached_property
    def _schema(self) -> pa.Schema:
        with open_shard(self.path / self._files(self.splits[0])[0].path) as file:
            return file.schema_arrow


def summary(folder: DatasetFolder) -> str:
    """A line for the user at the end of a step: how many rows were written, and why others were rejected."""
    counts = folder.manifest.counts
    reasons = sorted(counts.rejects_by_reason.items(), key=lambda item: -item[1])
    if not counts.rows:
        most = f"; most often: {reasons[0][0]}" if reasons else ""
        return f"{folder.path}: no row was kept{most}"
    wrote = f"wrote {counted(counts.rows, 'rows')} to {folder.path}"
    if not reasons:
        return wrote
    shown = ", ".join(f"{number:,} {reason}" for reason, number in reasons[:3])
    rest = ", …" if len(reasons) > 3 else ""
    return f"{wrote} ({counts.rejects:,} not kept: {shown}{rest})"


def changed_files(folder: Place, hashes: Mapping[str, str]) -> list[str]:
    """The files that are missing or have changed, such as ``a.json (missing)``.

    ``hashes`` has the expected SHA-256 of each file, by its path in the folder.
    """
    changed = []
    for path, digest in hashes.items():
        if size_of(folder / path) is None:
            changed.append(f"{path} (missing)")
        elif hash_file(folder / path) != digest:
            changed.append(f"{path} (changed)")
    return changed


def check_files(folder: Place, name: str, hashes: Mapping[str, str], step: str) -> None:
    """Refuse ``folder``, which ``step`` wrote, if a file in it is missing or has changed.

    ``name`` is the folder's name in the message; see ``changed_files`` for ``hashes``.
    """
    if changed := changed_files(folder, hashes):
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise FolderError(
            f"{name} has changed since it was written: {shown}; run the command that writes it ({step}) again"
        )


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The rows of one split, in order; ``source`` is ``FOLDER`` or ``FOLDER:SPLIT``."""

    folder: DatasetFolder
    split: str
    source: str

    def __len__(self) -> int:
        """The number of rows."""
        return sum(self.folder.shard_rows(self.split))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; only the columns ``columns`` if these are given."""
        return self.folder.table(self.split, columns)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows, at most 5,000 at a time; only the columns ``columns`` if these are given."""
        return self.folder.batches(self.split, columns)

    def head(self, count: int) -> pa.Table:
        """The first ``count`` rows, or all rows if there are fewer."""
        tables = [self.folder.schema().empty_table()]
        remaining = count
        for table in self.batches():
            tables.append(table.slice(0, remaining))
            remaining -= len(tables[-1])
            if remaining <= 0:
                break
        return pa.concat_tables(tables)


def open_training_rows(name: str, done: str, say: Say | None = None) -> TrainingRows:
    """The training rows of a folder, or the rows of the split that ``FOLDER:SPLIT`` names.

    If other splits are left out, ``say`` is called with a message, in which the participle ``done``, such as
    "judged", says what is done with the rows.
    """
    folder = DatasetFolder.open(split_of(name)[0])
    source = to_train_on(name, done, say)
    return TrainingRows(folder, split_of(source)[1] or "train", source)
