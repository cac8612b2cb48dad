"""Reading documents, with their summaries if any (formats: see ``sources``)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.data.readers import column_text, kind_of, pick_column, text_id
from pairsmith.data.sources import Columns, Source, open_source

DOCUMENT: pa.Schema = pa.schema([("id", pa.string()), ("document", pa.string()), ("summary", pa.string())])
DOCUMENT_COLUMNS = (
    "document", "text", "article", "content", "body", "input", "paragraphs", "sentence", "sentence1",
    "passage", "context", "question",
)  # fmt: skip
SUMMARY_COLUMNS = ("summary", "highlights", "output")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}(?=[T ]\d)")


@dataclass(frozen=True, slots=True)
class Document:
    """A document.

    Attributes:
        id: its own id, or the id of its text.
        document: the text, with paragraphs separated by line breaks.
        summary: empty where there is none.
        group: the group it is searched in, e.g. the day it was published (M8); empty where there is none.
        where: its location, e.g. ``news.jsonl:12``.
    """

    id: str
    document: str
    summary: str
    group: str
    where: str


def read_documents(
    source: str | Place | Source,
    *,
    column: str | None = None,
    summary_column: str | None = None,
    group_column: str | None = None,
    prefer: Sequence[str] = (),
) -> Iterator[Document]:
    """Read documents one at a time, without holding the file in memory.

    Args:
        source: as for ``read_texts``.
        column: the column with the documents; by default the first of ``DOCUMENT_COLUMNS`` that exists. A
            list of texts, e.g. of paragraphs, is joined by line breaks.
        summary_column: the column with the summaries; by default the first of ``SUMMARY_COLUMNS`` that
            exists and does not hold the documents, or none.
        prefer: names of document columns to try before ``DOCUMENT_COLUMNS``.
        group_column: the column with the group. A date or time, also as ISO 8601 text, becomes its day.

    Yields:
        documents without surrounding white space; blank ones are skipped. A row without a group has ``""``.
    """
    opened = open_source(source)
    return _documents(
        opened, [column] if column else [*prefer, *DOCUMENT_COLUMNS], summary_column, group_column
    )


def _documents(
    source: Source, columns: Sequence[str], summary_column: str | None, group_column: str | None
) -> Iterator[Document]:
    name: str | None = None
    summary_name: str | None = None
    count = 0
    for where, row in source.rows():
        if name is None:
            name = pick_column(row, columns, source.name)
            if group_column:
                group_column = pick_column(row, [group_column], source.name)
            summary_name = _summary_name(row, summary_column, name, source.name)
        document = _joined(row, name, where)
        if not document:
            continue
        count += 1
        yield Document(
            id=row_id(row, document),
            document=document,
            summary=_joined(row, summary_name, where) if summary_name else "",
            group=_group(row.get(group_column), group_column, where) if group_column else "",
            where=where,
        )
    if not count:
        raise InputError(f"{source.name} holds no documents")


def row_id(row: Columns, text: str) -> str:
    """The value of column ``id`` in ``row``; if there is none, the id of ``text``."""
    given = row.get("id")
    return str(given).strip() if given is not None and str(given).strip() else text_id(text)


def _summary_name(row: Columns, given: str | None, taken: str, source: str) -> str | None:
    if given:
        return pick_column(row, [given], source)
    return next((name for name in SUMMARY_COLUMNS if name in row and name != taken), None)


def _joined(row: Columns, name: str, where: str) -> str:
    """The text in column ``name``, or a list's items, one per line; empty if there is none."""
    value = row.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return column_text(row, name, where)
    items = (column_text({name: item}, name, where) for item in value)
    return "\n".join(item for item in items if item)


def _group(value: object, name: str, where: str) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.date().isoformat()
        case date():
            return value.isoformat()
        case str():
            text = value.strip()
            day = _TIMESTAMP.match(text)
            return day[0] if day else text
        case int() | float():
            return str(value)
    raise InputError(
        f"{where}: column {name!r} holds {kind_of(value)}; a group has to be text, a number or a date"
    )
