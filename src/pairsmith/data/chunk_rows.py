"""Reading chunks of documents, each with the chunks beside it, and examples of queries."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairsmith.core.paths import Place
from pairsmith.data.documents import Document, read_titled
from pairsmith.data.query_columns import PASSAGES, QUERIES_ALONE, column_texts, positive_column
from pairsmith.data.readers import NAME_COLUMN, NAME_TEXTS, at_least_one, column_text, with_names
from pairsmith.data.sources import Source, open_source


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A part of a document, with the texts of the parts before and behind it."""

    id: str  # its own id, or the id of its text
    title: str  # empty where there is none
    text: str
    neighbours: tuple[str, ...] = ()  # at most two; none where it is not known which document it is of


@dataclass(frozen=True, slots=True)
class QueryExample:
    """An example of a query, and the text that it should find; empty if that is not known."""

    query: str
    text: str


def read_chunks(source: str | Place, column: str | None = None) -> Iterator[ChunkRow]:
    """Read chunks one at a time, in order; blank ones are skipped.

    Rows with the same value in the column ``document`` that stand beside each other are neighbours.

    Args:
        source: as for ``read_texts``, or a corpus in BEIR's form (``_id``, ``title``, ``text``).
        column: the column with the texts; by default as for ``read_passages``.
    """
    opened = open_source(source)
    rows = at_least_one(read_passages(opened, column, NAME_COLUMN), f"{opened.name} holds no texts")
    before: Document | None = None
    now = next(rows)
    while now is not None:
        after = next(rows, None)
        beside = [other.text for other in (before, after) if other and now.part_of == other.part_of != ""]
        yield ChunkRow(now.id, now.title, now.text, tuple(beside))
        before, now = now, after  # type: ignore[assignment]  # None ends the loop


def read_passages(
    source: str | Place | Source, column: str | None = None, remedy: str = NAME_TEXTS
) -> Iterator[Document]:
    """Read texts that may answer a query, one at a time; blank ones are skipped.

    Args:
        source: as for ``read_chunks``.
        column: the column with the texts; by default the first of ``PASSAGES``, or else of
            ``DOCUMENT_COLUMNS``, that exists.
        remedy: as for ``pick_column``.
    """
    return (row for row in read_titled(source, column=column, prefer=PASSAGES, remedy=remedy) if row.text)


def read_query_examples(source: str | Place) -> list[QueryExample]:
    """Read queries, and the texts that they should find if a column of ``POSITIVES`` has them."""
    opened = open_source(source)
    examples = []
    for where, row, (name,) in with_names(opened, QUERIES_ALONE):
        column = positive_column(row, name)
        text = column_texts(row, column, where)[0] if column else ""
        if query := column_text(row, name, where):
            examples.append(QueryExample(query, text))
    return list(at_least_one(examples, f"{opened.name} holds no queries"))
