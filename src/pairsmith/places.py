"""Where files lie: a path on this machine, or a URL of a store that fsspec knows (``s3://``, ``gs://``, …).

Both have the methods of ``pathlib.Path``; what differs is how something is written (see
``runs.storage``) and how it fails, which ``reaching`` puts into words.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from upath import UPath
from upath.implementations.local import FilePath

from pairsmith.errors import MissingExtra, PairsmithError, SettingsError, first_line

Place: TypeAlias = Path | UPath

_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs")}
_AT_ONCE = 16


def place(name: str | Place) -> Place:
    """What ``name`` points to: a URL's place in its store, or a path, with ``~`` for the home folder.

    Raises:
        SettingsError: no kind of store is called so.
        MissingExtra: the package that reaches such a store is not installed.
    """
    if not isinstance(name, str):
        return name.expanduser()
    if not is_url(name):
        return Path(name).expanduser()
    kind = urlsplit(name).scheme
    try:
        # A listing kept in memory would hide what other processes write.
        found = UPath(name, use_listings_cache=False)
        if isinstance(found, FilePath):
            return Path(unquote(urlsplit(name).path))
        _ = found.fs  # imports the package
    except ImportError as error:
        if kind in _EXTRAS:
            raise MissingExtra(*_EXTRAS[kind]) from None
        raise SettingsError(f"{name}: {first_line(error)}") from None
    except ValueError as error:
        raise SettingsError(
            f"{name}: {first_line(error)}; give a path, or a URL such as s3://BUCKET/FOLDER"
        ) from None
    return found


def is_url(name: str) -> bool:
    """Whether ``name`` is a URL and no path."""
    return "://" in name


def same_place(one: Place, other: Place) -> bool:
    """Whether two names point to the same file or folder."""
    try:
        return str(one.resolve()) == str(other.resolve())
    except (OSError, RuntimeError):  # no path: a name, or one too long to be a path
        return False


@contextmanager
def reaching(where: Place, error: type[PairsmithError]) -> Iterator[None]:
    """Turn whatever goes wrong while a store's ``where`` is looked at into an ``error`` in words.

    The clients of stores raise many kinds without a common base; a path's errors pass.
    """
    try:
        yield
    except PairsmithError:
        raise
    except Exception as fault:
        if isinstance(where, Path):
            raise
        raise error(f"{where} cannot be reached: {reason(fault)}") from fault


def reason(fault: BaseException) -> str:
    """What a store's client says, in one line; the bare words of a missing bucket say where to look."""
    if isinstance(fault, FileNotFoundError):
        return "there is no such bucket or object; check the name"
    if isinstance(fault, PermissionError):
        return f"not allowed ({first_line(fault)}); check the credentials"
    return first_line(fault)


def name_in(folder: Place, path: Place) -> str:
    """What ``path``, somewhere below ``folder``, is called from there, with ``/`` between the parts."""
    return path.as_posix().removeprefix(folder.as_posix().rstrip("/") + "/")


def files_below(folder: Place) -> dict[str, Place]:
    """All files below ``folder``, by their names relative to it, sorted by name."""
    found = {name_in(folder, path): path for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(found.items()))


def each_read(files: list[Place]) -> Iterator[bytes]:
    """The bytes of each file in order, several fetched at once where they lie in a store."""
    if all(isinstance(file, Path) for file in files):
        yield from (file.read_bytes() for file in files)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(files), _AT_ONCE):
            yield from pool.map(lambda file: file.read_bytes(), files[start : start + _AT_ONCE])


def fetched(folder: UPath) -> Path:
    """A copy on this machine of what lies below ``folder``, made once and removed when the process ends."""
    return _fetched(str(folder))


@cache
def _fetched(url: str) -> Path:
    copy = Path(tempfile.mkdtemp(prefix="pairsmith-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    download(place(url), copy)
    return copy


def download(folder: Place, into: Path) -> None:
    """Copy what lies below ``folder`` into the folder ``into`` of this machine."""
    for name, file in files_below(folder).items() if folder.is_dir() else ():
        if ".." in name.split("/"):  # an object may be called so, and would lie outside
            continue
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, (into / name).open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
