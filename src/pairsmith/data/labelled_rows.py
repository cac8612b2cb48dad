"""Labelled pairs and texts from any file: rows as ``generate`` writes them, whoever wrote them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, joined_names
from pairsmith.data.labelled_texts import read_label
from pairsmith.data.readers import column_text, filled_text, own_id, parse_score, text_id
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    SCORED_PAIR,
    LabelledPair,
    LabelledText,
    ScoredPair,
)
from pairsmith.data.sources import Columns, open_source

LabelledRow = ScoredPair | LabelledPair | LabelledText

KINDS: Sequence[tuple[pa.Schema, type[Any]]] = (
    (SCORED_PAIR, ScoredPair),
    (LABELLED_PAIR, LabelledPair),
    (LABELLED_TEXT, LabelledText),
)
"""The kinds of rows, by their schemas."""


def read_labelled_rows(source: str) -> tuple[pa.Schema, list[LabelledRow]]:
    """The schema and the rows of a file, folder or Hub data set; the first row's columns decide the schema.

    Other columns are left out. A row without an id gets one that is computed from its values. If several
    rows have the same id, a number is appended to the ids of all but the first.
    """
    opened = open_source(source)
    rows = opened.rows()
    first = next(rows, None)
    if first is None:
        raise InputError(f"{opened.name} holds no rows")
    for schema, kind in KINDS:
        if set(schema.names[1:]) <= first[1].keys():
            return schema, list(_rows(schema, kind, opened.rows()))
    expected = "; ".join(", ".join(schema.names[1:]) for schema, _ in KINDS)
    raise InputError(
        f"{opened.name} has the columns {joined_names(first[1])}; "
        f"expected the columns of one of these kinds: {expected}"
    )


def _rows(schema: pa.Schema, kind: type[Any], rows: Iterator[tuple[str, Columns]]) -> Iterator[LabelledRow]:
    names = schema.names[1:]
    seen: Counter[str] = Counter()
    used: set[str] = set()
    for where, row in rows:
        # A blank second text, or a blank text alone, is left to the filters, which make a reject of it.
        values = [row_value(row, name, where, blank=name != "sentence1") for name in names]
        name = own_id(row, where) or text_id("\n".join(map(str, values)))
        unique = name
        while unique in used or not seen[name]:
            seen[name] += 1
            unique = f"{name}-{seen[name]}" if seen[name] > 1 else name
        used.add(unique)
        yield kind(unique, *values)


def row_value(row: Columns, name: str, where: str, *, blank: bool = False) -> str | float:
    """The value in the column ``name``: a score, a label or a text. ``blank`` allows a blank text."""
    if name == "score":
        return parse_score(row.get(name), where)
    if name == "label":
        return read_label(row, name, where)
    return (column_text if blank else filled_text)(row, name, where)
