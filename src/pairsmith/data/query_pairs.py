"""Reading pairs of a query and a text that answers it (formats: see ``sources``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairsmith.core.errors import InputError
from pairsmith.data.readers import column_text, pick_column
from pairsmith.data.sources import Columns, open_source

QUERY_COLUMNS = ("query", "question", "anchor", "input", "sentence1")
POSITIVE_COLUMNS = ("positive", "pos", "positives", "context", "passage", "document", "output", "sentence2")
ID_COLUMNS = ("query_id", "query-id", "qid")


@dataclass(frozen=True, slots=True)
class QueryPair:
    """A query and a text that answers it, stripped of white space; either may be empty."""

    query: str
    positive: str
    query_id: str  # empty where the row names none
    where: str  # its location, e.g. ``pairs.jsonl:12``


def read_query_pairs(
    source: str, *, query_column: str | None = None, positive_column: str | None = None
) -> Iterator[QueryPair]:
    """Read pairs one at a time; a row whose positive is a list makes a pair of each of its texts.

    ``source`` is as for ``read_texts``; a file needs a header. By default the columns are the first of
    ``QUERY_COLUMNS`` and of ``POSITIVE_COLUMNS`` that exist.
    """
    opened = open_source(source)
    names: tuple[str, str, str | None] | None = None
    for where, row in opened.rows():
        if names is None:
            query = pick_column(row, [query_column] if query_column else QUERY_COLUMNS, opened.name)
            others = [positive_column] if positive_column else [n for n in POSITIVE_COLUMNS if n != query]
            positive = pick_column(row, others, opened.name)
            if not positive_column:
                _refuse_graded(row, positive, opened.name)
            names = query, positive, next((name for name in ID_COLUMNS if name in row), None)
        given = row[names[2]] if names[2] and names[2] in row else None
        query_id = "" if given is None else str(given).strip()
        for text in _texts(row, names[1], where):
            yield QueryPair(column_text(row, names[0], where), text, query_id, where)


def _texts(row: Columns, name: str, where: str) -> Sequence[str]:
    value = row.get(name)
    if isinstance(value, list | tuple):
        return [column_text({name: item}, name, where) for item in value] or [""]
    return [column_text(row, name, where)]


def _refuse_graded(row: Columns, positive: str, source: str) -> None:
    """Refuse pairs of sentences with a grade: of some of them the second is no positive of the first."""
    graded = [name for name in row if name.casefold() in ("score", "label")]
    if positive.casefold() == "sentence2" and graded:
        raise InputError(
            f"{source} has a column {graded[0]}, so not all of its pairs belong together; keep those that do "
            "and drop the column, or give --positive-column"
        )
