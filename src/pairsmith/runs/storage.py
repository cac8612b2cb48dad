"""Files that are there whole or not at all, and the hashes that prove it."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsmith.errors import InputError, StorageError
from pairsmith.modelfiles import hash_file
from pairsmith.records.sources import folder_files, is_hub_data, missing, open_source

JSON = None | bool | int | float | str | list["JSON"] | tuple["JSON", ...] | Mapping[str, "JSON"]

# Temporary names begin like this and end in .tmp, so that a later run knows its own leftovers.
_TEMPORARY = ".pairsmith-"
_ROW_GROUP = 100_000


def hash_bytes(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def hash_source(source: str | Path) -> str:
    """SHA-256 that stands for the content of an input.

    A file's hash is that of its bytes. A folder's covers the names and bytes of its files
    (for a dataset folder: those under ``data/``); a Hub data set's covers its rows.
    Hidden files do not count.

    Raises:
        InputError: nothing of that name is there, or a dataset folder is unfinished.
    """
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return _hash_folder(path)
        if path.exists():
            return hash_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if not (isinstance(source, str) and is_hub_data(source)):
        raise missing(path)
    digest = hashlib.sha256()
    for _, row in open_source(source).rows():
        digest.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def _hash_folder(path: Path) -> str:
    dataset = (path / "manifest.json").is_file()
    files = folder_files(path) if dataset else [file for file in path.rglob("*") if file.is_file()]
    names = {file.relative_to(path).as_posix(): file for file in files}
    lines = [
        f"{name}\t{hash_file(file)}\n"
        for name, file in sorted(names.items())
        if not any(part.startswith(".") for part in name.split("/"))
    ]
    return hash_bytes("".join(lines).encode())


def canonical_json(value: JSON) -> str:
    """``value`` as JSON with one spelling: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode_table(table: pa.Table) -> bytes:
    """``table`` as the bytes of a Parquet file that depend on its rows and column types only.

    How the table is cut into chunks, and metadata other libraries attach, leave no trace; the
    settings are spelled out because pyarrow's defaults change between versions.
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
        # No rows, no row group: `datasets` cannot read a file whose first row group is empty.
        if plain.num_rows:
            writer.write_table(plain, row_group_size=_ROW_GROUP)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_atomic(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``: under a temporary name, to the disk, then renamed.

    A kill at any moment leaves the old content or the new, never a part. The folder is made when
    it is not there.

    Raises:
        StorageError: it cannot be written; the temporary file is gone again.
    """
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_synced(temporary, data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def append_synced(path: Path, data: bytes) -> None:
    """Put ``data`` at the end of ``path``, and to the disk.

    Raises:
        StorageError: it cannot be written; what was written of it is cut off again, if that can be.
    """
    new = not path.exists()
    with storage_errors(path), path.open("ab") as stream:
        size = stream.tell()
        try:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            with suppress(OSError):
                stream.truncate(size)
            raise
        if new:
            _sync_folder(path.parent)


def write_json(path: Path, value: JSON) -> None:
    """Make ``path`` hold ``value`` as indented JSON, atomically (see ``write_atomic``)."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode("utf-8"))


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` while writing ``path`` into a ``StorageError`` that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(_explain(path, error)) from error


def clear_temporary(folder: Path) -> None:
    """Remove what killed runs left under temporary names in ``folder``."""
    if folder.is_dir():
        with storage_errors(folder):
            for file in folder.iterdir():
                if is_temporary(file) and not file.is_dir():
                    file.unlink(missing_ok=True)


def is_temporary(file: Path) -> bool:
    """Whether ``file`` is a temporary file of ours, by its name."""
    return file.name.startswith(_TEMPORARY) and file.name.endswith(".tmp")


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring the folder's entries to the disk, where the system can (Windows cannot)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems refuse to sync a folder; the file itself was synced.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _explain(path: Path, error: OSError) -> str:
    reason = {
        errno.ENOSPC: "no space left on the device",
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
    }.get(error.errno or 0, error.strerror or str(error))
    return (
        f"cannot write {path}: {reason} ({_free(path)}); what was finished before is kept: "
        "put that right and run the same command again, it continues there"
    )


def _free(path: Path) -> str:
    for folder in path.parents:
        try:
            return f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB free"
        except OSError:
            continue
    return "free space unknown"
