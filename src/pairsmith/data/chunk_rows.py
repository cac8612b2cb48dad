"""Reading chunks of documents, each with the chunks beside it, and examples of queries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairsmith.core.paths import Place
from pairsmith.data.readers import at_least_one, column_text, text_id, with_names
from pairsmith.data.sources import Columns, Source, open_source

CHUNK_COLUMNS = ("text", "positive", "passage", "context", "document")
QUERY_COLUMNS = ("query", "question", "text", "anchor")
OF_EXAMPLES = ("positive", "passage", "context", "document")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document, with the texts of the parts before and behind it."""

    id: str  # its own id, or the id of its text
    title: str  # empty where there is none
    text: str
    neighbours: tuple[str, ...] = ()  # at most two; none where it is not known which document it is of


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query of the kind that is wanted, and the text that it should find; empty if that is not known."""

    query: str
    text: str


def read_chunks(source: str | Place, column: str | None = None) -> Iterator[Chunk]:
    """Read chunks one at a time, in order; blank ones are skipped.

    Rows with the same value in the column ``document`` that stand beside each other are neighbours.

    Args:
        source: as for ``read_texts``, or a corpus in BEIR's form (``_id``, ``title``, ``text``).
        column: the column with the texts; by default the first of ``CHUNK_COLUMNS`` that exists.
    """
    opened = open_source(source)
    rows = at_least_one(_rows(opened, [column] if column else CHUNK_COLUMNS), f"{opened.name} holds no texts")
    before: tuple[Chunk, str] | None = None
    now = next(rows)
    while now is not None:
        chunk, document = now
        after = next(rows, None)
        beside = [other.text for other, of in filter(None, (before, after)) if document and of == document]
        yield Chunk(chunk.id, chunk.title, chunk.text, tuple(beside))
        before, now = now, after  # type: ignore[assignment]  # None ends the loop


def _rows(source: Source, columns: Sequence[str]) -> Iterator[tuple[Chunk, str]]:
    """Each chunk, and the document that it is of."""
    for where, row, (name,) in with_names(source, columns):
        if text := column_text(row, name, where):
            title = column_text(row, "title", where) if "title" in row and name != "title" else ""
            document = "" if name == "document" else _plain(row, "document")
            yield Chunk(_plain(row, "id") or _plain(row, "_id") or text_id(text), title, text), document


def _plain(row: Columns, name: str) -> str:
    """What a column holds, as text; empty if it is missing or null."""
    value = row.get(name)
    return "" if value is None else str(value).strip()


def read_query_examples(source: str | Place) -> list[QueryExample]:
    """Read queries, and the texts that they should find if a column of ``OF_EXAMPLES`` has them."""
    opened = open_source(source)
    examples = []
    for where, row, (name,) in with_names(opened, QUERY_COLUMNS):
        found = next((column for column in OF_EXAMPLES if column in row and column != name), None)
        text = column_text(row, found, where) if found else ""
        if query := column_text(row, name, where):
            examples.append(QueryExample(query, text))
    return list(at_least_one(examples, f"{opened.name} holds no queries"))
