"""Reading texts and graded pairs (formats: see ``sources``)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pairsmith.core.errors import InputError, choices
from pairsmith.core.paths import Place
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import Columns, Source, open_source

INPUT_COLUMNS = ("input", "sentence1")
OUTPUT_COLUMNS = ("output", "sentence2")
TEXT_COLUMNS = ("text", "sentence", "sentence1", "input", "document", "question")


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A text and its location, e.g. ``sentences.txt:12``."""

    text: str
    where: str


ID_LENGTH = 16


def text_id(text: str) -> str:
    """The id of a text: 16 hexadecimal digits of its SHA-256, so equal texts share it."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def read_texts(
    source: str | Place, *, columns: Sequence[str] = (), limit: int | None = None
) -> Iterator[TextRecord]:
    """Read texts one at a time, without holding the file in memory.

    Args:
        source: a file (``.txt`` with one text per line, ``.jsonl``, ``.tsv``, ``.csv``, each also ``.gz``;
            ``.parquet``), a dataset folder (``FOLDER:SPLIT`` for a split of it), or a Hub data set
            ``org/name``, ``org/name:split`` (also ``:train[:1000]``) or ``org/name/config:split``.
        columns: the columns with the texts, read in this order within a row; by default the first of
            ``TEXT_COLUMNS`` that exists.
        limit: stop after this many texts (1 or more).

    Yields:
        Texts without surrounding white space, otherwise unchanged; blank ones are skipped.
    """
    opened = open_source(source)
    return _texts(opened, columns, limit)


def _texts(source: Source, columns: Sequence[str], limit: int | None) -> Iterator[TextRecord]:
    count = 0
    names: list[str] = []
    for where, row in source.rows():
        if not names:
            wanted: list[Sequence[str]] = [[column] for column in columns] or [TEXT_COLUMNS]
            names = [pick_column(row, known, source.name) for known in wanted]
        for name in names:
            if text := column_text(row, name, where):
                count += 1
                yield TextRecord(text, where)
                if count == limit:
                    return  # nothing after the last text needed is read
    if not count:
        raise InputError(f"{source.name} holds no texts")


def read_pairs(
    source: str | Place, *, columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
) -> Iterator[GradedPair]:
    """Read pairs graded by people; rows with a blank score are skipped.

    Args:
        source: as for ``read_texts``; a file needs a header (``.txt`` has none and is refused).
        columns: the names of the two texts and of the score.
    """
    opened = open_source(source)
    return _pairs(opened, columns)


def _pairs(source: Source, columns: tuple[str, str, str]) -> Iterator[GradedPair]:
    names: list[str] = []
    count = 0
    for where, row in source.rows():
        if not names:
            names = [pick_column(row, [column], source.name) for column in columns]
        score = _score(row, names[2], where)
        if score is None:
            continue
        first, second = column_text(row, names[0], where), column_text(row, names[1], where)
        if not first or not second:
            raise InputError(
                f"{where}: {names[1] if first else names[0]} is blank; give both texts or drop the row"
            )
        count += 1
        yield GradedPair(first, second, score)
    if not count:
        raise InputError(f"{source.name} holds no graded pairs")


def read_inputs_and_outputs(source: str | Place) -> Iterator[tuple[str, str]]:
    """Read pairs of texts from the columns input and output, or sentence1 and sentence2.

    Args:
        source: as for ``read_texts``; a file needs a header.
    """
    opened = open_source(source)
    names: list[str] = []
    for where, row in opened.rows():
        names = names or [pick_column(row, wanted, opened.name) for wanted in (INPUT_COLUMNS, OUTPUT_COLUMNS)]
        pair = column_text(row, names[0], where), column_text(row, names[1], where)
        if not all(pair):
            blank = names[1] if pair[0] else names[0]
            raise InputError(f"{where}: {blank} is blank; give both texts or drop the row")
        yield pair


def pick_column(row: Columns, wanted: Iterable[str], source: str) -> str:
    """The first of ``wanted`` among the columns of ``row``; an exact match of letter case is preferred."""
    wanted = list(wanted)
    folded = {name.casefold(): name for name in reversed(list(row))}
    for name in wanted:
        if name in row:
            return name
        if name.casefold() in folded:
            return folded[name.casefold()]
    if len(wanted) == 1:
        raise InputError(f"{source} has no column {wanted[0]!r}; {choices(wanted[0], row)}")
    raise InputError(
        f"{source} has none of the columns {', '.join(wanted)}; name the column with the texts; "
        f"it has: {', '.join(row)}"
    )


def column_text(row: Columns, name: str, where: str) -> str:
    """The text in column ``name``, stripped; empty when the column is null."""
    if name not in row:
        raise InputError(f"{where}: no column {name!r}, which earlier rows have; it has: {', '.join(row)}")
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {name!r} holds {kind_of(value)}, not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where}: column {name!r} holds half a character (an unpaired surrogate)") from None
    return value.strip()


def whole_id(row: Columns, where: str) -> str:
    """A row's id from its column ``id``; empty without one."""
    value = row.get("id")
    return column_text(row, "id", where) if isinstance(value, str) else str(value or "")


def _score(row: Columns, name: str, where: str) -> float | None:
    """The number in column ``name``; None when it is blank."""
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return parse_score(value, where)


def parse_score(value: object, where: str) -> float:
    """``value`` as a finite number."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: the score is {str(value)[:40]!r}, not a number such as 3.5")
    return number


def kind_of(value: Any) -> str:
    """The type of a value, in words."""
    names = {bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")
