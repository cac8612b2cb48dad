"""The splits of dataset folders, and which of them is read where none is named.

What is trained on is ``train``, what a model is measured on ``test``; where rows of all splits mean the same,
as of a corpus, all are read. ``FOLDER:SPLIT`` names one anywhere.
"""

import json
import re
from collections.abc import Callable

from pairsmith.errors import InputError, choices
from pairsmith.places import Place, display_name, inside, is_folder, place, reaching, size_of

Say = Callable[[str], None]

_SPLIT = re.compile(r"((?:train|test|validation|valid|val|dev|eval)\w*)(?:-\d+[^/]*)?\.parquet$")
"""A file of a split, as we name it or as the Hub does: ``test-00000``, ``test-00000-of-00002``, with a hash
behind it, or ``test``. What is called otherwise is for training."""

_NAMED = re.compile(r"(.+):([^\W\d]\w*)", re.DOTALL)


def split_of(source: str) -> tuple[str, str]:
    """A source without its split, and that split: of ``FOLDER:SPLIT`` both, of all others only the source.

    There is a colon in URLs, behind drives and in Hub ids too; what stands before it has to be a folder here,
    and nothing may be called as the whole.

    Raises:
        StorageError: the store cannot be reached.
    """
    found = _NAMED.fullmatch(source)
    if found is None:
        return source, ""
    whole, folder = place(source), place(found[1])
    try:
        named = is_folder(folder) and not is_folder(whole) and size_of(whole) is None
    except OSError:  # a text that is too long to be a path
        named = False
    return (found[1], found[2]) if named else (source, "")


def split_files(source: str) -> list[Place]:
    """The files of ``FOLDER:SPLIT``, in order.

    Raises:
        InputError: the folder is no dataset folder, is unfinished, or has no such split.
    """
    folder, split = split_of(source)
    found = _by_split(place(folder))
    if split not in found:
        raise InputError(f"{folder} has no split {split!r}; {choices(split, found)}")
    return found[split]


def splits_of(source: str) -> dict[str, str]:
    """The splits of a dataset folder, ``train`` first, from their names to what reads them.

    Of ``FOLDER:SPLIT`` that split; what is no folder is not looked at, and is ``train`` as it is called.

    Raises:
        InputError: it is no dataset folder, is unfinished, or has no such split.
    """
    folder, split = split_of(source)
    path = place(folder)
    if split:
        split_files(source)  # is it there?
        return {split: source}
    with reaching(path, InputError):
        if not is_folder(path):
            return {"train": source}
    return {split: f"{source}:{split}" for split in _by_split(path)}


def to_train_on(source: str, done: str, say: Say | None = None) -> str:
    """The rows of a source that are for training; those kept for validation or tests stay where they are.

    Args:
        source: of which a dataset folder may have several splits; one that is named is taken.
        done: what happens to the rows, as in "is mixed".
        say: is told which splits are left, if any.

    Returns:
        what reads them: the source itself, or its split ``train``.

    Raises:
        InputError: a folder has no split ``train`` and none is named, or it is no finished dataset folder.
    """
    return _one_split(source, "train", done, say)


def to_measure_on(source: str, done: str, say: Say | None = None, *, split: str = "test") -> str:
    """The rows of a source that a model is measured on; those for training are none of them.

    Args:
        source: of which a dataset folder may have several splits; the named or only one is taken.
        done: what happens to the rows, as in "is measured on".
        say: is told which splits are left, if any.
        split: which of several.

    Returns:
        what reads them: the source itself, or its split.

    Raises:
        InputError: a folder has several splits without that one, or is no finished dataset folder.
    """
    return source if len(splits_of(source)) == 1 else _one_split(source, split, done, say)


def _one_split(source: str, split: str, done: str, say: Say | None) -> str:
    found = splits_of(source)
    if split_of(source)[1] or list(found) == [split]:
        return source
    if split not in found:
        one = next(iter(found.values()))
        raise InputError(f"{source}: has no split {split}, only {', '.join(found)}; name one, such as {one}")
    if say:
        others = ", ".join(each for each in found if each != split)
        say(f"{display_name(place(source)) or source}: its split {split} is {done}; {others} is not")
    return found[split]


def _by_split(folder: Place) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for file in folder_files(folder):
        named = _SPLIT.match(file.name)
        found.setdefault(named[1] if named else "train", []).append(file)
    return dict(sorted(found.items(), key=lambda each: (each[0] != "train", each[0])))


def folder_files(path: Place) -> list[Place]:
    """The Parquet files with the rows of a dataset folder, split by split, in order.

    Raises:
        InputError: the folder is no dataset folder, or its step did not finish.
    """
    manifest = path / "manifest.json"
    if size_of(manifest) is not None:
        try:
            complete = json.loads(manifest.read_text(encoding="utf-8")).get("complete")
        except (OSError, ValueError, AttributeError):
            raise InputError(f"{manifest} cannot be read; was it written by pairsmith?") from None
        if not complete:
            raise InputError(f"{path} is unfinished; run the command that writes it again, it continues")
    found = [file for file in inside(path / "data") if file.name.endswith(".parquet")]
    files = sorted(found, key=lambda file: file.name)
    if not files:
        raise InputError(f"{path} is a folder without data/*.parquet; give a file or a dataset folder")
    return files
