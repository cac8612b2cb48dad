"""Reading documents, and their summaries if there are any (for the file formats, see ``sources``)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.data.kept_columns import kept_values
from pairsmith.data.readers import (
    NAME_TEXTS,
    at_least_one,
    column_text,
    find_column,
    own_id,
    pick_column,
    text_id,
    type_in_words,
    with_names,
)
from pairsmith.data.schemas import text_schema
from pairsmith.data.sources import Columns, Source, open_source

DOCUMENT = text_schema("id", "document", "summary")
DOCUMENT_COLUMNS = (
    "text", "document", "article", "content", "body", "input", "paragraphs", "sentence", "sentence1",
    "passage", "context", "question", "review", "message", "comment",
)  # fmt: skip
SUMMARY_COLUMNS = ("summary", "highlights", "output")
NAME_SUMMARIES = "rename the column that holds the summaries to one of these"
"""Advice in the error about a missing column of summaries."""
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}(?=[T ]\d)")


class Document(NamedTuple):
    """A document, or a part of one; fields that a reader does not fill are empty."""

    text: str  # with paragraphs separated by line breaks
    where: str  # the location of its row, e.g. ``news.jsonl:12``
    own_id: str = ""  # the id in its row; empty if the row has none
    title: str = ""
    summary: str = ""
    group: str = ""  # the group that the search is limited to (M8), e.g. its day of publication
    part_of: str = ""  # the name of the document that it is a part of; empty if the rows do not name it
    kept: Mapping[str, str | None] = {}  # the values of the columns to keep, as text

    @property
    def id(self) -> str:
        """The id in the document's row or, without one, the id of its text."""
        return self.own_id or text_id(self.text)

    @property
    def whole(self) -> str:
        """The title, if there is one, on a line of its own, followed by the text."""
        return with_title(self.title, self.text)


def read_documents(
    source: str | Place | Source,
    *,
    column: str | None = None,
    group_column: str | None = None,
    prefer: Sequence[str] = (),
    keep: Mapping[str, str] | None = None,
    remedy: str = NAME_TEXTS,
    on_blank: Callable[[str], object] = lambda _: None,
) -> Iterator[Document]:
    """Read documents and their summaries one at a time, stripped of white space; blank ones are skipped.

    The summaries are read from the first of ``SUMMARY_COLUMNS`` that exists, in any letter case, and is not
    the column of the documents.

    Args:
        source: as for ``read_texts``.
        column: the column with the documents; by default the first of ``prefer`` and ``DOCUMENT_COLUMNS``
            that exists. A list of texts, e.g. of paragraphs, is joined by line breaks.
        group_column: the column with the documents' groups. A date or time, also as ISO 8601 text, is
            replaced by its day.
        prefer: names of columns that are tried before ``DOCUMENT_COLUMNS``.
        keep: maps each column to keep to its name in ``Document.kept``. A row need not have these columns.
        remedy: as for ``pick_column``.
        on_blank: called with the location of each row that is skipped; by default this has no effect.
    """
    opened = open_source(source)
    columns = [column] if column else list(dict.fromkeys([*prefer, *DOCUMENT_COLUMNS]))
    documents = _with_summaries(opened, columns, group_column, keep or {}, remedy, on_blank)
    return at_least_one(documents, f"{opened.name} holds no documents")


def refuse_blank_document(where: str) -> None:
    """Raise an ``InputError`` about the row at ``where``, which has no document."""
    raise InputError(f"{where}: the document is blank or missing; give one, or drop the row")


def refuse_blank_summary(where: str) -> None:
    """Raise an ``InputError`` about the document at ``where``, which has no summary."""
    raise InputError(
        f"{where}: the summary is blank or missing; give one, in the column summary, or drop the row"
    )


def read_summarised(
    source: str | Place | Source,
    *,
    remedy: str = NAME_TEXTS,
    on_blank: Callable[[str], object] = refuse_blank_document,
    on_blank_summary: Callable[[str], object] = refuse_blank_summary,
) -> Iterator[Document]:
    """Read documents as ``read_documents`` does, each of which needs a summary.

    ``on_blank`` is called with the location of each row without a document, and ``on_blank_summary`` with
    that of each document without a summary; if they return, the row is skipped.

    Raises:
        InputError: there is no column of summaries, or no document with a summary.
    """
    opened = open_source(source)
    return at_least_one(
        _summarised(opened, remedy, on_blank, on_blank_summary),
        f"{opened.name} holds no documents with a summary",
    )


def _summarised(
    source: Source,
    remedy: str,
    on_blank: Callable[[str], object],
    on_blank_summary: Callable[[str], object],
) -> Iterator[Document]:
    has_column = False
    for document in read_documents(source, remedy=remedy, on_blank=on_blank):
        if document.summary:
            yield document
            continue
        if not has_column:
            row = next(row for _, row in source.rows())
            pick_column(row, SUMMARY_COLUMNS, source.name, NAME_SUMMARIES)
            has_column = True
        on_blank_summary(document.where)


def _with_summaries(
    source: Source,
    columns: Sequence[str],
    group_column: str | None,
    keep: Mapping[str, str],
    remedy: str,
    on_blank: Callable[[str], object],
) -> Iterator[Document]:
    alternatives = [columns, [group_column]] if group_column else [columns]
    summary_name: str | None = None
    for number, (where, row, names) in enumerate(with_names(source, *alternatives, remedy=remedy)):
        name = names[0]
        if not number:
            summary_name = find_column([column for column in row if column != name], SUMMARY_COLUMNS)
        if text := joined_text(row, name, where):
            summary = joined_text(row, summary_name, where) if summary_name else ""
            group = _group(row.get(names[1]), names[1], where) if group_column else ""
            kept = kept_values(row, keep, where) if keep else {}
            yield Document(text, where, own_id(row, where), summary=summary, group=group, kept=kept)
        else:
            on_blank(where)


def read_titled(
    source: str | Place | Source,
    *,
    column: str | None = None,
    title_column: str | None = None,
    prefer: Sequence[str] = (),
    remedy: str = NAME_TEXTS,
) -> Iterator[Document]:
    """Read documents, or parts of documents, and their titles one at a time, also those without text.

    Args:
        source: as for ``read_texts``, or a corpus in BEIR's layout, whose ids are in a column ``_id``.
        column, prefer, remedy: as for ``read_documents``.
        title_column: the column with the titles; by default ``title``, in any letter case, if it exists.
    """
    alternatives: list[Sequence[str]] = [[column] if column else [*prefer, *DOCUMENT_COLUMNS]]
    if title_column:
        alternatives.append([title_column])
    for where, row, names in with_names(open_source(source), *alternatives, remedy=remedy):
        name, title_name, title = names[0], names[1] if title_column else find_column(row, ["title"]), ""
        text = joined_text(row, name, where)
        if title_name and title_name != name:
            title = " ".join(joined_text(row, title_name, where).split())
        document_id = own_id(row, where, find_column(row, ["_id", "id"]) or "id")
        part_of = own_id(row, where, "document") if name.casefold() != "document" else ""
        yield Document(text, where, document_id, title, part_of=part_of)


def with_title(title: str, text: str) -> str:
    """The title, if it is not blank, on a line of its own, followed by the text. Encoders read this form."""
    title = " ".join(title.split())
    return f"{title}\n{text}" if title else text


def joined_text(row: Columns, name: str, where: str) -> str:
    """The text in column ``name``; a list's items are joined by line breaks; empty if the value is null."""
    value = row.get(name)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return column_text(row, name, where)
    items = (column_text({name: item}, name, where) for item in value)
    return "\n".join(item for item in items if item)


def _group(value: object, name: str, where: str) -> str:
    """A group as text; a date or time is replaced by its day."""
    match value:
        case None:
            return ""
        case datetime():
            return value.date().isoformat()
        case date():
            return value.isoformat()
        case str():
            text = column_text({name: value}, name, where)
            day = _TIMESTAMP.match(text)
            return day[0] if day else text
        case int() | float() | Decimal():
            return str(value)
    raise InputError(
        f"{where}: column {name!r} holds {type_in_words(value)}; a group has to be text, a number or a date"
    )
