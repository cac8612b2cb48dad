"""Reading the training examples of a retriever: a query, a text that answers it, and texts that do not.

The query and its positive are in columns that ``query_columns`` names; the positive's title, if it has one,
is in the column title; the negatives are in the columns negative, negative_1, negative_2, … or in a list
negatives; and a judge's scores are in the columns scores, score or label.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairsmith.core.errors import InputError, counted
from pairsmith.data.documents import with_title
from pairsmith.data.query_columns import column_texts, pick_pair
from pairsmith.data.readers import at_least_one, column_text, title_of, two_texts
from pairsmith.data.sources import Columns, Source, open_source

_SCORES = ("scores", "score", "label")
_NEGATIVE = re.compile(r"negatives?|negative_(\d+)")


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query, a positive, which answers it, with its title if it has one, and negatives, which do not.

    ``scores`` has a judge's scores of the positive and then of each negative: how well the text answers the
    query. Any scale is allowed, as only differences of scores are used. Without a judge it is empty.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


def read_tuples(source: str, *, scored: bool = False) -> Iterator[RetrievalExample]:
    """Read examples from a file, dataset folder or Hub data set one at a time; blank negatives are left out.

    With ``scored``, each row needs negatives and scores in one of these forms: the positive's score in the
    column score and a list of the negatives' scores in the column scores; one list of the scores of the
    positive and the negatives; or the positive's score minus that of each negative, as a list or, if there
    is one negative, as a number.
    """
    opened = open_source(source)
    return at_least_one(_examples(opened, scored), f"{opened.name} holds no examples")


def _examples(source: Source, scored: bool) -> Iterator[RetrievalExample]:
    names: tuple[str, str] | None = None
    for where, row in source.rows():
        names = names or pick_pair(row, source.name)
        for positive in column_texts(row, names[1], where):
            yield _example(row, where, names, positive, scored)


def _example(
    row: Columns, where: str, names: tuple[str, str], positive: str, scored: bool
) -> RetrievalExample:
    query, positive = two_texts({**row, names[1]: positive}, names, where)
    negatives = _negatives(row, where)
    kept = [number for number, text in enumerate(negatives) if text]
    if scored and not kept:
        raise InputError(
            f"{where}: the row has no negative, whose score could be learned; add one or drop the row"
        )
    scores = _scores(row, len(negatives), where) if scored else ()
    return RetrievalExample(
        query,
        with_title(title_of(row, where), positive),
        tuple(negatives[number] for number in kept),
        (scores[0], *(scores[1 + number] for number in kept)) if scored else (),
    )


def _negatives(row: Columns, where: str) -> list[str]:
    """The texts in the columns of negatives, in the order of the columns' numbers; a blank text is empty."""
    columns = [(int(match[1] or 0), name) for name in row if (match := _NEGATIVE.fullmatch(name))]
    texts: list[str] = []
    for _, name in sorted(columns):
        value = row[name]
        several = isinstance(value, Sequence) and not isinstance(value, str)
        texts += [column_text({name: text}, name, where) for text in (value if several else [value])]
    return texts


def _scores(row: Columns, negatives: int, where: str) -> tuple[float, ...]:
    """The scores of the positive and of each negative; ``negatives``, at least 1, is their number."""
    columns = {name: numbers for name in _SCORES if (numbers := _numbers(row.get(name), name, where))}
    if not columns:
        raise InputError(f"{where}: the row has no scores; expected a column scores, score or label")
    if len(columns.get("score", ())) == 1 and len(columns.get("scores", ())) == negatives:
        return (*columns["score"], *columns["scores"])
    name, numbers = next(iter(columns.items()))
    if len(numbers) == negatives + 1:
        return numbers
    if len(numbers) == negatives:  # the positive's score minus that of each negative
        return (0.0, *(-difference for difference in numbers))
    raise InputError(
        f"{where}: {name} has {counted(len(numbers), 'numbers')} and the row "
        f"{counted(negatives, 'negatives')}; expected the scores of the positive and of each negative, or "
        "the positive's score minus that of each negative"
    )


def _numbers(value: Any, name: str, where: str) -> tuple[float, ...]:
    """The number, or the list of numbers, in a column; empty if the value is null or blank."""
    if value is None or value == "":
        return ()
    try:
        numbers = tuple(float(number) for number in (value if isinstance(value, list | tuple) else [value]))
    except (OverflowError, TypeError, ValueError):
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise InputError(f"{where}: {name} is {str(value)[:40]!r}; expected a number or a list of numbers")
    return numbers
