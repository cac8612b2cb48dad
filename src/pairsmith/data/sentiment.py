"""Reading texts that people labelled as positive or negative (Q11)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairsmith.core.errors import InputError
from pairsmith.core.paths import MANIFEST, Place, inside, is_folder, place, reaching, size_of
from pairsmith.data.labelled_texts import read_label
from pairsmith.data.readers import TEXT_COLUMNS, at_least_one, column_text, read_texts, with_names
from pairsmith.data.sources import Source, open_source

_LABELS = ("label", "sentiment")
_VALUES = {
    "0": False, "negative": False, "neg": False, "false": False,
    "1": True, "positive": True, "pos": True, "true": True,
}  # fmt: skip
_SIDES = ((".pos", True), (".neg", False))


@dataclass(frozen=True, slots=True)
class Opinion:
    """A text, and whether it is positive."""

    text: str
    positive: bool


def read_opinions(
    source: str | Place, on_blank: Callable[[str], object] = lambda _: None
) -> Iterator[Opinion]:
    """Read texts with labels, which are 0 or 1, or negative or positive; blank texts are skipped.

    ``source`` is as for ``read_texts``, with a column label (as SST-2). It may also be a folder with a file
    of positive and a file of negative texts, ``NAME.pos.txt`` and ``NAME.neg.txt`` (as MR and CR), of which
    the positive texts are read first. ``on_blank`` is called with the location of each row whose text is
    blank, but not for blank lines of these files.
    """
    path = place(source)
    with reaching(path, InputError):
        folder = is_folder(path) and size_of(path / MANIFEST) is None
        files = sorted(inside(path), key=lambda file: file.name) if folder else []
    sides = [
        (file, label) for ending, label in _SIDES for file in files if ending in Path(file.name).suffixes
    ]
    if {label for _, label in sides} == {True, False}:
        return (Opinion(record.text, label) for file, label in sides for record in read_texts(file))
    return _labelled(open_source(source), on_blank)


def _labelled(source: Source, on_blank: Callable[[str], object]) -> Iterator[Opinion]:
    rows = at_least_one(with_names(source, TEXT_COLUMNS, _LABELS), f"{source.name} holds no texts")
    for where, row, (text_column, label_column) in rows:
        text = column_text(row, text_column, where)
        if not text:
            on_blank(where)
            continue
        value = read_label(row, label_column, where).casefold()
        if value not in _VALUES:
            raise InputError(
                f"{where}: {label_column} is {value[:40]!r}; expected 0 or 1, or negative or positive"
            )
        yield Opinion(text, _VALUES[value])
