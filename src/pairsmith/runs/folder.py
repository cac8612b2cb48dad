"""Dataset folders: what every step writes and the next one reads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from pairsmith.errors import FolderError, choices
from pairsmith.records.sources import missing

FORMAT = 1
MANIFEST = "manifest.json"


class _Model(BaseModel):
    # A later version may add keys; this one still reads the folder.
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileEntry(_Model):
    """One Parquet file of a shard; ``split`` is ``rejects`` for the rows that were not kept."""

    path: str
    split: str
    rows: int
    sha256: str
    bytes: int


class ShardEntry(_Model):
    """What one finished shard consists of."""

    shard: int
    files: tuple[FileEntry, ...]


class Counts(_Model):
    """Totals over the finished shards; ``rejects_by_reason`` goes from ``"filter: reason"`` to a number."""

    rows: int = 0
    rejects: int = 0
    rejects_by_reason: dict[str, int] = {}


class Manifest(_Model):
    """``manifest.json``: where the rows came from, and proof that they are whole."""

    format: int
    step: str
    settings: dict[str, Any]
    seed: int | None = None
    inputs: dict[str, str]
    models: dict[str, str]
    fingerprint: str
    complete: bool = False
    shards: tuple[ShardEntry, ...] = ()
    counts: Counts = Counts()
    pairsmith: str
    created: str = ""


def file_name(split: str, shard: int) -> str:
    """Where the rows of ``split`` in ``shard`` are, relative to the folder."""
    if split == REJECTS:
        return f"rejects/part-{shard:05d}.parquet"
    return f"data/{split}-{shard:05d}.parquet"


REJECTS = "rejects"
SHARD_FILE = re.compile(r"(data/\w+|rejects/part)-\d{5}\.parquet")


def read_manifest(path: Path) -> Manifest:
    """The manifest of the dataset folder ``path``.

    Raises:
        FolderError: there is none, or it was not written by pairsmith.
    """
    file = path / MANIFEST
    try:
        manifest = Manifest.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        raise FolderError(f"{path} is no dataset folder: it holds no {MANIFEST}") from None
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
        raise FolderError(f"{file} is not a manifest of pairsmith ({fault})") from None
    if manifest.format != FORMAT:
        raise FolderError(
            f"{path} is of format {manifest.format}, this pairsmith reads format {FORMAT}; "
            f"it was written by pairsmith {manifest.pairsmith}"
        )
    return manifest


@dataclass(frozen=True)
class DatasetFolder:
    """A finished dataset folder, opened for reading."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the finished dataset folder ``path``.

        Raises:
            FolderError: there is no such folder, it is no dataset folder, or its step did not finish.
        """
        path = Path(path)
        if not path.is_dir():
            if path.exists():
                raise FolderError(f"{path} is a file; a dataset folder is expected")
            raise FolderError(str(missing(path)))
        manifest = read_manifest(path)
        if not manifest.complete:
            raise FolderError(
                f"{path} is unfinished; run the command that writes it ({manifest.step}) again, it continues"
            )
        return cls(path, manifest)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, ``train`` first, then as they were written."""
        names = dict.fromkeys(file.split for file in self._files() if file.split != REJECTS)
        return tuple(sorted(names, key=lambda name: name != "train"))

    @property
    def rows(self) -> int:
        """Kept rows in all splits together."""
        return self.manifest.counts.rows

    @property
    def split_rows(self) -> Mapping[str, int]:
        """Kept rows of each split."""
        files = self._files()
        return {name: sum(file.rows for file in files if file.split == name) for name in self.splits}

    def table(self, split: str = "train") -> pa.Table:
        """All rows of ``split``, shard after shard.

        Raises:
            FolderError: there is no such split, or a file of it is missing or damaged.
        """
        if split not in self.splits:
            raise FolderError(f"{self.path} has no split {split!r}; {choices(split, self.splits)}")
        return self._read(split)

    def rejects(self) -> pa.Table:
        """Every row that was made and not kept, with columns id, filter, reason, row.

        Raises:
            FolderError: a file is missing or damaged.
        """
        return self._read(REJECTS)

    def _files(self) -> list[FileEntry]:
        return [file for shard in self.manifest.shards for file in shard.files]

    def _read(self, split: str) -> pa.Table:
        paths = [self.path / file.path for file in self._files() if file.split == split]
        return pa.concat_tables([read_parquet(path) for path in paths])


def read_parquet(path: Path) -> pa.Table:
    """The rows of one Parquet file.

    Raises:
        FolderError: it is missing or damaged.
    """
    try:
        # Read as a plain file: a data set reader would make columns of "name=value" in the folder's path.
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise FolderError(f"{path} cannot be read: {reason}; run the command that wrote it again") from error
