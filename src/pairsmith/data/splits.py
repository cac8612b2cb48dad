"""The splits of dataset folders, and which of them is read by default.

By default, trainings read the split ``train`` and evaluations the split ``test``; readers for which splits
make no difference, such as those of corpora, read all splits. ``FOLDER:SPLIT`` names a split for any reader.
"""

import json
import re
import shlex
from itertools import chain
from pathlib import PurePosixPath

from pairsmith.core.errors import InputError, StorageError, known_names_hint
from pairsmith.core.folder_kinds import folder_kind
from pairsmith.core.paths import (
    MANIFEST,
    MANIFEST_COPY,
    Place,
    display_name,
    inside,
    is_folder,
    place,
    reaching,
    size_of,
)
from pairsmith.core.progress import Say

DOCUMENT_SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm", ".pdf")
"""The suffixes of the document files that the step ``chunk`` reads from a folder."""

ABOUT_DATA = frozenset({"changelog", "citation", "licence", "license", "notice", "readme"})
"""Stems of files that describe a data set, such as ``README.md``, and are no documents of it."""

_SAVED_TO_DISK = ("dataset_info.json", "dataset_dict.json")
"""Records in the folders of a ``Dataset`` and a ``DatasetDict`` that were saved to disk."""

_TABLES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""Suffixes of files of rows, such as ``export`` writes."""

_FIRST_FOLDERS = 20
"""The number of subfolders that are searched for documents."""

_WORDS = "train|test|validation|valid|val|dev|eval"
"""The usual names of splits."""

_SPLIT = re.compile(rf"((?:{_WORDS})\w*)(?:-\d+[^/]*)?\.parquet$")
"""The name of a split's file, as pairsmith or the Hub writes it: ``test-00000``, ``test-00000-of-00002``,
possibly with a hash appended, or ``test``."""

_HUB_SPLIT = re.compile(r"(.+)-\d{5}-of-\d{5}\b")
"""The name of a file of any split, as the Hub writes it, such as ``test.clean-00000-of-00002``."""

_WORD = re.compile(rf"(?<![^\W\d_])(?:{_WORDS})(?![^\W\d_])", re.IGNORECASE)
"""The usual name of a split as a word within a file's name, such as ``squad_test.parquet``."""

_REJECTS = "rejects"
"""The name under which the rejected rows of a folder can be read, and of their folder."""

_NAMED = re.compile(r"(.+):([^\W\d]\w*)", re.DOTALL)


def split_of(source: str) -> tuple[str, str]:
    """A source as (source without split, split). The split is empty unless the source is ``FOLDER:SPLIT``.

    URLs, drives and Hub ids contain colons, too. So the part before the colon has to be an existing folder,
    and the full text must not be the path of an existing file or folder.
    """
    match = _NAMED.fullmatch(source)
    if match is None:
        return source, ""
    path, folder = place(source), place(match[1])
    try:
        names_split = is_folder(folder) and not is_folder(path) and size_of(path) is None
    except OSError:  # a text that is too long to be a path
        names_split = False
    return (match[1], match[2]) if names_split else (source, "")


def split_files(source: str) -> list[Place]:
    """The files of ``FOLDER:SPLIT``, in order; those of ``FOLDER:rejects`` have the rejected rows."""
    folder, split = split_of(source)
    by_split = _by_split(place(folder))
    if split == _REJECTS and split not in by_split:
        rejects = parquet_files(place(folder) / _REJECTS)
        by_split |= {split: rejects} if rejects else {}
    if split not in by_split:
        raise InputError(f"{folder} has no split {split!r}; {known_names_hint(split, by_split)}")
    return by_split[split]


def splits_of(source: str) -> dict[str, str]:
    """The splits of a source, ``train`` first: a mapping from the split's name to its ``FOLDER:SPLIT``.

    For ``FOLDER:SPLIT`` it is that split alone. A source that is not a folder is taken for a split ``train``;
    whether it exists is not checked.
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
    """The source of a source's training rows, without rows of validation and test splits.

    It is the split ``train`` of a dataset folder, or the source itself if it names a split or has no others.
    If other splits are left out, ``say`` is called with a message, in which ``done``, such as "mixed", is
    what happens to the rows.
    """
    return _one_split(source, "train", done, say)


def to_measure_on(source: str, done: str, say: Say | None = None, *, split: str = "test") -> str:
    """The source of the rows that a model is evaluated on, without training rows.

    A dataset folder's named or only split is read; of several splits, the split ``split``. For ``done`` and
    ``say`` see ``to_train_on``.
    """
    return source if len(splits_of(source)) == 1 else _one_split(source, split, done, say)


def _one_split(source: str, split: str, done: str, say: Say | None) -> str:
    """The source of the split ``split``; the source itself if it names a split or has only this one."""
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
    """The files of each split of a dataset folder, ``train`` first, then sorted by name.

    Files whose names have no usual name of a split belong to ``train``; but if others are named ``train``,
    those that the Hub wrote, such as ``unsupervised-00000-of-00001``, are splits of their own.
    """
    files = folder_files(folder)
    splits = [_split_in(file.name) for file in files]
    with_train = "train" in splits
    by_split: dict[str, list[Place]] = {}
    for file, split in zip(files, splits, strict=True):
        name = split or (_hub_split(file.name) if with_train else "") or "train"
        by_split.setdefault(name, []).append(file)
    return dict(sorted(by_split.items(), key=lambda entry: (entry[0] != "train", entry[0])))


def _split_in(name: str) -> str:
    """The split that the name of a file names by a usual name; empty if it has none."""
    if match := _SPLIT.match(name):
        return match[1]
    word = _WORD.search(name)
    return (_hub_split(name) or word[0].lower()) if word else ""


def _hub_split(name: str) -> str:
    """The split of a file that the Hub wrote, as it is given behind ``FOLDER:``; empty for other files."""
    match = _HUB_SPLIT.match(name)
    return re.sub(r"\W", "_", match[1]) if match else ""


def folder_files(path: Place) -> list[Place]:
    """The Parquet files of a dataset folder, sorted by their names.

    Raises:
        InputError: the folder is unfinished, lacks its manifest or has one that cannot be read, lacks files
            that the manifest lists, or has no such files.
    """
    manifest = path / MANIFEST
    listed: set[str] = set()
    with reaching(path, InputError):
        if size_of(manifest) is not None:
            try:
                record = json.loads(manifest.read_text(encoding="utf-8"))
                complete = record.get("complete")
                listed = {
                    file["path"]
                    for shard in record.get("shards", ())
                    for file in shard["files"]
                    if file.get("rows") != 0
                }
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                raise InputError(
                    f"{manifest} cannot be read; if pairsmith wrote it, rerun the command that writes the "
                    "folder, which restores it"
                ) from None
            if not complete:
                raise InputError(
                    f"{path} is unfinished; rerun the command that writes it, and it will continue"
                )
        elif size_of(path / MANIFEST_COPY) is not None:
            # Without the list of its files, rows that are missing would not be noticed.
            raise InputError(
                f"{path} lacks its {MANIFEST}, which lists its files; rerun the command that writes the "
                "folder, which restores it, or copy it again"
            )
        files = parquet_files(path / "data")
    lost = {name for name in listed if name.startswith("data/")} - {f"data/{file.name}" for file in files}
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise InputError(
            f"{path} lacks {min(lost)}{more}, which its {MANIFEST} lists; rerun the command that writes the "
            "folder, or copy it again"
        )
    if not files:
        if kind := folder_kind(path):
            raise InputError(f"{path} is {kind}, which holds no rows; give a file or a dataset folder")
        if any(size_of(path / record) is not None for record in _SAVED_TO_DISK):
            raise InputError(
                f"{path} was written by save_to_disk of datasets; write a file with to_parquet instead, e.g. "
                f"load_from_disk({str(path)!r}).to_parquet('rows.parquet'), of a DatasetDict for each split"
            )
        if path.name == "data" and parquet_files(path):
            raise InputError(f"{path} is a part of a dataset folder; give the whole: {path.parent}")
        tables = sorted(file.name for file in inside(path) if file.name.endswith(_TABLES))
        example = f", such as {path / tables[0]}," if tables else ""
        raise InputError(
            f"{path} is a folder without data/*.parquet; give a file{example} or a dataset folder"
            f"{advice_to_chunk(path)}"
        )
    return files


def parquet_files(folder: Place) -> list[Place]:
    """The Parquet files in a folder, sorted by name, without hidden ones, as macOS adds to archives."""
    files = (file for file in inside(folder) if file.name.lower().endswith(".parquet"))
    return sorted((file for file in files if not file.name.startswith(".")), key=lambda file: file.name)


def advice_to_chunk(path: Place, into: str = "one") -> str:
    """Advice, for a message, to cut the documents in a folder or its subfolders into chunks; else empty.

    ``into`` is how the message refers to the dataset folder that ``chunk`` writes.
    """
    try:
        entries = inside(path)
        below = list(chain.from_iterable(inside(entry) for entry in entries[:_FIRST_FOLDERS]))
    except (OSError, StorageError):  # a folder that may not be listed
        return ""
    names = [PurePosixPath(entry.name.lower()) for entry in (*entries, *below)]
    is_model = PurePosixPath("config.json") in names  # a model's vocabulary may be a .txt file
    if is_model or not any(
        name.suffix in DOCUMENT_SUFFIXES and name.stem not in ABOUT_DATA for name in names
    ):
        return ""
    command = f"pairsmith chunk --documents {shlex.quote(str(path))} --out chunks"
    return f", or cut its documents into {into} first: {command}"
