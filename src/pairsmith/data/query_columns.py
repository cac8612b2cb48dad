"""Names of columns that may hold queries and the texts that answer them; the first that exists is read."""

from collections.abc import Sequence

from pairsmith.core.errors import InputError
from pairsmith.data.readers import RENAME, column_text, find_column, pick_column
from pairsmith.data.sources import Columns

QUERY_COLUMNS = ("query", "question", "anchor", "input", "sentence1")
QUERIES_ALONE = (*QUERY_COLUMNS, "text", "sentence")
"""For files of queries that may come without texts that answer them."""
POSITIVES = ("positive", "context", "passage", "document", "output", "sentence2", "pos", "positives")
PASSAGES = ("text", "positive", "passage", "context")
"""For files of texts that may answer a query; ``document`` may hold the name of what they are parts of."""


def column_texts(row: Columns, name: str, where: str) -> Sequence[str]:
    """The text in a column, or the texts of a list; at least one, which may be blank."""
    value = row.get(name)
    if isinstance(value, list | tuple):
        return [column_text({name: item}, name, where) for item in value] or [""]
    return [column_text(row, name, where)]


def positive_column(row: Columns, query: str) -> str | None:
    """The column with the texts that answer the queries in the column ``query``; None if there is none."""
    return find_column(row, _positives_beside(query))


def _positives_beside(query: str) -> Sequence[str]:
    """The columns in which answers are looked for when the queries are in the column ``query``."""
    return [name for name in POSITIVES if name != query.casefold()]


def pick_pair(
    row: Columns,
    source: str,
    *,
    query: str | None = None,
    positive: str | None = None,
    remedy: str = RENAME,
) -> tuple[str, str]:
    """The columns of a query and of a text that answers it, in the first row of a source.

    Pairs of sentences with a grade are refused, unless their columns are given: of some of them the second
    sentence is no answer to the first. ``remedy`` is as for ``pick_column``.
    """
    query_column = pick_column(row, [query] if query else QUERY_COLUMNS, source, remedy)
    wanted = [positive] if positive else _positives_beside(query_column)
    right = pick_column(row, wanted, source, remedy)
    graded = [name for name in row if name.casefold() in ("score", "label")]
    if not positive and right.casefold() == "sentence2" and graded:
        raise InputError(
            f"{source} has a column {graded[0]}, so not all of its pairs belong together; keep those that do "
            "and drop the column, or name the columns query and positive"
        )
    return query_column, right
