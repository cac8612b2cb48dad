"""Reading labelled single texts, whatever the names of their columns and labels (D14)."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pairsmith.core.errors import InputError, known_names_hint
from pairsmith.data.files.reading import SourceDocument
from pairsmith.data.kept_columns import value_as_text
from pairsmith.data.readers import (
    TEXT_COLUMNS,
    at_least_one,
    column_text,
    id_column,
    own_id,
    pick_column,
    with_names,
)
from pairsmith.data.sources import Columns, open_source
from pairsmith.data.tasks.spec import label_text

_WHOLE = re.compile(r"-?\d+\.0+")
_LABELS = ("label", "sentiment", "category", "class")
_NAME_TEXTS = "name the one with the texts with --text-column"
_NAME_LABELS = "name the one with the labels with --label-column"


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """The texts of a source that are not blank, and their labels."""

    texts: list[str]
    labels: list[str]  # the label of each text
    blank: int  # the number of rows that were left out because their text is blank
    text_column: str = ""  # the names of the columns in the source
    label_column: str = ""


def read_labelled_texts(
    source: str, *, text_column: str | None = None, label_column: str | None = None
) -> LabelledTexts:
    """Read texts and their labels. A label that is a number is read as its text, 1.0 as ``1``.

    Args:
        source: as for ``read_texts``; a file needs a header.
        text_column: the column with the texts; by default the first of ``TEXT_COLUMNS`` that exists.
        label_column: the column with the labels; by default the first of ``_LABELS`` that exists.
    """
    opened = open_source(source)
    texts, labels, blank = list[str](), list[str](), 0
    names: tuple[str, str] | None = None
    for where, row in opened.rows():
        names = names or (
            pick_column(row, [text_column] if text_column else TEXT_COLUMNS, opened.name, _NAME_TEXTS),
            pick_column(row, [label_column] if label_column else _LABELS, opened.name, _NAME_LABELS),
        )
        label = read_label(row, names[1], where)
        if text := column_text(row, names[0], where):
            texts.append(text)
            labels.append(label)
        else:
            blank += 1
    if not texts or not names:
        raise InputError(f"{opened.name} holds no labelled texts")
    return LabelledTexts(texts, labels, blank, *names)


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text, which may be blank, with the id of its row, which is empty if the row has none."""

    id: str
    text: str
    others: Mapping[str, str | None]  # the row's other columns: texts unchanged, other values as JSON
    document: SourceDocument | None = None  # the file that has the text, if it has yet to be read
    id_column: str = ""  # the column of the id, such as ``ID``, which ``others`` lacks; empty without one


def read_text_rows(
    source: str,
    text_column: str | None = None,
    columns: Sequence[str] = TEXT_COLUMNS,
    read: Callable[[Columns, str, str], str] = column_text,
) -> Iterator[TextRow]:
    """Read texts one at a time, including blank texts, with the other columns of their rows.

    Args:
        source: as for ``read_texts``.
        text_column: the column with the texts; by default the first of ``columns`` that exists.
        columns: usual names of the column with the texts.
        read: returns the text of a row, given the row, the column's name and the row's location.
    """
    opened = open_source(source)
    columns = [text_column] if text_column else columns
    rows = at_least_one(with_names(opened, columns, remedy=_NAME_TEXTS), f"{opened.name} holds no texts")
    for where, row, (name,) in rows:
        id_name = id_column(row)
        others = {
            key: value_as_text(value, key, where) for key, value in row.items() if key not in (name, id_name)
        }
        yield TextRow(own_id(row, where), read(row, name, where), others, id_column=id_name or "")


def renamed(labels: Sequence[str], names: Mapping[str, str], source: str) -> list[str]:
    """``labels`` with every label that is a key of ``names`` replaced by the value of this key.

    A key 1.0 means the label ``1``, as ``read_label`` returns it.

    Raises:
        InputError: a key of ``names`` does not occur among the labels.
    """
    present = dict.fromkeys(labels)
    for old in names:
        if label_name(old) not in present:
            raise InputError(
                f"--map {old}={names[old]}: no row of {source} has this label; "
                f"{known_names_hint(old, present)}"
            )
    by_label = {label_name(old): new for old, new in names.items()}
    return [by_label.get(label, label) for label in labels]


def spelled_as(model_labels: Collection[str], labels: Sequence[str]) -> list[str]:
    """``labels`` in the spelling of ``model_labels``, which may have 1.0 where ``labels`` has ``1``.

    A label that the model does not have is returned unchanged.
    """
    spelling = {label_name(label): label for label in model_labels}
    return [label if label in model_labels else spelling.get(label_name(label), label) for label in labels]


def label_name(text: str) -> str:
    """A label that is a text as ``read_label`` returns it: 1.0 as ``1``, other texts unchanged."""
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def read_label(row: Columns, name: str, where: str) -> str:
    """A row's label. A whole number is read without decimal places, 1.0 as ``1``, also if it is text."""
    value: Any = row.get(name)
    if isinstance(value, Decimal):
        value = int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    label = ""
    if isinstance(value, str):
        label = label_name(column_text(row, name, where))
    elif isinstance(value, bool):
        label = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        label = label_text(value)
    if not label:
        raise InputError(
            f"{where}: the {name} is {str(value)[:40]!r}; give a word or a number, or drop the row"
        )
    return label
