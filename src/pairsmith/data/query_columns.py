"""Names of the columns with queries and with texts that answer them; the first that exists is read."""

from collections.abc import Sequence

from pairsmith.core.errors import InputError
from pairsmith.data.readers import RENAME, column_text, find_column, pick_column
from pairsmith.data.sources import Columns

QUERY_COLUMNS = ("query", "question", "anchor", "input", "sentence1")
QUERIES_ALONE = (*QUERY_COLUMNS, "text", "sentence")
"""Columns of queries in files that may have no column of texts that answer them."""
POSITIVES = (
    "positive", "context", "passage", "document", "output", "sentence2", "pos", "positives", "answer",
)  # fmt: skip
"""Columns of texts that answer the query in the same row.

``answer`` is last: beside a passage, it is a short answer that was taken from it.
"""
PASSAGES = ("text", "positive", "passage", "context")
"""Columns of texts in corpora to search. ``document`` is not among them: rows of chunks have a name there."""


def column_texts(row: Columns, name: str, where: str) -> Sequence[str]:
    """The text in a column, or the texts of a list: at least one text, which may be blank."""
    value = row.get(name)
    if isinstance(value, list | tuple):
        return [column_text({name: item}, name, where) for item in value] or [""]
    return [column_text(row, name, where)]


def positive_column(row: Columns, query: str) -> str | None:
    """The column with the texts that answer the queries in the column ``query``; None if there is none."""
    return find_column(row, _positives_beside(query))


def _positives_beside(query: str) -> Sequence[str]:
    """The columns that may hold the positives if the queries are in the column ``query``."""
    return [name for name in POSITIVES if name != query.casefold()]


def pick_pair(
    row: Columns, source: str, *, query: str | None = None, positive: str | None = None, remedy: str = RENAME
) -> tuple[str, str]:
    """The names of the columns with the query and with the text that answers it, in a source's first row.

    Pairs of sentences with a score or a label are refused, unless ``positive`` names the column: in some of
    these pairs the second sentence does not answer the first.

    Args:
        row: the first row of the source.
        source: the name of the source, for messages.
        query: the column with the queries; by default the first of ``QUERY_COLUMNS`` that exists.
        positive: the column with the positives; by default the first other of ``POSITIVES`` that exists.
        remedy: as for ``pick_column``.
    """
    query_column = pick_column(row, [query] if query else QUERY_COLUMNS, source, remedy)
    candidates = [positive] if positive else _positives_beside(query_column)
    positive_name = pick_column(row, candidates, source, remedy)
    graded = [name for name in row if name.casefold() in ("score", "label")]
    if not positive and positive_name.casefold() == "sentence2" and graded:
        raise InputError(
            f"{source} has a column {graded[0]}, so in some of its pairs sentence2 may not answer sentence1; "
            "keep the pairs in which it does and drop the column, or name the columns query and positive"
        )
    return query_column, positive_name
