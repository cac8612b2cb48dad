"""Atomic writes of files, and hashes of bytes and JSON.

On a disk, a file is written under a temporary name, synced, and renamed. In a store, it is written in one
request, which an object store carries out completely or not at all. In other stores a file may be incomplete;
its hash then differs from the recorded one, and the file is made again.
"""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from pairsmith.core.errors import PairsmithError, StorageError
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import OBJECT_STORES, Place, files_below, reason
from pairsmith.runs.scratch_folder import scratch_folder

JSON = None | bool | int | float | str | list["JSON"] | tuple["JSON", ...] | Mapping[str, "JSON"]

# Temporary file names begin like this and end in .tmp, so that a later run can recognise and remove them.
_TEMPORARY = ".pairsmith-"
_PROCESS = uuid.uuid4().hex[:12]
"""A part of the names of temporary files, as processes of other machines may have the same process id."""
_ROW_GROUP = 100_000
_TOGETHER = 2**26
"""Tables are written to a mapped file in parts of at least this many bytes, as rows of many small parts are
slow to look up."""


def hash_bytes(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def canonical_json(value: JSON) -> str:
    """``value`` as canonical JSON: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_json(value: JSON) -> str:
    """SHA-256 of ``value`` as canonical JSON, in which bytes of names that are not UTF-8 are escaped."""
    return hash_bytes(canonical_json(value).encode("utf-8", "backslashreplace"))


def encode_table(table: pa.Table) -> bytes:
    """``table`` as the bytes of a Parquet file, which depend only on the rows and the column types.

    The table's chunks and the metadata of other libraries have no effect. All options of the writer are
    given, as pyarrow's defaults change between versions.
    """
    plain = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        plain.schema,
        version="2.6",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        data_page_version="1.0",
        store_schema=True,
    ) as writer:
        # A table without rows gets no row group, as `datasets` cannot read an empty one.
        if plain.num_rows:
            writer.write_table(plain, row_group_size=_ROW_GROUP)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_atomic(path: Place, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically: after a kill, the file has either the old or the new content.

    The folder is created if it does not exist.
    """
    with storage_errors(path):
        make_folder(path.parent)
        if isinstance(path, UPath):
            path.fs.pipe_file(path.path, data)
            return
        with scratch_file(path.parent, path.name) as temporary:
            _write_synced(temporary, data)
            temporary.replace(path)
        _sync_folder(path.parent)


def create_atomic(path: Place, data: bytes) -> None:
    """Write ``data`` to a new file at ``path``, as ``write_atomic`` does; of several processes, one succeeds.

    Raises:
        FileExistsError: there is a file at ``path`` already. It is not changed.
        Exception: some stores raise another exception if there is a file already. Other causes are that the
            storage cannot create files exclusively, or that the write failed; then the file may be there,
            incomplete or not synced.
    """
    make_folder(path.parent)
    if isinstance(path, UPath):
        path.fs.pipe_file(path.path, data, mode="create")
        return
    with scratch_file(path.parent, path.name) as temporary:
        _write_synced(temporary, data)
        path.hardlink_to(temporary)
    _sync_folder(path.parent)


@contextmanager
def scratch_file(folder: Place, name: str) -> Iterator[Path]:
    """A path for a file that is removed afterwards; it is in ``folder``, or on this machine for a store.

    If the process is killed, or on Windows if the file is still mapped, the next run removes the file.
    """
    parent = folder if isinstance(folder, Path) else scratch_folder()
    path = parent / f"{_TEMPORARY}{os.getpid()}-{_PROCESS}-{name}.tmp"
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Remove a file if it exists; on Windows, a file that is still mapped stays."""
    with suppress(PermissionError):
        path.unlink(missing_ok=True)


class ScratchFiles(ExitStack):
    """A context that creates scratch files in a folder (see ``scratch_file``) and removes them at its end."""

    def __init__(self, folder: Place) -> None:
        super().__init__()
        self._folder = folder

    def __call__(self, name: str) -> Path:
        """The path for a scratch file; all scratch files of a folder need different names."""
        return self.enter_context(scratch_file(self._folder, name))


def mapped_table(tables: Iterable[pa.Table], schema: pa.Schema, file: Path) -> pa.Table:
    """Write the rows of all tables to ``file``, and return them as one memory-mapped table.

    Its rows are read from the disk when they are needed. While ``file`` is written, memory holds about
    ``_TOGETHER`` bytes of tables.
    """
    with new_table_file(file, schema) as out:
        part: list[pa.Table] = []
        size = 0
        for table in tables:
            part.append(table)
            size += table.nbytes
            if size >= _TOGETHER:
                out.write_table(pa.concat_tables(part).combine_chunks())
                part, size = [], 0
        if part:
            out.write_table(pa.concat_tables(part).combine_chunks())
    return open_table_file(file)


@contextmanager
def new_table_file(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """A context with a writer of tables to ``file``, in a format that ``open_table_file`` reads."""
    # As bytes, the path may be one that is not UTF-8.
    with (
        storage_errors(file),
        pa.OSFile(os.fsencode(file), "wb") as stream,
        pa.ipc.new_file(stream, schema) as writer,
    ):
        yield writer


def open_table_file(file: Path) -> pa.Table:
    """The memory-mapped table in a file that ``new_table_file`` wrote."""
    return pa.ipc.open_file(pa.memory_map(os.fsencode(file))).read_all()


def upload(folder: Path, to: Place, last: str = "") -> dict[str, str]:
    """Copy all files below ``folder`` to ``to``, the file called ``last`` after all others.

    Returns the SHA-256 of each file by its name relative to the folder.
    """
    files = files_below(folder)
    for name in sorted(files, key=lambda name: name == last):
        with storage_errors(to / name):
            make_folder((to / name).parent)
            if isinstance(to, UPath):
                to.fs.put_file(str(folder / name), (to / name).path)
            else:
                shutil.copyfile(folder / name, to / name)
    return {name: hash_file(file) for name, file in files.items()}


def make_folder(folder: Place) -> None:
    """Create ``folder`` and its parents, except in an object store, which has no folders.

    New local folders are synced to the disk, so that no power cut removes them with the files in them.
    For a local folder that cannot be created, a ``StorageError`` is raised, which does not say that finished
    work is kept.
    """
    if isinstance(folder, Path):
        try:
            created = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
            folder.mkdir(parents=True, exist_ok=True)
            for path in reversed(created):
                with suppress(PermissionError):  # a folder that may be written to but not listed
                    _sync_folder(path.parent)
        except OSError as error:
            raise StorageError(_why_not_created(folder, error)) from error
    elif folder.protocol not in OBJECT_STORES:
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Place, value: JSON) -> None:
    """Write ``value`` to ``path`` as indented JSON, atomically (see ``write_atomic``)."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # File names may have bytes that are not UTF-8; they are escaped as JSON does it.
    write_atomic(path, (text + "\n").encode("utf-8", "backslashreplace"))


@contextmanager
def storage_errors(path: Place) -> Iterator[None]:
    """Turn an ``OSError`` while ``path`` is written into a ``StorageError`` that says what to do.

    If ``path`` is in a store, any exception of the store's client is turned into a ``StorageError``.
    """
    try:
        yield
    except PairsmithError:
        raise
    except Exception as error:
        if isinstance(path, Path) and not isinstance(error, OSError):
            raise
        raise StorageError(_explain(path, error)) from error


def clear_temporary(folder: Place) -> None:
    """Remove the temporary files that killed runs left in ``folder``; in a store there are none."""
    if isinstance(folder, Path) and folder.is_dir():
        with storage_errors(folder):
            for file in folder.iterdir():
                if is_temporary(file) and not file.is_dir():
                    file.unlink(missing_ok=True)


def is_temporary(file: Place) -> bool:
    """Whether ``file`` has the name of one of pairsmith's temporary files."""
    return file.name.startswith(_TEMPORARY) and file.name.endswith(".tmp")


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync the folder's entries to the disk; not on Windows, which cannot do that."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems refuse to sync a folder; the file itself has been synced.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


WORK_IS_KEPT = (
    "finished work is kept: fix this and run the same command again, and it will continue from there"
)
"""The end of the message of a ``StorageError``; a step that keeps nothing replaces it."""

_CAUSES = {
    errno.ENOSPC: "no space left on the device",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.ENOENT: "its folder was moved or removed meanwhile",
}


def _why_not_created(folder: Path, error: OSError) -> str:
    """The message for a folder that cannot be created."""
    if file := next((path for path in (folder, *folder.parents) if path.is_file()), None):
        return f"cannot write {folder}: {file} is a file, so no folder can be there; give another folder"
    cause = _CAUSES.get(error.errno or 0) if error.errno != errno.ENOENT else None  # no folder was there
    why = cause or error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"cannot write {folder}: {why} ({_free(folder)}); make room, or give another folder"
    return f"cannot write {folder}: {why}; give a folder that you may write to"


def _explain(path: Place, error: Exception) -> str:
    why = _CAUSES.get(getattr(error, "errno", None) or 0)
    if isinstance(path, Path):
        why = f"{why or getattr(error, 'strerror', None) or error} ({_free(path)})"
    return f"cannot write {path}: {why or reason(error)}; {WORK_IS_KEPT}"


def _free(path: Path) -> str:
    for folder in path.parents:
        try:
            return f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB free"
        except OSError:
            continue
    return "free space unknown"
