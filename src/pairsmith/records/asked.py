"""Questions that a model asked of passages (Q2), and where a teacher finds their answers (Q3)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pairsmith.errors import InputError
from pairsmith.places import Place, place
from pairsmith.records.mrqa import one_a_row
from pairsmith.records.readers import column_text, pick_column
from pairsmith.records.schemas import ANSWERS
from pairsmith.records.sources import Columns, open_source
from pairsmith.records.squad import Question, answer_pairs, official, read_questions, standing

DISTRIBUTION = pa.struct([("position", pa.list_(pa.int32())), ("probability", pa.list_(pa.float32()))])
"""Places in a passage, in characters, and the probability of each; those left out have none."""

ASKED: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("context", pa.string()), ("question", pa.string()), ("written", pa.string()),
        ("answers", ANSWERS),
    ]
)  # fmt: skip
"""``written`` is the answer that the asker wrote; ``answers`` where it stands in the passage, if it does."""

RELABELLED: pa.Schema = pa.schema(
    [*ASKED, ("written_answers", ANSWERS), ("starts", DISTRIBUTION), ("ends", DISTRIBUTION)]
)
"""``answers`` is the teacher's best, ``written_answers`` what was ``answers`` before. ``starts``: where an
answer's first token begins; ``ends``: where its last token ends, the place behind its last character."""

Span = tuple[int, int]
"""The first character of an answer, and the place behind its last."""

_KEYS = ("position", "probability")
_SLACK = 1e-3
"""By which a sum of rounded probabilities may be above 1."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Places in a passage, in characters, and the probability of each, above 0; their sum is at most 1."""

    positions: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that was asked of a passage.

    Attributes:
        written: the answer as it was written.
        answer: first character of an answer and the place behind its last; None where what was written as
            one stands nowhere in the passage. A teacher puts its own in the place of the asker's.
        before: the one before the teacher's; the same where there was no teacher.
        starts: the teacher's; None where there was no teacher. Likewise ``ends``.
    """

    id: str
    context: str
    question: str
    written: str
    answer: Span | None
    before: Span | None
    starts: Distribution | None
    ends: Distribution | None


def read_asked(source: str | Place) -> Iterator[AskedQuestion]:
    """Read questions on passages: what ``ask`` or ``relabel`` wrote, or people's, in rows as SQuAD's.

    Args:
        source: an official SQuAD file, or rows in any other form with the columns context, question (input,
            as ``mine`` calls it) and answers, and, of a teacher, starts and ends. An answer that does not
            stand where it is said to is taken where it stands first.

    Raises:
        InputError: the source is not there (at once), or while reading: a column is missing, a text is blank,
            an answer does not stand in its passage, or a distribution is none.
    """
    if official(place(source)):
        return (_of_people(question) for question in read_questions(source))
    return asked_in(open_source(source).rows())


def _of_people(question: Question) -> AskedQuestion:
    first = question.answers[0]
    span = first.start, first.start + len(first.text)
    return AskedQuestion(question.id, question.context, question.question, first.text, span, span, None, None)


def asked_in(rows: Iterable[tuple[str, Columns]]) -> Iterator[AskedQuestion]:
    """The questions in rows, each with the place where it stood.

    Raises:
        InputError: as for ``read_asked``.
    """
    reads = asks = ""
    for number, (where, row) in enumerate(one_a_row(rows)):
        if not asks:
            reads = pick_column(row, ["context"], where)
            asks = pick_column(
                row, ["input" if "input" in row and "question" not in row else "question"], where
            )
        context, question = str(row.get(reads) or ""), column_text(row, asks, where)
        if not column_text(row, reads, where) or not question:
            raise InputError(f"{where}: the question or its context is blank; fill it in or drop the row")
        answer = _answer(row, "answers", context, where)
        yield AskedQuestion(
            str(row.get("id") or number),
            context,
            question,
            str(row.get("written") or (context[slice(*answer)] if answer else "")),
            answer,
            _before(row, answer, context, where),
            _distribution(row, "starts", context, where),
            _distribution(row, "ends", context, where),
        )


def _before(row: Columns, answer: Span | None, context: str, where: str) -> Span | None:
    """What was an answer before a teacher's took its place."""
    if "written_answers" in row:
        return _answer(row, "written_answers", context, where)
    written = str(row.get("written") or "")
    if row.get("starts") is None or not written:
        return answer
    first = context.find(written)  # rows of an earlier version say what was written, and not where
    return None if first < 0 else (first, first + len(written))


def _answer(row: Columns, column: str, context: str, where: str) -> Span | None:
    for text, start in answer_pairs(row.get(column), where):
        found = standing(text, start, context, where)
        return found.start, found.start + len(found.text)
    return None


def _distribution(row: Columns, name: str, context: str, where: str) -> Distribution | None:
    value: Any = row.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.keys() >= set(_KEYS):
        raise InputError(
            f"{where}: {name} has to be two lists, position and probability, as relabel writes them"
        )
    positions, probabilities = (_numbers(value[key], f"{where}: {name}.{key}") for key in _KEYS)
    if any(position != int(position) for position in positions):
        raise InputError(f"{where}: positions of {name} are whole numbers of characters")
    if len(positions) != len(probabilities):
        raise InputError(
            f"{where}: {name} has {len(positions)} positions and {len(probabilities)} probabilities"
        )
    if any(not 0 <= position <= len(context) for position in positions):
        raise InputError(
            f"{where}: a position of {name} lies outside the context, of {len(context)} characters"
        )
    if not all(probability > 0 for probability in probabilities) or sum(probabilities) > 1 + _SLACK:
        raise InputError(
            f"{where}: the probabilities of {name} are {list(probabilities)}; each has to be above 0, and "
            "their sum at most 1"
        )
    return Distribution(tuple(map(int, positions)), probabilities)


def _numbers(value: Any, where: str) -> tuple[float, ...]:
    known = isinstance(value, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in value
    )
    if not known:
        raise InputError(f"{where}: a list of numbers is expected, found {str(value)[:40]}")
    return tuple(value)
