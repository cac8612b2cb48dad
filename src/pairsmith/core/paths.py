"""Locations of files: local paths, or URLs of stores that fsspec supports (``s3://``, ``gs://``, …).

Both have the methods of ``pathlib.Path``. They differ in how they are written (see ``runs.storage``) and in
their errors, which ``reaching`` unifies.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union
from urllib.parse import unquote, urlsplit

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import MissingExtra, PairsmithError, SettingsError, StorageError, first_line

if TYPE_CHECKING:  # only for URLs is it imported: its fsspec and asyncio take a fifth of the time of --help
    from upath import UPath

Place: TypeAlias = Union[Path, "UPath"]

CACHE_VARIABLE = "PAIRSMITH_CACHE"

MANIFEST = "manifest.json"
"""Name of the file that says where the rows of a dataset folder came from, and that they are complete."""

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2", "obs", "tos", "memory")
"""Stores without real folders: names may contain slashes, and that is all."""

_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs")}
_AT_ONCE = 16

S = TypeVar("S")
T = TypeVar("T")


def place(name: str | Place) -> Place:
    """The location of ``name``: a URL in its store, or a local path, with ``~`` expanded."""
    if name == "":
        raise SettingsError("the name of a file or folder is empty; give one, or . for the current folder")
    if not isinstance(name, str):
        return expanded_path(name) if isinstance(name, Path) else name.expanduser()
    if not is_url(name):
        return expanded_path(name)
    from upath import UPath
    from upath.implementations.local import FilePath

    kind = urlsplit(name).scheme
    if kind in OBJECT_STORES and kind != "memory" and not urlsplit(name).netloc:
        raise SettingsError(f"{name} names no bucket; give one, as in {kind}://BUCKET/FOLDER")
    # A cached listing would hide files that other processes write.
    options: dict[str, Any] = {"use_listings_cache": False} if kind in OBJECT_STORES else {}
    try:
        location: UPath = UPath(name, **options)
        if isinstance(location, FilePath):
            return Path(unquote(urlsplit(name).path))
        _ = location.fs  # imports the store's package; some connect
    except ImportError as error:
        if kind in _EXTRAS:
            raise MissingExtra(*_EXTRAS[kind]) from None
        raise SettingsError(f"{name}: {first_line(error)}") from None
    except Exception as error:  # each store has its own errors
        raise SettingsError(
            f"{name}: {first_line(error)}; give a path, or a URL such as s3://BUCKET/FOLDER"
        ) from None
    return location


def expanded_path(name: str | Path) -> Path:
    """The local path of ``name``, with the home folder in place of ``~`` or ``~USER``."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        user = Path(name).parts[0].removeprefix("~")
        fault = f"there is no user {user}" if user else "this user has no home folder"
        raise SettingsError(f"{name}: {fault}; write the path out") from None


def cache_folder() -> Path:
    """Where what can be made again is kept: ``$PAIRSMITH_CACHE``, or ``pairsmith`` in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return expanded_path(chosen)
    return expanded_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "pairsmith"


def is_url(name: str) -> bool:
    """Whether ``name`` is a URL, not a path."""
    return "://" in name


def same_place(one: Place, other: Place) -> bool:
    """Whether two names point to the same file or folder."""
    try:
        return str(one.resolve()) == str(other.resolve())
    except (OSError, RuntimeError, ValueError):  # not a valid path, e.g. too long
        return False


@contextmanager
def reaching(where: Place, error: type[PairsmithError]) -> Iterator[None]:
    """Turn any exception while ``where`` is accessed into an ``error`` with a readable message.

    The clients of stores raise many kinds without a common base; local paths raise ``OSError``.
    """
    try:
        yield
    except PairsmithError:
        raise
    except Exception as fault:
        if not isinstance(where, Path):
            raise error(f"{where} cannot be reached: {reason(fault)}") from fault
        if not isinstance(fault, OSError):
            raise
        raise error(f"{where} cannot be read: {fault.strerror or fault}") from fault


def reason(fault: BaseException) -> str:
    """An error of a store's client in one line, with a hint for a missing bucket or missing access."""
    if isinstance(fault, FileNotFoundError):
        return "there is no such bucket or object; check the name"
    if isinstance(fault, PermissionError):
        return f"not allowed ({first_line(fault)}); check the credentials"
    return first_line(fault)


def name_in(folder: Place, path: Place) -> str:
    """The path of ``path`` relative to ``folder``, which contains it, with ``/`` between the parts."""
    return path.as_posix().removeprefix(folder.as_posix().rstrip("/") + "/")


def display_name(path: Place) -> str:
    """The file's name for messages and rows; of a URL without the query, which may contain a key."""
    return path.name if isinstance(path, Path) else path.name.partition("?")[0]


def size_of(path: Place) -> int | None:
    """The size in bytes of the file at ``path``; None if there is none."""
    if isinstance(path, Path):
        return path.stat().st_size if path.is_file() else None
    about = _about(path)
    return int(about["size"] or 0) if about and about["type"] == "file" else None


def is_folder(path: Place) -> bool:
    """Whether there is a folder at ``path``; in a store, whether there is anything below that name."""
    if isinstance(path, Path):
        return path.is_dir()
    about = _about(path)
    return about is not None and about["type"] == "directory"


def inside(folder: Place) -> list[Place]:
    """The files and folders directly in ``folder``; empty if there is no such folder."""
    if isinstance(folder, Path):
        return list(folder.iterdir()) if folder.is_dir() else []
    with reaching(folder, StorageError):
        try:
            paths = folder.fs.ls(folder.path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
    # Web consoles create a folder as an object of the folder's own name.
    names = {str(path).rstrip("/").rpartition("/")[2] for path in paths if not _same(path, folder.path)}
    return [folder / name for name in sorted(names)]


def files_below(folder: Place) -> dict[str, Place]:
    """All files below ``folder`` by their relative names, sorted."""
    if isinstance(folder, Path):
        files: dict[str, Place] = {
            path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
        }
        return dict(sorted(files.items()))
    with reaching(folder, StorageError):
        try:
            paths = folder.fs.find(folder.path)
        except FileNotFoundError:
            return {}
    start = len(folder.path.rstrip("/")) + 1
    names = sorted(str(path)[start:] for path in paths if not _same(path, folder.path))
    return {name: folder / name for name in names if name and not name.endswith("/")}


def remove_files(files: Sequence[Place]) -> None:
    """Remove files; those in a store, all in the same one, with a single call."""
    remote = [file for file in files if not isinstance(file, Path)]
    for file in files:
        if isinstance(file, Path):
            file.unlink(missing_ok=True)
    if remote:
        with suppress(FileNotFoundError):
            remote[0].fs.rm([file.path for file in remote])


def several(work: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """Apply ``work`` to all items concurrently and yield the results in order; meant for slow reads."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for batch in in_batches(items, _AT_ONCE):
            yield from pool.map(work, batch)


def _about(path: "UPath") -> dict[str, Any] | None:
    with reaching(path, StorageError):
        try:
            return dict(path.fs.info(path.path))
        except FileNotFoundError:
            return None


def _same(one: object, other: str) -> bool:
    return str(one).strip("/") == other.strip("/")


def fetched(folder: "UPath") -> Path:
    """A local copy of the files below ``folder``, removed when the process ends.

    It is made once, and again if the size or date of a file has changed.
    """
    with reaching(folder, StorageError):
        listed = folder.fs.find(folder.path, detail=True)
    dates = ("ETag", "etag", "LastModified", "mtime", "updated", "created")
    content = [
        (name, about["size"], *(str(about.get(key)) for key in dates)) for name, about in listed.items()
    ]
    return _fetched(str(folder), str(sorted(content)))


@cache
def _fetched(url: str, content: str) -> Path:  # noqa: ARG001 - the content is part of the cache key
    copy = Path(tempfile.mkdtemp(prefix="pairsmith-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    download(place(url), copy)
    return copy


def download(folder: Place, into: Path) -> None:
    """Copy the files below ``folder`` into the local folder ``into``."""
    for name, file in files_below(folder).items():
        if ".." in name.split("/"):  # such an object would be written outside the folder
            continue
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, (into / name).open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
