"""Locations of files: local paths, or URLs of stores that fsspec supports (``s3://``, ``gs://``, …).

Paths and URLs both have the methods of ``pathlib.Path``. Files in stores are written in another way (see
``runs.storage``), and access to them raises other errors, which ``reaching`` converts.
"""

import atexit
import os
import re
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

# At run time upath is imported only for URLs: it imports fsspec and asyncio, a fifth of the time of --help.
if TYPE_CHECKING:
    from upath import UPath

Place: TypeAlias = Union[Path, "UPath"]

CHECKPOINTS = ".pairsmith-checkpoints.tmp"
"""The name of the folder of checkpoints in the folder of a training that is not finished."""

CHECKPOINT_RECORD = "pairsmith.json"
"""The name of the file that is written last into a checkpoint; a checkpoint without it does not count."""

TRAINING_STEP = "step.json"
"""The name of the file beside the checkpoints with the step that a training has reached, for its status."""

CACHE_VARIABLE = "PAIRSMITH_CACHE"

MANIFEST = "manifest.json"
"""The name of the file with the origin of a dataset folder's rows, and whether the folder is complete."""

JOURNAL = "journal"
MANIFEST_COPY = f"{JOURNAL}/run.json"
"""A copy of the manifest from the start of the run, from which a damaged manifest is restored."""

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2", "obs", "tos", "memory")
"""Stores without folders: the names of objects may contain slashes."""

_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs")}
_AT_ONCE = 16
_BYTE = re.compile("[\udc80-\udcff]")

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
    """The folder of files that can be made again: ``$PAIRSMITH_CACHE``, or a folder in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return expanded_path(chosen)
    return expanded_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "pairsmith"


def is_url(name: str) -> bool:
    """Whether ``name`` is a URL, and not a path."""
    return "://" in name


def same_place(first: Place, second: Place) -> bool:
    """Whether two locations are the same file or folder."""
    try:
        return str(first.resolve()) == str(second.resolve())
    except (OSError, RuntimeError, ValueError):  # not a valid path, e.g. too long
        return False


def is_inside(path: Place, folder: Place) -> bool:
    """Whether ``path`` is ``folder``, or in it or one of its subfolders; neither needs to exist."""
    if isinstance(path, Path) and isinstance(folder, Path):
        try:
            return path.resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):  # not a valid path, e.g. a link to itself
            return False
    return f"{path}/".startswith(f"{str(folder).rstrip('/')}/")


@contextmanager
def reaching(where: Place, error: type[PairsmithError]) -> Iterator[None]:
    """A context in which ``where`` is accessed; exceptions are converted to ``error``, which says why.

    The clients of stores raise exceptions without a common base class; for local paths only ``OSError`` is
    converted.
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
    """An error of a store's client in one line, with advice for a missing bucket or missing permission."""
    if isinstance(fault, FileNotFoundError):
        return "there is no such bucket or object; check the name"
    if isinstance(fault, PermissionError):
        return f"not allowed ({first_line(fault)}); check the credentials"
    return first_line(fault)


def name_in(folder: Place, path: Place) -> str:
    """The path relative to ``folder``, which contains it, with ``/`` between its parts."""
    return path.as_posix().removeprefix(folder.as_posix().rstrip("/") + "/")


def display_name(path: Place) -> str:
    """The name of a file for messages and rows; see ``printable_name``.

    A URL's query is left out, as it may contain a key.
    """
    return printable_name(path.name if isinstance(path, Path) else path.name.partition("?")[0])


def printable_name(name: str) -> str:
    """A file name that can be encoded: bytes that are not UTF-8 are escaped, as in ``caf\\xe9.txt``."""
    escaped = _BYTE.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", name)
    return escaped.encode("utf-8", "backslashreplace").decode()


def data_suffix(path: Place) -> str:
    """The suffix of a file's name in lower case, such as ``.tsv``; a final ``.gz`` is ignored."""
    name = display_name(path).lower().removesuffix(".gz")
    return Path(name).suffix


def size_of(path: Place) -> int | None:
    """The size in bytes of the file at ``path``; None if there is no such file."""
    if isinstance(path, Path):
        return path.stat().st_size if path.is_file() else None
    info = _info(path)
    return int(info["size"] or 0) if info and info["type"] == "file" else None


def is_folder(path: Place) -> bool:
    """Whether there is a folder at ``path`` or, in a store without folders, objects below this name."""
    if isinstance(path, Path):
        return path.is_dir()
    info = _info(path)
    return info is not None and info["type"] == "directory"


def exists(path: Place) -> bool:
    """Whether there is a file or folder at ``path``."""
    try:
        return path.exists() if isinstance(path, Path) else is_folder(path) or size_of(path) is not None
    except OSError:  # the text is too long for a path
        return False


def inside(folder: Place) -> list[Place]:
    """The files and folders directly in ``folder``; empty if there is no such folder."""
    with reaching(folder, StorageError):
        if isinstance(folder, Path):
            return list(folder.iterdir()) if folder.is_dir() else []
        try:
            paths = folder.fs.ls(folder.path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
    # Web consoles of stores create a folder as an object with the folder's own name.
    names = {str(path).rstrip("/").rpartition("/")[2] for path in paths if not _same(path, folder.path)}
    return [folder / name for name in sorted(names)]


def files_below(folder: Place, *, into_links: bool = False) -> dict[str, Place]:
    """All files below ``folder`` by their relative names, sorted.

    Subfolders that are symbolic links are only read with ``into_links``. Even then, hidden links and links to
    a folder that contains ``folder`` are not, and files below several names are listed once.

    Raises:
        StorageError: a folder cannot be read. Hidden folders without read permission are skipped instead.
    """
    if isinstance(folder, Path):
        files: dict[str, Place] = {
            path.relative_to(folder).as_posix(): path
            for parent, names in _walked(folder, into_links=into_links)
            for path in map(parent.joinpath, names)
            if path.is_file()
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


def source_files(folder: Place) -> dict[str, Place]:
    """The files below a folder of data by their relative names, sorted, also those in linked subfolders.

    Hidden files are left out, and files that programs leave in folders while they show or edit them:
    ``Thumbs.db``, ``desktop.ini`` and the lock files ``~$NAME`` and ``.~lock.NAME#``.

    Raises:
        StorageError: a folder cannot be read.
    """
    files = files_below(folder, into_links=True)
    return {
        name: file
        for name, file in files.items()
        if not any(part.startswith((".", "~$")) for part in name.split("/"))
        and name.rpartition("/")[2].lower() not in ("thumbs.db", "desktop.ini")
    }


def _walked(folder: Path, *, into_links: bool) -> Iterator[tuple[Path, list[str]]]:
    """Each folder below ``folder``, and itself, with the names of its files; see ``files_below``."""

    def is_hidden(path: Path) -> bool:
        return any(part.startswith(".") for part in path.relative_to(folder).parts)

    def refuse(error: OSError) -> None:
        removed = isinstance(error, FileNotFoundError | NotADirectoryError)
        if not removed and not (isinstance(error, PermissionError) and is_hidden(Path(error.filename))):
            raise StorageError(f"{error.filename} cannot be read: {error.strerror}") from error

    outer = folder.resolve()
    entered: set[Path] = set()
    tops = [folder]
    while tops:
        links: list[Path] = []  # followed after all other folders, so that a file has its name without links
        for top in tops:
            for path, subfolders, names in os.walk(top, onerror=refuse):
                parent = Path(path)
                if into_links:
                    target = parent.resolve()
                    if target in entered or (target != outer and outer.is_relative_to(target)):
                        subfolders.clear()
                        continue
                    entered.add(target)
                    links += filter(Path.is_symlink, map(parent.joinpath, subfolders))
                yield parent, names
        tops = sorted(link for link in links if not is_hidden(link))


def remove_files(files: Sequence[Place]) -> None:
    """Remove files. All files in stores are removed with one call, so they have to be in the same store."""
    remote = [file for file in files if not isinstance(file, Path)]
    for file in files:
        if isinstance(file, Path):
            file.unlink(missing_ok=True)
    if remote:
        with suppress(FileNotFoundError):
            remote[0].fs.rm([file.path for file in remote])


def map_in_threads(work: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """Apply ``work`` to all items in several threads and yield the results in order; meant for slow reads."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for batch in in_batches(items, _AT_ONCE):
            yield from pool.map(work, batch)


def _info(path: "UPath") -> dict[str, Any] | None:
    """What the store knows about a file or folder, such as its size and type; None if it does not exist."""
    with reaching(path, StorageError):
        try:
            return dict(path.fs.info(path.path))
        except FileNotFoundError:
            return None


def _same(first: object, second: str) -> bool:
    return str(first).strip("/") == second.strip("/")


def local_copy(folder: "UPath") -> Path:
    """The folder of a local copy of the files below ``folder``, which is removed when the process ends.

    The copy is made once, and made again if the size or date of a file has changed.
    """
    with reaching(folder, StorageError):
        listed = folder.fs.find(folder.path, detail=True)
    dates = ("ETag", "etag", "LastModified", "mtime", "updated", "created")
    content = [(name, info["size"], *(str(info.get(key)) for key in dates)) for name, info in listed.items()]
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
        if ".." in name.split("/"):  # the copy of such an object would be outside the folder
            continue
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, (into / name).open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
