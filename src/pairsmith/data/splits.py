"""The splits of dataset folders, and which of them is read by default.

Training reads ``train`` and evaluation ``test``; where splits make no difference, as in a corpus, all are
read. ``FOLDER:SPLIT`` names one anywhere.
"""

import json
import re
import shlex
from collections.abc import Callable
from itertools import chain
from pathlib import PurePosixPath

from pairsmith.core.errors import InputError, StorageError, known_names_hint
from pairsmith.core.paths import MANIFEST, Place, display_name, inside, is_folder, place, reaching, size_of

DOCUMENT_SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm", ".pdf")
"""The ends of the names of documents, which the step ``chunk`` reads from a folder."""

ABOUT_DATA = frozenset({"changelog", "citation", "licence", "license", "notice", "readme"})
"""Files that a data set has beside its rows, such as ``README.md``, and that are no documents."""

Say = Callable[[str], None]

_FIRST_FOLDERS = 20
"""How many folders are looked into for documents."""

_SPLIT = re.compile(r"((?:train|test|validation|valid|val|dev|eval)\w*)(?:-\d+[^/]*)?\.parquet$")
"""A file of a split, as we or the Hub name it: ``test-00000``, ``test-00000-of-00002``, possibly with a hash
appended, or ``test``. Files with other names are for training."""

_NAMED = re.compile(r"(.+):([^\W\d]\w*)", re.DOTALL)


def split_of(source: str) -> tuple[str, str]:
    """A source without its split, and the split, which is empty unless the source is ``FOLDER:SPLIT``.

    URLs, drives and Hub ids contain colons too, so the part before the colon has to be a folder, and nothing
    may exist under the whole name.
    """
    match = _NAMED.fullmatch(source)
    if match is None:
        return source, ""
    path, folder = place(source), place(match[1])
    try:
        named = is_folder(folder) and not is_folder(path) and size_of(path) is None
    except OSError:  # a text that is too long to be a path
        named = False
    return (match[1], match[2]) if named else (source, "")


def split_files(source: str) -> list[Place]:
    """The files of ``FOLDER:SPLIT``, in order."""
    folder, split = split_of(source)
    by_split = _by_split(place(folder))
    if split not in by_split:
        raise InputError(f"{folder} has no split {split!r}; {known_names_hint(split, by_split)}")
    return by_split[split]


def splits_of(source: str) -> dict[str, str]:
    """The splits of a dataset folder, ``train`` first: a mapping from their names to their sources.

    ``FOLDER:SPLIT`` gives only that split; a source that is not a folder counts as ``train``, unchecked.
    """
    folder, split = split_of(source)
    path = place(folder)
    if split:
        split_files(source)  # raises if it does not exist
        return {split: source}
    with reaching(path, InputError):
        if not is_folder(path):
            return {"train": source}
    return {split: f"{source}:{split}" for split in _by_split(path)}


def to_train_on(source: str, done: str, say: Say | None = None) -> str:
    """The source of the rows for training, without those kept for validation or tests.

    That is the source itself, the split that it names, or its split ``train``. ``done`` is what happens to
    the rows, as in "mixed", for the message that ``say`` is called with if other splits are left out.
    """
    return _one_split(source, "train", done, say)


def to_measure_on(source: str, done: str, say: Say | None = None, *, split: str = "test") -> str:
    """The source of the rows that a model is evaluated on, without those for training; see ``to_train_on``.

    Of a dataset folder, the named or only split is taken, and ``split`` from several.
    """
    return source if len(splits_of(source)) == 1 else _one_split(source, split, done, say)


def _one_split(source: str, split: str, done: str, say: Say | None) -> str:
    splits = splits_of(source)
    if split_of(source)[1] or list(splits) == [split]:
        return source
    if split not in splits:
        one = splits.get("validation", next(iter(splits.values())))
        raise InputError(f"{source}: has no split {split}, only {', '.join(splits)}; name one, such as {one}")
    if say:
        others = ", ".join(name for name in splits if name != split)
        say(f"{display_name(place(source)) or source}: its split {split} is {done}; {others} is not")
    return splits[split]


def _by_split(folder: Place) -> dict[str, list[Place]]:
    by_split: dict[str, list[Place]] = {}
    for file in folder_files(folder):
        named = _SPLIT.match(file.name)
        by_split.setdefault(named[1] if named else "train", []).append(file)
    return dict(sorted(by_split.items(), key=lambda entry: (entry[0] != "train", entry[0])))


def folder_files(path: Place) -> list[Place]:
    """The Parquet files with the rows of a dataset folder, split by split, in order."""
    manifest = path / MANIFEST
    if size_of(manifest) is not None:
        try:
            complete = json.loads(manifest.read_text(encoding="utf-8")).get("complete")
        except (OSError, ValueError, AttributeError):
            raise InputError(f"{manifest} cannot be read; was it written by pairsmith?") from None
        if not complete:
            raise InputError(f"{path} is unfinished; rerun the command that writes it, and it will continue")
    paths = [file for file in inside(path / "data") if file.name.endswith(".parquet")]
    files = sorted(paths, key=lambda file: file.name)
    if not files:
        raise InputError(
            f"{path} is a folder without data/*.parquet; give a file or a dataset folder{chunk_first(path)}"
        )
    return files


def chunk_first(path: Place, into: str = "one") -> str:
    """What to do with a folder that holds documents, or whose first folders do; else empty.

    ``into`` stands for the dataset folder that they become.
    """
    try:
        entries = inside(path)
        below = list(chain.from_iterable(inside(entry) for entry in entries[:_FIRST_FOLDERS]))
    except (OSError, StorageError):  # a folder that may not be listed
        return ""
    names = [PurePosixPath(entry.name.lower()) for entry in (*entries, *below)]
    is_model = PurePosixPath("config.json") in names  # with a vocabulary as a text
    if is_model or not any(
        name.suffix in DOCUMENT_SUFFIXES and name.stem not in ABOUT_DATA for name in names
    ):
        return ""
    command = f"pairsmith chunk --documents {shlex.quote(str(path))} --out chunks"
    return f", or cut its documents into {into} first: {command}"
