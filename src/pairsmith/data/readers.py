"""Reading texts and graded pairs, and functions that all readers of rows share.

For the file formats, see ``sources``.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from pairsmith.core.errors import InputError, joined_names, known_names_hint, similar_names
from pairsmith.core.paths import Place
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import Columns, Source, open_source

INPUT_COLUMNS = ("input", "sentence1")
OUTPUT_COLUMNS = ("output", "sentence2")
TEXT_COLUMNS = (
    "text", "sentence", "sentence1", "input", "document", "question", "review", "content", "message", "body",
    "comment",
)  # fmt: skip
"""Names of columns of texts, of which the first that exists is read.

``comment`` is last: beside a text, it is often a remark about it.
"""

_INVISIBLE = "\u200b\u2060\ufeff"
"""Spaces without width, such as web pages and byte order marks leave around texts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A text and its location, e.g. ``sentences.txt:12``."""

    text: str
    where: str


ID_LENGTH = 16
"""Hexadecimal digits of the id of a text."""

NAME_TEXTS = "name the column with the texts"
"""Advice in the error about a missing column, if a setting or an argument names the column with the texts."""
NAME_COLUMN = f"{NAME_TEXTS} with --column"
"""The same advice for steps in which this setting is ``--column``."""
RENAME = "rename the column that holds them to one of these"
"""Advice in the error about a missing column, if no setting names the column."""


def text_id(text: str) -> str:
    """The id of a text: the first 16 hexadecimal digits of its SHA-256. Equal texts have the same id."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def read_texts(
    source: str | Place, *, columns: Sequence[str] = (), remedy: str = NAME_TEXTS
) -> Iterator[TextRecord]:
    """Read texts one at a time, stripped of white space; blank ones are skipped.

    Args:
        source: a file (``.txt`` with one text per line, ``.jsonl``, ``.tsv``, ``.csv``, each also ``.gz``;
            ``.parquet``), a dataset folder (``FOLDER:SPLIT`` for a split of it), or a Hub data set
            ``org/name``, ``org/name:split`` (also ``:train[:1000]``) or ``org/name/config:split``.
        columns: the columns with the texts, read in this order within a row; by default the first of
            ``TEXT_COLUMNS`` that exists.
        remedy: as for ``pick_column``.
    """
    opened = open_source(source)
    alternatives: list[Sequence[str]] = [[column] for column in columns] or [TEXT_COLUMNS]
    records = (
        TextRecord(text, where)
        for where, row, names in with_names(opened, *alternatives, remedy=remedy)
        for name in names
        if (text := column_text(row, name, where))
    )
    return at_least_one(records, f"{opened.name} holds no texts")


def read_pairs(source: str | Place) -> Iterator[GradedPair]:
    """Read pairs with scores by people from the columns sentence1, sentence2 and score.

    Pairs with a blank score are skipped. ``source`` is as for ``read_texts``; a file needs a header, so a
    ``.txt`` file is refused.
    """
    opened = open_source(source)
    pairs = (pair for _, _, pair in graded_rows(opened))
    return at_least_one(pairs, f"{opened.name} holds no graded pairs")


def graded_rows(source: Source) -> Iterator[tuple[str, Columns, GradedPair]]:
    """For each pair that ``read_pairs`` would yield: the location of its row, the row, and the pair."""
    for where, row, names in with_names(source, ["sentence1"], ["sentence2"], ["score"]):
        score = row.get(names[2])
        if score is not None and str(score).strip():
            number = parse_score(score, where)
            yield where, row, GradedPair(*two_texts(row, names, where), number)


def read_inputs_and_outputs(source: str | Place | Source, *, remedy: str = RENAME) -> Iterator[GradedPair]:
    """Read pairs of texts from the columns input and output, or sentence1 and sentence2.

    If the texts are sentence1 and sentence2, a column score, or else label, has the score of each pair: how
    well the two texts match, from 0 to 1. All other pairs have the score 1. ``source`` is as for
    ``read_texts``; a file needs a header. ``remedy`` is as for ``pick_column``.
    """
    rows = with_names(open_source(source), INPUT_COLUMNS, OUTPUT_COLUMNS, remedy=remedy)
    graded: str | None = None  # the column of the scores
    for number, (where, row, names) in enumerate(rows):
        found = find_column(row, ("score", "label")) if names[1].casefold() == "sentence2" else None
        graded = same_column(graded, found, where) if number else found
        score = 1.0
        if graded:
            score = parse_score(row.get(graded), where)
            if not 0 <= score <= 1:
                raise InputError(
                    f"{where}: the {graded} is {score:g}; it has to lie between 0 and 1, so divide scores on "
                    "another scale by the highest score of that scale"
                )
        yield GradedPair(*two_texts(row, names, where), score)


def with_names(
    source: Source, *wanted: Sequence[str], remedy: str = RENAME
) -> Iterator[tuple[str, Columns, list[str]]]:
    """Yield the rows of a source, each as its location, the row, and the names of the wanted columns.

    Each of ``wanted`` lists alternative names of one column; the first that the source's first row has is
    used for all rows. ``remedy`` is as for ``pick_column``.

    Raises:
        InputError: the first row has no column for one of ``wanted``.
    """
    names: list[str] = []
    for where, row in source.rows():
        names = names or pick_columns(row, wanted, source.name, remedy)
        yield where, row, names


def same_column(first: str | None, found: str | None, where: str) -> str | None:
    """The column ``first`` of the first row; an ``InputError`` if only this row has one, ``found``."""
    if found and not first:
        raise InputError(
            f"{where}: a column {found}, which the first row lacks; give it in all rows or in none"
        )
    return first


def at_least_one(items: Iterable[T], none: str) -> Iterator[T]:
    """Yield the items; if there are none, raise an ``InputError`` with the message ``none``."""
    remaining = iter(items)
    for first in remaining:
        yield first
        yield from remaining
        return
    raise InputError(none)


def two_texts(row: Columns, names: Sequence[str], where: str) -> tuple[str, str]:
    """The texts in the first two of the columns ``names``, neither of which may be blank."""
    first, second = column_text(row, names[0], where), column_text(row, names[1], where)
    if not first or not second:
        blank = names[1] if first else names[0]
        raise InputError(f"{where}: {blank} is blank; give both texts or drop the row")
    return first, second


def find_column(row: Collection[str], wanted: Iterable[str]) -> str | None:
    """The first of the names ``wanted`` that the row has a column for, as the row spells it; else None.

    Letter case is ignored, but a column whose name is exactly equal is preferred.
    """
    for name in wanted:
        if name in row:
            return name
        if name.casefold() in (folded := _by_folded_name(tuple(row))):
            return folded[name.casefold()]
    return None


# Readers look up columns in each row, and the rows of a source have only a few sets of columns.
@lru_cache(maxsize=256)
def _by_folded_name(columns: tuple[str, ...]) -> Mapping[str, str]:
    """The columns by their case-folded names; of several columns with the same folded name, the first."""
    return {column.casefold(): column for column in reversed(columns)}


def pick_columns(
    row: Columns, wanted: Sequence[Sequence[str]], source: str, remedy: str = RENAME
) -> list[str]:
    """For each of ``wanted``, a list of alternative names, the column that ``find_column`` returns.

    ``remedy`` is as for ``pick_column``.

    Raises:
        InputError: columns are missing; the message names all of them.
    """
    names = [find_column(row, columns) for columns in wanted]
    missing = [" or ".join(columns) for columns, name in zip(wanted, names, strict=True) if name is None]
    if len(missing) > 1:
        advice = "rename those that hold them to these names" if remedy == RENAME else remedy
        raise InputError(
            f"{source} lacks the columns {', '.join(missing)}; {advice}; it has: {joined_names(row)}"
        )
    return [pick_column(row, columns, source, remedy) for columns in wanted]


def pick_column(row: Columns, wanted: Sequence[str], source: str, remedy: str = RENAME) -> str:
    """The column of ``row`` that ``find_column`` returns for the alternative names ``wanted``.

    Args:
        row: a row of the source.
        wanted: alternative names of the column.
        source: the name of the source, for the error.
        remedy: advice in the error, if there are several alternative names, such as ``RENAME``.

    Raises:
        InputError: the row has none of these columns.
    """
    column = find_column(row, wanted)
    if column is not None:
        return column
    if len(wanted) == 1 and remedy == RENAME and (near := similar_names(wanted[0], row)):
        raise InputError(
            f"{source} has no column {wanted[0]!r}, which is needed; if {near[0]!r} holds it, rename that to "
            f"{wanted[0]!r}; it has: {joined_names(row)}"
        )
    if len(wanted) == 1:
        raise InputError(f"{source} has no column {wanted[0]!r}; {known_names_hint(wanted[0], row)}")
    raise InputError(
        f"{source} has none of the columns {', '.join(wanted)}; {remedy}; it has: {joined_names(row)}"
    )


def column_text(row: Columns, name: str, where: str) -> str:
    """The text in column ``name`` without white space and ``_INVISIBLE`` around it; empty if it is null."""
    if name not in row:
        raise InputError(f"{where}: no column {name!r}, which earlier rows have; it has: {joined_names(row)}")
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {name!r} holds {type_in_words(value)}, not text")
    refuse_half_characters(value, name, where)
    text = value.strip()
    while text and (text[0] in _INVISIBLE or text[-1] in _INVISIBLE):
        text = text.strip(_INVISIBLE).strip()
    return text


def title_of(row: Columns, where: str) -> str:
    """The title of a row, from its column ``title`` or, for example, ``Title``; empty if it has no text."""
    column = find_column(row, ["title"])
    return column_text(row, column, where) if column and isinstance(row[column], str) else ""


def filled_text(row: Columns, name: str, where: str) -> str:
    """The text in column ``name``, stripped of white space; an ``InputError`` if it is blank."""
    text = column_text(row, name, where)
    if not text:
        raise InputError(f"{where}: {name} is blank; fill it in or drop the row")
    return text


def refuse_half_characters(text: str, name: str, where: str) -> None:
    """Raise an ``InputError`` if a text or its column's name cannot be written as UTF-8."""
    try:
        name.encode("utf-8")
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"{where}: column {name!r} holds half a character (an unpaired surrogate); remove it"
        ) from None


def id_column(row: Columns) -> str | None:
    """The column that ``own_id`` reads: ``id`` or else, for example, ``ID``; None if there is none."""
    return find_column(row, ["id"])


def own_id(row: Columns, where: str, name: str = "id") -> str:
    """The id in the column that ``find_column`` returns for ``name``; empty if the row has no id.

    A number is returned as text; NaN, which stands for a missing number, is no id.
    """
    column = find_column(row, [name]) or name
    value = row.get(column)
    if isinstance(value, str):
        return column_text(row, column, where)
    return "" if value is None or value != value else str(value)


def row_id(row: Columns, text: str, where: str) -> str:
    """The id that ``own_id`` returns or, if the row has none, the id of ``text``."""
    return own_id(row, where) or text_id(text)


def parse_score(value: object, where: str) -> float:
    """``value``, a number or its text, as a finite number; an ``InputError`` if it is anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float | Decimal) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where}: the score is {str(value)[:40]!r}, not a number such as 3.5; give one or drop the row"
        )
    return number


def type_in_words(value: Any) -> str:
    """The type of a value in words, for messages, such as ``a number``."""
    names = {
        bool: "true/false", int: "a number", float: "a number", Decimal: "a number", list: "a list",
        dict: "an object", bytes: "bytes", type(None): "null",
    }  # fmt: skip
    return names.get(type(value), f"a {type(value).__name__}")
