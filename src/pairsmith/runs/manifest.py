"""``manifest.json``, the record of a dataset folder: its classes, its file names, and reading it."""

import json
import re
from collections import Counter
from typing import Annotated, Any, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairsmith.core.errors import DamagedError, FolderError
from pairsmith.core.folder_kinds import folder_kind
from pairsmith.core.paths import MANIFEST, Place, reaching
from pairsmith.runs.provenance import Provenance

FORMAT = 2
"""Format of the folder; increased when folders of the earlier format cannot be continued or read."""
REJECTS = "rejects"
ROWS_OF = "rows_of"
"""The setting of ``remove`` that names the step whose rows are kept."""
SHARD_FILE = re.compile(r"(data/\w+|rejects/part)-\d{5,}\.parquet")


class _Model(BaseModel):
    # Unknown keys are ignored, so that this version can read folders that a later version wrote.
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileEntry(_Model):
    """One Parquet file of a shard; its ``split`` is ``rejects`` if it holds rejected rows."""

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
    content: str = ""  # SHA-256 of the names of its inputs, in order
    asked: str = ""  # how much was generated for each input (see ``writer.ShardSpec``)


class ShardTotals(_Model):
    """Totals over the finished shards; ``rejects_by_reason`` maps ``"filter: reason"`` to a number."""

    rows: int = 0
    rejects: int = 0
    rejects_by_reason: dict[str, int] = {}

    def plus(self, *entries: ShardEntry, sign: int = 1) -> Self:
        """The totals with these shards added, or subtracted if ``sign`` is -1."""
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
    """``manifest.json``: what the rows were made from, and the hashes of all files.

    While a run goes on, ``shards`` and ``counts`` are empty; the journal lists the finished shards. A shard
    counts as finished only if its ``asked`` equals the manifest's ``asked``: if more is to be generated for
    each input, the earlier shards count as unfinished until they have been extended.
    """

    format: int  # the format of the folder, see ``FORMAT``
    step: str  # the step that writes the folder
    settings: dict[str, Any]  # the settings that decide the rows
    seed: int | None = None  # the setting ``seed``, if the step has it
    inputs: dict[str, str]  # SHA-256 of each input, by name
    models: dict[str, str]  # revision of each model, by setting
    fingerprint: str  # SHA-256 of the identity (``Identity.fingerprint``)
    base: str = ""  # SHA-256 of what stays the same when the work grows (``Identity.base``)
    complete: bool = False  # whether the run is finished
    planned: int | None = None  # number of shards of the finished folder; None if it is unknown
    asked: str = ""  # how much is generated for each input (see ``writer.ShardSpec``)
    shards: tuple[ShardEntry, ...] = ()
    counts: ShardTotals = ShardTotals()
    about: Provenance = Provenance()  # the content of the card
    pairsmith: str  # the version of pairsmith
    created: str = ""  # when the folder was begun: an ISO time in UTC

    def has_finished(self, fingerprint: str) -> bool:
        """Whether the work with this fingerprint is finished."""
        return self.complete and self.fingerprint == fingerprint

    @property
    def rows_of(self) -> str:
        """The step that made the folder's rows; ``remove`` keeps the rows of an earlier step."""
        return str(self.settings.get(ROWS_OF, self.step))

    @property
    def shard_files(self) -> list[FileEntry]:
        """The files of all shards."""
        return [file for shard in self.shards for file in shard.files]


M = TypeVar("M", bound=Manifest)


def run_of(base: str) -> str:
    """The name that identifies a run in the lines of its journal, from ``base`` of its manifest."""
    return base[:16]


def file_name(split: str, shard: int) -> str:
    """The path, relative to the folder, of the file with the rows of ``split`` in the shard ``shard``."""
    if split == REJECTS:
        return f"rejects/part-{shard:05d}.parquet"
    return f"data/{split}-{shard:05d}.parquet"


@overload
def read_manifest(path: Place) -> Manifest: ...
@overload
def read_manifest(path: Place, name: str, kind: type[M]) -> M: ...
def read_manifest(path: Place, name: str = MANIFEST, kind: type[Manifest] = Manifest) -> Manifest:
    """Read the record ``name``, of the class ``kind``, from the folder ``path``.

    Raises:
        DamagedError: the file is damaged, or pairsmith did not write it.
        FolderError: there is no such file, or the folder has another format.
    """
    file = path / name
    try:
        with reaching(file, FolderError):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                other = folder_kind(path)
                is_not = f"is {other}, not" if other else "is not"
                raise FolderError(f"{path} {is_not} a dataset folder: it holds no {name}") from None
        manifest = record_in(data, kind)
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
        raise DamagedError(f"{file} is damaged or was not written by pairsmith ({fault})") from None
    check_format(path, manifest)
    return manifest


def record_in(data: bytes, kind: type[M]) -> M:
    """The record in the bytes of a file that ``write_json`` wrote; a ``ValidationError`` if it is invalid."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        # pydantic's own parser refuses the escapes of bytes of file names that are not UTF-8.
        if error.errors()[0]["type"] != "json_invalid":
            raise
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            raise error from None
        return kind.model_validate(values)


def check_format(path: Place, manifest: Manifest) -> None:
    """Raise a ``FolderError`` if the folder ``path`` was written in another format than ``FORMAT``."""
    if manifest.format != FORMAT:
        remedy = f"run its step ({manifest.step}) again"
        if manifest.format > FORMAT:
            remedy = f"pairsmith {manifest.pairsmith} wrote it; install that version or a later one"
        raise FolderError(
            f"{path} has format {manifest.format}, but this pairsmith reads format {FORMAT}; {remedy}"
        )
