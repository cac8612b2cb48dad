"""The rows of files with a header, ``.csv`` and ``.tsv``.

- ``.csv`` is read with standard quoting. The separator is ``,`` or, as in files that Excel writes in many
  countries, ``;``: the one of which the header has more outside quotation marks, unless only the other one
  divides the first rows into as many fields as the header. A first line ``sep=;``, which tells Excel the
  separator, does so here. If spaces follow all separators of the header, spaces after separators are skipped.
- ``.tsv`` is read without quoting, because most corpora in this format have quotation marks that quote
  nothing. Only if the header has a quotation mark was the file written by a CSV writer, and is read with
  quoting.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pairsmith.core.errors import InputError, joined_names
from pairsmith.core.paths import Place, data_suffix, display_name
from pairsmith.data.lines import read_lines, shell_command

_LOOKED_AT, _CHARACTERS_LOOKED_AT = 100, 1_000_000
"""To find out the separator, at most about this many lines and characters are read."""
_STATED = re.compile(r'"?sep=([,;|\t])"?')
"""The line that tells Excel the separator."""
_TO_LINE_FEEDS = r"tr '\r' '\n' <"


def table_rows(path: Place, *, tabs: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a file with a header; for quoting and separators, see the docstring of the module."""
    # The default limit of 128 KiB a field would refuse long documents.
    csv.field_size_limit(2**31 - 1)
    name, lines = display_name(path), read_lines(path)
    number, first = _first_line(lines)
    stated = None if tabs else _STATED.fullmatch(first)
    if stated:
        number, first = _first_line(lines)
    if "\r" in first.strip().partition('"')[0]:
        raise InputError(
            f"{name}:{number}: the lines end with a carriage return alone, as on old Macs; "
            f"give them line feeds (e.g. {shell_command(_TO_LINE_FEEDS, path)})"
        )
    lines = chain([(number, first)] if number else [], lines)
    if not tabs:
        delimiter, lines = (stated[1], lines) if stated else _separator(first, lines)
        fields = _quoted(path, lines, delimiter=delimiter, skip_spaces=_has_spaces(first, delimiter))
    elif '"' in first:
        fields = _quoted(path, lines, delimiter="\t")
    else:
        fields = ((number, line.split("\t")) for number, line in lines)
    header: list[str] | None = None
    for number, values in fields:
        where = f"{name}:{number}"
        if not any(value.strip() for value in values):
            continue
        if header is None:
            header = [value.strip() for value in values]
            refuse_repeated_names(header, f"{where}: the header")
        elif len(header) > 1 and header == [value.strip() for value in values]:
            raise InputError(f"{where}: the header again, as in files that were joined; remove this line")
        else:
            yield where, _by_column(header, values, where)


def _first_line(lines: Iterator[tuple[int, str]]) -> tuple[int, str]:
    """The next line that is not blank, and its number; 0 and "" if there is none."""
    return next(((number, line) for number, line in lines if line.strip()), (0, ""))


def _separator(first: str, lines: Iterator[tuple[int, str]]) -> tuple[str, Iterator[tuple[int, str]]]:
    """The separator of a CSV file, and all of its lines, of which ``first`` is the first.

    Further lines are read only if the header has both a comma and a semicolon outside quotation marks.
    """
    unquoted = _unquoted(first)
    likely, other = (";", ",") if unquoted.count(";") > unquoted.count(",") else (",", ";")
    if other not in unquoted:
        return likely, lines
    sample, characters, is_cut = list[tuple[int, str]](), 0, False
    for number, line in lines:
        sample.append((number, line))
        characters += len(line)
        if is_cut := len(sample) == _LOOKED_AT or characters > _CHARACTERS_LOOKED_AT:
            break
    texts = [line for _, line in sample]
    if not _divides(likely, texts, is_cut=is_cut) and _divides(other, texts, is_cut=is_cut):
        likely = other
    return likely, chain(sample, lines)


def _unquoted(header: str) -> str:
    return re.sub('"[^"]*"', "", header)


def _has_spaces(header: str, delimiter: str) -> bool:
    """Whether a space follows each separator in the header, outside quotation marks."""
    separators = _unquoted(header).count(delimiter)
    return 0 < separators == _unquoted(header).count(f"{delimiter} ")


def _divides(delimiter: str, lines: Sequence[str], *, is_cut: bool) -> bool:
    """Whether the delimiter divides the rows into as many fields as the header, which has at least two.

    With ``is_cut``, the last row is ignored, as more lines may belong to it. As in ``_by_column``, blank
    fields beyond the header are ignored, too.
    """
    try:
        skip = _has_spaces(lines[0], delimiter)
        rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, skipinitialspace=skip))
    except csv.Error:
        return False
    rows = [row for row in rows if any(field.strip() for field in row)]
    width = len(rows[0])
    rows = rows[1:-1] if is_cut else rows[1:]
    return width > 1 and all(
        len(row) >= width and not any(field.strip() for field in row[width:]) for row in rows
    )


def _quoted(
    path: Place, lines: Iterable[tuple[int, str]], *, delimiter: str, skip_spaces: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, fields) for each row; a quoted field may span several lines."""
    name = display_name(path)
    line_numbers = [0]  # of the last line of the previous row, then of the lines of the current row

    def numbered_lines() -> Iterator[str]:
        for number, line in lines:
            line_numbers.append(number)
            yield line + "\n"

    reader = csv.reader(numbered_lines(), delimiter=delimiter, skipinitialspace=skip_spaces, strict=True)
    while True:
        line_numbers[:] = line_numbers[-1:]
        try:
            fields = next(reader, None)
        except csv.Error as error:
            number = line_numbers[1] if len(line_numbers) > 1 else line_numbers[0]
            if "new-line" in str(error):
                raise InputError(
                    f"{name}:{number}: the row holds a carriage return outside quotation marks; end all "
                    f"lines with a line feed (e.g. {shell_command(_TO_LINE_FEEDS, path)})"
                ) from None
            raise InputError(
                f"{name}:{number}: not a valid {data_suffix(path)[1:]} row ({error}); "
                'a quotation mark inside a quoted field has to be doubled ("")'
            ) from None
        if fields is None:
            return
        yield line_numbers[1], fields


def refuse_repeated_names(names: list[str], what: str) -> None:
    """Raise an ``InputError`` if two columns have the same name, as a row could hold only the second."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"{what} names {joined_names(map(repr, twice))} twice; rename one of them")


def _by_column(header: list[str], fields: list[str], where: str) -> Mapping[str, Any]:
    """The fields of a row by the names of their columns; blank fields beyond the header are dropped."""
    while len(fields) > len(header) and not fields[-1].strip():
        fields.pop()
    if len(fields) != len(header):
        raise InputError(
            f"{where}: {len(fields)} fields where the header has {len(header)} ({joined_names(header)}); "
            "a separator or quotation mark inside a field may have split it"
        )
    return dict(zip(header, fields, strict=True))
