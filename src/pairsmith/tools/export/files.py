"""The files of an export, as names and lines."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pairsmith.data.kinds import Row

Splits = Mapping[str, Sequence[Row]]
"""Rows by split."""

Files = Iterator[tuple[str, Iterable[str]]]
"""File names, each with the lines of the file."""

MakeObjects = Callable[[Sequence[Row]], Iterable[Mapping[str, Any]]]
"""Makes JSON objects of rows."""


def json_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON."""
    return json.dumps(dict(row), ensure_ascii=False, default=str)


def json_lines(splits: Splits, objects: MakeObjects) -> Files:
    """A file in JSON Lines for each split, with the objects made of its rows."""
    for split, rows in splits.items():
        yield f"{split}.jsonl", map(json_line, objects(rows))
