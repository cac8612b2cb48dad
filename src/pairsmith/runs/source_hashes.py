"""Hashes of the sources that a step reads, and a check that a source is still what was hashed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import (
    Place,
    exists,
    is_folder,
    map_in_threads,
    name_in,
    place,
    reaching,
    size_of,
    source_files,
)
from pairsmith.data.files.folders import written_by_pairsmith
from pairsmith.data.sources import is_hub_data, missing_source, open_source
from pairsmith.data.splits import folder_files, split_files, split_of
from pairsmith.runs.storage import hash_bytes

MOST_FILES = 100
"""Sources of more files are checked for changes after the last shard only, as each check lists all files."""

SOURCE_NAMES: dict[str, str] = {}
"""By hash, the names of the sources that were hashed, for messages."""

_State = tuple[int, str]
"""The number of a source's files on this machine, and a hash of their names, sizes and times of change."""
_states: dict[str, _State] = {}
"""By hash, the state of the sources when they were hashed."""


def hash_source(source: str | Place) -> str:
    """SHA-256 of the content of an input, which is a file, a folder or a Hub data set.

    The hash of a file covers its bytes; the hash of a Hub data set covers its rows. The hash of a folder
    covers the names and bytes of its files, also in subfolders that are links; that of a dataset folder
    covers only the files in ``data/``, and that of ``FOLDER:SPLIT`` only the files of the split. Files that
    ``source_files`` leaves out are not covered. The name of the source is added to ``SOURCE_NAMES``.
    """
    files = _files_of(source)
    state = _state_of(files)
    digest = _hash_of_rows(str(source)) if files is None else _hash_of_files(files)
    SOURCE_NAMES[digest], _states[digest] = str(source), state
    return digest


def refuse_changed_sources(hashes: Iterable[str], *, few_files: bool = False) -> None:
    """Raise an ``InputError`` if a source that ``hash_source`` gave one of these hashes has changed since.

    A source whose files have other sizes or times of change is hashed again. Files in stores, Hub data sets
    and sources that were removed are not checked; nor, with ``few_files``, are sources of more than
    ``MOST_FILES`` files.
    """
    for digest in hashes:
        count, state = _states.get(digest, (0, ""))
        if not count or (few_files and count > MOST_FILES):
            continue
        source = SOURCE_NAMES[digest]
        if not exists(place(split_of(source)[0])) or _state_of(_files_of(source)) == (count, state):
            continue
        if hash_source(source) != digest:
            remedy = (
                "; finished work is kept: put its earlier content back and run the same command again, or"
                if count <= MOST_FILES
                else ", and rows may be of its new content;"
            )
            raise InputError(
                f"{source} has changed while it was read{remedy} start over with another folder as --out or "
                "--fresh"
            )


def _files_of(source: str | Place) -> Mapping[str, Place] | None:
    """The files that the hash of a source covers, by name; None for a Hub data set.

    A source that is a single file has the name ``""``, as the hash does not cover its name.
    """
    if isinstance(source, str) and split_of(source)[1]:
        return {file.name: file for file in split_files(source)}
    path = place(source)
    with reaching(path, InputError):
        if is_folder(path):
            if written_by_pairsmith(path):
                return {name_in(path, file): file for file in folder_files(path)}
            return source_files(path)
        if size_of(path) is not None:
            return {"": path}
    if not (isinstance(source, str) and is_hub_data(source)):
        raise missing_source(path)
    return None


def _state_of(files: Mapping[str, Place] | None) -> _State:
    """The state of the files that ``_files_of`` returns."""
    states = []
    for name, file in (files or {}).items():
        if isinstance(file, Path):
            with reaching(file, InputError):
                about = file.stat()
            states.append((name, about.st_size, about.st_mtime_ns))
    return len(states), hash_bytes(repr(states).encode())


def _hash_of_files(files: Mapping[str, Place]) -> str:
    def digest_of(file: Place) -> str:
        with reaching(file, InputError):
            return hash_file(file)

    if "" in files:
        return digest_of(files[""])
    hashes = zip(files, map_in_threads(digest_of, list(files.values())), strict=True)
    lines = "".join(f"{name}\t{digest}\n" for name, digest in hashes)
    # File names may contain bytes that are not UTF-8.
    return hash_bytes(lines.encode("utf-8", "surrogatepass"))


def _hash_of_rows(source: str) -> str:
    digest = hashlib.sha256()
    for _, row in open_source(source).rows():
        digest.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
