"""Columns of the input that a step copies to its rows: the names they get, and their values as text."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, did_you_mean, joined_names
from pairsmith.data.readers import find_column, refuse_half_characters
from pairsmith.data.schemas import text_schema
from pairsmith.data.sources import Columns, Source, open_source

_JSON = (str, int, float, list, dict, type(None))
_FIRST_ROWS = 1_000
"""A column is missing if none of this many first rows has it. Rows in JSON Lines may omit empty columns."""


def kept_schema(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """The schema with the kept columns, as text, after its own columns."""
    return pa.schema([*schema, *text_schema(*names.values())])


def kept_names(columns: Iterable[str], own: Collection[str], prefix: str = "") -> dict[str, str]:
    """For each column of the input, the name under which it is kept: ``prefix`` and the column's name.

    If this is one of ``own``, the columns that the step itself writes, ``original_`` is put before it.
    """
    prefixed = {column: f"{prefix}{column}" for column in columns}
    used_names = {*own, *prefixed.values()}
    names = {}
    for column, prefixed_name in prefixed.items():
        name = prefixed_name
        while prefixed_name in own and name in used_names:
            name = f"original_{name}"
        used_names.add(name)
        names[column] = name
    return names


def refuse_missing_columns(
    *wanted: tuple[str, Sequence[str], Sequence[str]], opened: Callable[[str], Source] = open_source
) -> None:
    """Raise one error that names all columns that an option names and none of its sources has.

    Each of ``wanted`` is an option, its sources, and the columns that it names. The sources of an option
    that names no columns are not read; ``opened`` opens the others.
    """
    messages = [
        _missing_message(option, sources, columns, opened) for option, sources, columns in wanted if columns
    ]
    if any(messages):
        raise InputError("\n".join(filter(None, messages)))


def _missing_message(
    option: str, sources: Sequence[str], columns: Sequence[str], opened: Callable[[str], Source]
) -> str:
    """A message that names the columns which none of the sources has; empty if none is missing."""
    present: dict[str, Any] = {}
    missing = columns
    for source in sources:
        for _, row in islice(opened(source).rows(), _FIRST_ROWS):
            present |= row
            missing = [column for column in missing if find_column(row, [column]) is None]
            if not missing:
                return ""
    hints = " ".join(filter(None, (did_you_mean(column, present) for column in missing)))
    return (
        f"{option}: {', '.join(sources)} has no column {', '.join(map(repr, missing))}; "
        f"{hints}{' ' if hints else ''}it has: {joined_names(present)}"
    )


def kept_values(row: Columns, names: Mapping[str, str], where: str) -> dict[str, str | None]:
    """The values that a row has in the columns to keep, by the names under which they are kept.

    ``names`` maps each column to this name. Texts are unchanged, lists and objects are written as JSON, and
    a missing value is None.
    """
    values = {name: row.get(find_column(row, [column]) or column) for column, name in names.items()}
    return {
        name: value_as_text(value if isinstance(value, _JSON) else str(value), name, where)
        for name, value in values.items()
    }


def value_as_text(value: Any, name: str, where: str) -> str | None:
    """A text unchanged, any other value as JSON; None stays None."""
    text = value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False, default=str)
    refuse_half_characters(text or "", name, where)
    return text
