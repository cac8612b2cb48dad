"""Export of rows of any kind as CSV and JSON Lines, and of words with their tags in CoNLL's format."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.paths import place
from pairsmith.data.kept_columns import value_as_text
from pairsmith.data.kinds import QUESTIONS, Row
from pairsmith.data.readers import refuse_half_characters
from pairsmith.data.sources import open_source
from pairsmith.data.splits import splits_of
from pairsmith.data.squad import official_squad
from pairsmith.data.tagged import read_tagged
from pairsmith.tools.export.files import Files, json_lines


def table_rows(source: str) -> dict[str, list[Row]]:
    """The rows of each split with all their columns; an official SQuAD file has a row for each question."""
    return {
        split: list(QUESTIONS.read(name))
        if official_squad(place(source))
        else [row for _, row in open_source(name).rows()]
        for split, name in splits_of(source).items()
    }


def jsonl_files(splits: Mapping[str, Sequence[Row]]) -> Files:
    """``SPLIT.jsonl`` for each split: one row per line, with all of its columns."""
    for split, rows in splits.items():
        for number, row in enumerate(rows, start=1):
            for name, value in row.items():
                value_as_text(value, name, f"{split}, row {number}")  # refuses text that no file can hold
    return json_lines(splits, iter)


def csv_files(splits: dict[str, list[Row]]) -> Files:
    """``SPLIT.csv`` for each split: a header, then a line for each row, with quotation marks where needed.

    The header has the columns of all rows, in the order in which they first appear. A missing value is an
    empty field; lists and objects are written as JSON.
    """
    for split, rows in splits.items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [_line(names)]
        for number, row in enumerate(rows, start=1):
            lines.append(_line([_field(row.get(name), name, f"{split}, row {number}") for name in names]))
        yield f"{split}.csv", lines


def conll_files(source: str) -> Files:
    """``SPLIT.conll`` for each split: a word and its BIO tag per line, and an empty line after each row.

    Raises an ``InputError`` for what the format cannot hold: white space in a word or a tag, an empty word,
    and -DOCSTART-, which begins a document.
    """
    for split, name in splits_of(source).items():
        lines: list[str] = []
        for number, sentence in enumerate(read_tagged(name), start=1):
            for part in (*sentence.words, *sentence.tags):
                if len(part.split()) != 1 or part == "-DOCSTART-":
                    raise InputError(
                        f"{split}, row {number}: a file in CoNLL's format cannot hold {part[:40]!r}"
                    )
            lines += [f"{word} {tag}" for word, tag in zip(sentence.words, sentence.tags, strict=True)]
            lines.append("")
        yield f"{split}.conll", lines


def nested(splits: dict[str, list[Row]]) -> list[str]:
    """The columns that hold lists or objects."""
    values = (entry for rows in splits.values() for row in rows for entry in row.items())
    return list(dict.fromkeys(name for name, value in values if isinstance(value, list | dict)))


def _field(value: Any, name: str, where: str) -> Any:
    """A value as a CSV field, lists and objects as JSON; a text that no file can hold is refused."""
    field = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value
    refuse_half_characters(str(field), name, where)
    return field


def _line(values: Sequence[Any]) -> str:
    written = io.StringIO(newline="")
    csv.writer(written).writerow(values)  # its line end is \r\n, so fields with \r or \n are quoted
    return written.getvalue().removesuffix("\r\n")
