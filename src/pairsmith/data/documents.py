"""Reading documents, with their summaries if any (formats: see ``sources``)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.data.kept_columns import kept_values
from pairsmith.data.readers import (
    NAME_TEXTS,
    at_least_one,
    column_text,
    given_id,
    text_id,
    type_in_words,
    with_names,
)
from pairsmith.data.schemas import text_schema
from pairsmith.data.sources import Columns, Source, open_source

DOCUMENT = text_schema("id", "document", "summary")
DOCUMENT_COLUMNS = (
    "text", "document", "article", "content", "body", "input", "paragraphs", "sentence", "sentence1",
    "passage", "context", "question",
)  # fmt: skip
SUMMARY_COLUMNS = ("summary", "highlights", "output")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}(?=[T ]\d)")


@dataclass(frozen=True, slots=True)
class Document:
    """A document, and the group that it is searched in (M8)."""

    id: str  # its own id, or the id of its text
    document: str  # the text, with paragraphs separated by line breaks
    summary: str  # empty where there is none
    group: str  # e.g. the day it was published; empty where there is none
    where: str  # its location, e.g. ``news.jsonl:12``
    kept: Mapping[str, str | None] = field(default_factory=dict)  # other columns of its row, as text


def read_documents(
    source: str | Place | Source,
    *,
    column: str | None = None,
    group_column: str | None = None,
    prefer: Sequence[str] = (),
    titles: bool = False,
    keep: Mapping[str, str] | None = None,
    remedy: str = NAME_TEXTS,
) -> Iterator[Document]:
    """Read documents one at a time, stripped of white space; blank ones are skipped.

    Summaries are in the first of ``SUMMARY_COLUMNS`` that exists and does not hold the documents.

    Args:
        source: as for ``read_texts``.
        column: the column with the documents; by default the first of ``prefer`` and ``DOCUMENT_COLUMNS``
            that exists. A list of texts, e.g. of paragraphs, is joined by line breaks.
        group_column: the column with the group. A date or time, also as ISO 8601 text, becomes its day.
        prefer: see ``column``.
        titles: put the text of a column ``title``, where there is one, on a line before the document.
        keep: columns to keep, each with the name that it has in ``kept``; a row need not have them.
        remedy: as for ``pick_column``.
    """
    opened = open_source(source)
    columns = [column] if column else [*prefer, *DOCUMENT_COLUMNS]
    documents = _documents(opened, columns, group_column, titles=titles, keep=keep or {}, remedy=remedy)
    return at_least_one(documents, f"{opened.name} holds no documents")


def _documents(
    source: Source,
    columns: Sequence[str],
    group_column: str | None,
    *,
    titles: bool,
    keep: Mapping[str, str],
    remedy: str,
) -> Iterator[Document]:
    wanted = [columns, [group_column]] if group_column else [columns]
    summary_name: str | None = None
    for number, (where, row, names) in enumerate(with_names(source, *wanted, remedy=remedy)):
        name = names[0]
        if not number:
            summary_name = next(
                (column for column in SUMMARY_COLUMNS if column in row and column != name), None
            )
        if document := _joined(row, name, where):
            summary = _joined(row, summary_name, where) if summary_name else ""
            group = _group(row.get(names[1]), names[1], where) if group_column else ""
            if titles and row.get("title") and name != "title":
                document = with_title(_joined(row, "title", where), document)
            kept = kept_values(row, keep, where)
            yield Document(row_id(row, document, where), document, summary, group, where, kept)


def with_title(title: str, text: str) -> str:
    """The title on a line of its own, if it is not blank, and the text: what encoders see of a document."""
    title = " ".join(title.split())
    return f"{title}\n{text}" if title else text


def row_id(row: Columns, text: str, where: str, name: str = "id") -> str:
    """The id that ``row`` has in column ``name``; if the row gives none, the id of ``text``."""
    return given_id(row, where, name) or text_id(text)


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
        f"{where}: column {name!r} holds {type_in_words(value)}; a group has to be text, a number or a date"
    )


@dataclass(frozen=True, slots=True)
class TitledText:
    """A text with its title, either of which may be empty, and its location."""

    id: str  # its own id, or the id of its text
    title: str
    text: str
    where: str
    document: str = ""  # the name of the document that it is a part of, where the rows tell

    @property
    def whole(self) -> str:
        """The title on a line of its own, if there is one, and the text."""
        return with_title(self.title, self.text)


def read_titled(
    source: str | Place | Source,
    *,
    column: str | None = None,
    title_column: str | None = None,
    prefer: Sequence[str] = (),
    remedy: str = NAME_TEXTS,
) -> Iterator[TitledText]:
    """Read texts with their titles one at a time, stripped of white space; blank texts are read too.

    Args:
        source: as for ``read_texts``.
        column: the column with the texts; by default the first of ``prefer`` and ``DOCUMENT_COLUMNS`` that
            exists. A list of texts, e.g. of paragraphs, is joined by line breaks.
        title_column: the column with the titles; by default ``title``, if it exists.
        prefer: see ``column``.
        remedy: as for ``pick_column``.
    """
    opened = open_source(source)
    wanted: list[Sequence[str]] = [[column] if column else [*prefer, *DOCUMENT_COLUMNS]]
    if title_column:
        wanted.append([title_column])
    title_name = title_column
    for number, (where, row, names) in enumerate(with_names(opened, *wanted, remedy=remedy)):
        if not number:
            title_name = names[1] if title_column else "title" if "title" in row else None
        text = _joined(row, names[0], where)
        title = ""
        if title_name and title_name != names[0] and (title_column or title_name in row):
            title = " ".join(_joined(row, title_name, where).split())
        key = "_id" if "_id" in row else "id"  # as in BEIR's files
        document = given_id(row, where, "document") if names[0] != "document" else ""
        yield TitledText(row_id(row, text, where, key), title, text, where, document)
