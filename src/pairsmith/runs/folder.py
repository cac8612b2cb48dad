"""Dataset folders: what every step writes and the next one reads."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar, overload

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairsmith.core.errors import DamagedError, FolderError, first_line, known_names_hint
from pairsmith.core.folder_kinds import folder_kind
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import MANIFEST, Place, is_folder, place, reaching, several, size_of
from pairsmith.data.sources import missing, open_parquet
from pairsmith.data.splits import Say, split_of, to_train_on
from pairsmith.runs.provenance import Provenance

FORMAT = 2
"""Raised where folders that were begun before could not go on: with other columns, for instance."""
JOURNAL = "journal"
MANIFEST_COPY = f"{JOURNAL}/run.json"
"""A copy of the manifest from the start of the run, which replaces a damaged one."""
REJECTS = "rejects"
SHARD_FILE = re.compile(r"(data/\w+|rejects/part)-\d{5,}\.parquet")


class _Model(BaseModel):
    # A later version may add keys; this one still reads the folder.
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileEntry(_Model):
    """One Parquet file of a shard; ``split`` is ``rejects`` for the rows that were not kept."""

    path: Annotated[str, Field(pattern=f"^{SHARD_FILE.pattern}$")]
    split: str
    rows: int
    sha256: str
    bytes: int


class ShardEntry(_Model):
    """The files and inputs of one finished shard."""

    shard: int  # its number, from 0
    run: str = ""  # the run that made it (``run_of`` the manifest's ``base``)
    files: tuple[FileEntry, ...]  # its Parquet files
    reasons: dict[str, int] = {}  # maps ``"filter: reason"`` to the number of rejects
    items: int = 0  # number of its inputs
    content: str = ""  # SHA-256 of the inputs' names, in order
    asked: str = ""  # what was generated for each input (see ``writer.ShardSpec``)


class ShardTotals(_Model):
    """Totals over the finished shards; ``rejects_by_reason`` maps ``"filter: reason"`` to a number."""

    rows: int = 0
    rejects: int = 0
    rejects_by_reason: dict[str, int] = {}

    def plus(self, *entries: ShardEntry, sign: int = 1) -> Self:
        """The totals with these shards added, or with ``sign`` -1 taken away."""
        rows, rejects, reasons = self.rows, self.rejects, Counter(self.rejects_by_reason)
        for entry in entries:
            for file in entry.files:
                if file.split == REJECTS:
                    rejects += sign * file.rows
                else:
                    rows += sign * file.rows
            for reason, number in entry.reasons.items():
                reasons[reason] += sign * number
        return type(self)(
            rows=rows,
            rejects=rejects,
            rejects_by_reason={k: reasons[k] for k in sorted(reasons) if reasons[k]},
        )


class Manifest(_Model):
    """``manifest.json``: where the rows came from, and proof that they are whole.

    While a run goes on, ``shards`` and ``counts`` are empty and the journal has them. A shard counts
    as finished only if its ``asked`` is the manifest's: when a run is given more work for each input, its
    earlier shards are unfinished until they have been extended.
    """

    format: int
    step: str
    settings: dict[str, Any]
    seed: int | None = None
    inputs: dict[str, str]
    models: dict[str, str]
    fingerprint: str
    base: str = ""
    complete: bool = False
    planned: int | None = None
    asked: str = ""
    shards: tuple[ShardEntry, ...] = ()
    counts: ShardTotals = ShardTotals()
    about: Provenance = Provenance()
    pairsmith: str
    created: str = ""


M = TypeVar("M", bound=Manifest)


def run_of(base: str) -> str:
    """The name of a run in the lines of its journal, from its manifest's ``base``."""
    return base[:16]


def file_name(split: str, shard: int) -> str:
    """The path of the rows of ``split`` in ``shard``, relative to the folder."""
    if split == REJECTS:
        return f"rejects/part-{shard:05d}.parquet"
    return f"data/{split}-{shard:05d}.parquet"


@overload
def read_manifest(path: Place) -> Manifest: ...
@overload
def read_manifest(path: Place, name: str, kind: type[M]) -> M: ...
def read_manifest(path: Place, name: str = MANIFEST, kind: type[Manifest] = Manifest) -> Manifest:
    """The manifest ``name`` of the folder ``path``."""
    file = path / name
    try:
        with reaching(file, FolderError):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                other = folder_kind(path)
                is_not = f"is {other}, not" if other else "is not"
                raise FolderError(f"{path} {is_not} a dataset folder: it holds no {name}") from None
        manifest = kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
        raise DamagedError(f"{file} is damaged or was not written by pairsmith ({fault})") from None
    check_format(path, manifest)
    return manifest


def check_format(path: Place, manifest: Manifest) -> None:
    """Refuse the folder ``path`` if it is of another format."""
    if manifest.format != FORMAT:
        raise FolderError(
            f"{path} is of format {manifest.format}, this pairsmith reads format {FORMAT}: its step "
            f"({manifest.step}) has to be run anew"
        )


@dataclass(frozen=True)
class DatasetFolder:
    """A finished dataset folder, opened for reading."""

    path: Place
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Place) -> Self:
        """Open the finished dataset folder ``path``."""
        path = place(path)
        with reaching(path, FolderError):
            if not is_folder(path):
                if size_of(path) is not None:
                    raise FolderError(
                        f"{path} is a file; a dataset folder is expected; make one of its rows: "
                        f"pairsmith mix --data {shlex.quote(str(path))} --out FOLDER"
                    )
                raise FolderError(str(missing(path)))
        manifest = read_manifest(path)
        if not manifest.complete:
            raise FolderError(
                f"{path} is unfinished; rerun the command that writes it ({manifest.step}), "
                "and it will continue"
            )
        return cls(path, manifest)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, ``train`` first, then as they were written."""
        files = [file for shard in self.manifest.shards for file in shard.files]
        names = dict.fromkeys(file.split for file in files if file.split != REJECTS)
        return tuple(sorted(names, key=lambda name: name != "train"))

    @property
    def rows(self) -> int:
        """Kept rows in all splits together."""
        return self.manifest.counts.rows

    @property
    def split_rows(self) -> Mapping[str, int]:
        """Kept rows of each split."""
        return {name: sum(self.shard_rows(name)) for name in self.splits}

    def table(self, split: str = "train", columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of ``split``, shard after shard; only ``columns`` where they are given."""
        if split not in self.splits:
            raise FolderError(f"{self.path} has no split {split!r}; {known_names_hint(split, self.splits)}")
        return self._read(split, columns)

    def shards(
        self,
        split: str = "train",
        columns: Sequence[str] | None = None,
        numbers: Iterable[int] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of ``split``, one shard's table at a time; only ``columns`` where they are given.

        ``numbers`` are the shards to read, counted from 0 in their order; by default all.
        """
        files = self._files(split)
        for number in range(len(files)) if numbers is None else numbers:
            yield read_parquet(self.path / files[number].path, columns)

    def batches(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows of ``split``, at most 5,000 at a time; only ``columns`` where they are given."""
        for file in self._files(split):
            with _parquet(self.path / file.path) as opened:
                for batch in opened.iter_batches(batch_size=5_000, columns=columns):
                    yield pa.Table.from_batches([batch])

    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        with _parquet(self.path / self._files(self.splits[0])[0].path) as file:
            return file.schema_arrow

    def shard_rows(self, split: str = "train") -> list[int]:
        """How many rows of ``split`` each shard has."""
        return [file.rows for file in self._files(split)]

    def head(self, count: int) -> list[dict[str, Any]]:
        """At most ``count`` rows of the first split, all from its first file that holds any."""
        files = [file for file in self._files(self.splits[0]) if file.rows]
        return read_parquet(self.path / files[0].path).slice(0, count).to_pylist() if files else []

    def rejects(self) -> pa.Table:
        """Every row that was made and not kept, with columns id, filter, reason, row."""
        return self._read(REJECTS)

    def _files(self, split: str) -> list[FileEntry]:
        return [file for shard in self.manifest.shards for file in shard.files if file.split == split]

    def _read(self, split: str, columns: Sequence[str] | None = None) -> pa.Table:
        paths = [self.path / file.path for file in self._files(split)]
        return pa.concat_tables(several(lambda path: read_parquet(path, columns), paths))


def summary(folder: DatasetFolder) -> str:
    """One closing line for people: how many rows were kept, and why the others were not."""
    counts = folder.manifest.counts
    reasons = sorted(counts.rejects_by_reason.items(), key=lambda item: -item[1])
    if not counts.rows:
        most = f"; most often: {reasons[0][0]}" if reasons else ""
        return f"{folder.path}: no row was kept{most}"
    wrote = f"wrote {counts.rows:,} rows to {folder.path}"
    if not reasons:
        return wrote
    shown = ", ".join(f"{number:,} {reason}" for reason, number in reasons[:3])
    rest = ", …" if len(reasons) > 3 else ""
    return f"{wrote} ({counts.rejects:,} not kept: {shown}{rest})"


def read_parquet(path: Place, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one Parquet file; only ``columns`` where they are given."""
    with _parquet(path) as file:
        return file.read(columns)


@contextmanager
def _parquet(path: Place) -> Iterator[Any]:
    with reaching(path, FolderError):
        try:
            # Read as a plain file: a data set reader would make columns of "name=value" in the folder's path.
            with open_parquet(path) as file:
                yield file
        except (OSError, pa.ArrowException) as error:
            raise FolderError(
                f"{path} cannot be read: {first_line(error)}; run the command that wrote it again"
            ) from error


def changed_files(folder: Place, hashes: Mapping[str, str]) -> list[str]:
    """The files that are not as they were written, each with what is wrong, such as ``a.json (missing)``.

    ``hashes`` are the SHA-256 of each file, by its path in the folder.
    """
    wrong = []
    for path, digest in hashes.items():
        if size_of(folder / path) is None:
            wrong.append(f"{path} (missing)")
        elif hash_file(folder / path) != digest:
            wrong.append(f"{path} (changed)")
    return wrong


def check_files(folder: Place, name: str, hashes: Mapping[str, str], step: str) -> None:
    """Check that ``step``'s files in ``folder``, which messages call ``name``, are not ``changed_files``."""
    if wrong := changed_files(folder, hashes):
        shown = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        raise FolderError(
            f"{name} has changed since it was written: {shown}; run the command that writes it ({step}) again"
        )


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The rows of one split, in order; ``source`` names the folder and, where needed, the split."""

    folder: DatasetFolder
    split: str
    source: str

    def __len__(self) -> int:
        """How many rows there are."""
        return sum(self.folder.shard_rows(self.split))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; only ``columns`` where they are given."""
        return self.folder.table(self.split, columns)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows, some thousand at a time; only ``columns`` where they are given."""
        return self.folder.batches(self.split, columns)

    def head(self, count: int) -> pa.Table:
        """The first ``count`` rows, or all where there are fewer."""
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

    ``done`` is what happens to the rows, as in "judged", for the message that ``say`` is called with if
    other splits are left out.
    """
    folder = DatasetFolder.open(split_of(name)[0])
    source = to_train_on(name, done, say)
    return TrainingRows(folder, split_of(source)[1] or "train", source)
