"""Texts that people labelled as positive or negative (Q11)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, inside, is_folder, place, reaching, size_of
from pairsmith.data.readers import TEXT_COLUMNS, column_text, pick_column, read_texts
from pairsmith.data.sources import Source, open_source

_TEXTS = (*TEXT_COLUMNS, "review", "content")
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


def read_opinions(source: str | Place) -> Iterator[Opinion]:
    """Read texts with labels: 0 or 1, negative or positive.

    Args:
        source: as for ``read_texts``, with a column label (SST-2), or a folder with a file of positive and
            one of negative texts, ``NAME.pos.txt`` and ``NAME.neg.txt`` (MR, CR).

    Yields:
        texts that are not blank, in the order of the source; from a folder, the positive ones first.
    """
    path = place(source)
    with reaching(path, InputError):
        folder = is_folder(path) and size_of(path / "manifest.json") is None
        files = sorted(inside(path), key=lambda file: file.name) if folder else []
    sides = [
        (file, label) for ending, label in _SIDES for file in files if ending in Path(file.name).suffixes
    ]
    if {label for _, label in sides} == {True, False}:
        return (Opinion(each.text, label) for file, label in sides for each in read_texts(file))
    return _labelled(open_source(source))


def _labelled(source: Source) -> Iterator[Opinion]:
    names: tuple[str, str] | None = None
    for where, row in source.rows():
        names = names or (
            pick_column(row, _TEXTS, source.name),
            pick_column(row, _LABELS, source.name),
        )
        text = column_text(row, names[0], where)
        if not text:
            continue
        value = str(row.get(names[1])).strip().casefold()
        if value not in _VALUES:
            raise InputError(
                f"{where}: {names[1]} is {value[:40]!r}; expected 0 or 1, or negative or positive"
            )
        yield Opinion(text, _VALUES[value])
    if names is None:
        raise InputError(f"{source.name} holds no texts")
