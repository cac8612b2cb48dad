"""Reading pairs of a query and a text that answers it (for the file formats, see ``sources``)."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairsmith.data.documents import with_title
from pairsmith.data.query_columns import column_texts, pick_pair
from pairsmith.data.readers import column_text, find_column, own_id, title_of
from pairsmith.data.sources import open_source

_NAME_COLUMNS = "name the columns with the texts with --query-column and --positive-column"
ID_COLUMNS = ("query_id", "query-id", "qid")


@dataclass(frozen=True, slots=True)
class QueryPair:
    """A query and a text that answers it, its positive, stripped of white space; either may be empty."""

    query: str
    positive: str
    whole: str  # the positive with its title, if it has one, on a line before it
    query_id: str  # empty if the row has none
    where: str  # the location of the row, e.g. ``pairs.jsonl:12``


def read_query_pairs(
    source: str, *, query_column: str | None = None, positive_column: str | None = None
) -> Iterator[QueryPair]:
    """Read pairs one at a time; a row whose positive is a list yields one pair for each text in the list.

    ``source`` is as for ``read_texts``; a file needs a header. By default the query is read from the first of
    ``QUERY_COLUMNS`` that exists, and the positive from the first of ``POSITIVES``.
    """
    opened = open_source(source)
    names: tuple[str, str, str | None] | None = None
    for where, row in opened.rows():
        if names is None:
            both = pick_pair(
                row, opened.name, query=query_column, positive=positive_column, remedy=_NAME_COLUMNS
            )
            names = *both, find_column(row, ID_COLUMNS)
        query_id = own_id(row, where, names[2]) if names[2] else ""
        title = title_of(row, where)
        for text in column_texts(row, names[1], where):
            titled = with_title(title, text) if text else ""
            yield QueryPair(column_text(row, names[0], where), text, titled, query_id, where)
