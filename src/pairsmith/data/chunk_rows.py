"""Reading chunks of documents, each with its neighbouring chunks, and reading example queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from pairsmith.core.paths import Place
from pairsmith.data.documents import Document, read_titled
from pairsmith.data.query_columns import PASSAGES, QUERIES_ALONE, column_texts, positive_column
from pairsmith.data.readers import NAME_COLUMN, NAME_TEXTS, at_least_one, column_text, with_names
from pairsmith.data.sources import Source, open_source


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk, which is a part of a document, with the texts of the chunks before and after it."""

    id: str  # the id in the chunk's row or, without one, the id of its text
    title: str  # empty if there is none
    text: str
    neighbours: tuple[str, ...] = ()  # at most two texts; none if the chunk's document is not known


@dataclass(frozen=True, slots=True)
class QueryExample:
    """An example query and the text that answers it, which is empty if it is not known."""

    query: str
    text: str


def read_chunks(source: str | Place, column: str | None = None) -> Iterator[ChunkRow]:
    """Read chunks one at a time, in order; rows without text are skipped.

    Consecutive rows with the same value in the column ``document`` are neighbours.

    Args:
        source: as for ``read_texts``, or a corpus in BEIR's layout (``_id``, ``title``, ``text``).
        column: the column with the texts; for the default see ``read_passages``.
    """
    opened = open_source(source)
    rows = at_least_one(read_passages(opened, column, NAME_COLUMN), f"{opened.name} holds no texts")
    previous: Document | None = None
    for chunk, following in pairwise(chain[Document | None](rows, [None])):
        assert chunk is not None  # only the last item is None
        neighbours = [
            other.text for other in (previous, following) if other and chunk.part_of == other.part_of != ""
        ]
        yield ChunkRow(chunk.id, chunk.title, chunk.text, tuple(neighbours))
        previous = chunk


def read_passages(
    source: str | Place | Source, column: str | None = None, remedy: str = NAME_TEXTS
) -> Iterator[Document]:
    """Read the texts that may answer a query, one at a time; rows without text are skipped.

    Args:
        source: as for ``read_chunks``.
        column: the column with the texts; by default the first of ``PASSAGES`` and ``DOCUMENT_COLUMNS``
            that exists.
        remedy: as for ``pick_column``.
    """
    return (row for row in read_titled(source, column=column, prefer=PASSAGES, remedy=remedy) if row.text)


def read_query_examples(source: str | Place) -> list[QueryExample]:
    """Read example queries, with the texts that answer them if the source has a column of ``POSITIVES``.

    Rows without a query are skipped.
    """
    opened = open_source(source)
    examples = []
    for where, row, (name,) in with_names(opened, QUERIES_ALONE):
        column = positive_column(row, name)
        text = column_texts(row, column, where)[0] if column else ""
        if query := column_text(row, name, where):
            examples.append(QueryExample(query, text))
    return list(at_least_one(examples, f"{opened.name} holds no queries"))
