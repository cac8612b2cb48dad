"""Generated questions on passages (Q2), and a teacher's span distributions for their answers (Q3)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, verb_for
from pairsmith.core.paths import Place, place
from pairsmith.data.kept_columns import kept_values
from pairsmith.data.readers import column_text, pick_columns, refuse_half_characters, row_id
from pairsmith.data.schemas import ANSWERS, text_schema
from pairsmith.data.sources import Columns
from pairsmith.data.squad import (
    Question,
    answer_pairs,
    locate_answer,
    official,
    open_questions,
    question_column,
    questions_with_rows,
    read_questions,
)

DISTRIBUTION = pa.struct([("position", pa.list_(pa.int32())), ("probability", pa.list_(pa.float32()))])
"""Character positions in a passage, and the probability of each; all other positions have probability 0."""

GENERATED_QUESTION: pa.Schema = pa.schema(
    [*text_schema("id", "context", "question", "written"), ("answers", ANSWERS)]
)
"""``written`` is the generated answer; ``answers`` has its span in the passage, if it occurs there."""

RELABELLED: pa.Schema = pa.schema(
    [
        *GENERATED_QUESTION,
        ("written_answers", ANSWERS),
        ("confidence", pa.float32()),
        ("starts", DISTRIBUTION),
        ("ends", DISTRIBUTION),
    ]
)
"""``answers`` is the teacher's best span, and ``written_answers`` has the ``answers`` before relabelling.
``starts`` is the distribution of the position of the answer's first character, ``ends`` that of the position
after its last character."""

ANSWERED: pa.Schema = pa.schema(
    [
        *text_schema("id", "context", "question", "answer"),
        ("answer_start", pa.int64()),
        ("confidence", pa.float64()),
    ]
)
"""``answer`` is a model's answer, and ``answer_start`` the position of its first character in ``context``."""

Span = tuple[int, int]
"""The position of an answer's first character, and the position after its last."""

_KEYS = ("position", "probability")
_SLACK = 1e-3
"""Rounding error: the largest amount by which a sum of probabilities may exceed 1."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Character positions in a passage and the probability of each, above 0; their sum is at most 1."""

    positions: tuple[int, ...]
    probabilities: tuple[float, ...]

    def columns(self) -> Columns:
        """The value of a column of the type ``DISTRIBUTION``."""
        return {"position": self.positions, "probability": self.probabilities}


@dataclass(frozen=True, slots=True)
class GeneratedQuestion:
    """A question on a passage, generated or written by people."""

    id: str
    context: str
    question: str
    generated_answer: str  # stored in the column ``written``
    # The span of the answer: the teacher's best span or, before relabelling, the span of the generated
    # answer; None if the generated answer does not occur in the passage.
    answer: Span | None
    # The span of the generated answer, which relabelling does not change; None if it does not occur in the
    # passage. Stored in the column ``written_answers``.
    generated_span: Span | None
    # The teacher's distributions of the answer's start and of its end; None before relabelling.
    starts: Distribution | None = None
    ends: Distribution | None = None
    confidence: float | None = None  # the teacher's probability of its best span, in [0, 1]
    kept: Mapping[str, str | None] = field(default_factory=dict)  # the columns to keep, as text

    def distributions(self) -> tuple[Distribution, Distribution]:
        """The teacher's distributions of the answer's start and of its end.

        Raises:
            InputError: the question has not been relabelled by a teacher.
        """
        if self.starts is None or self.ends is None:
            raise InputError(
                f"question {self.id}: has no distributions of a teacher; make them with relabel (in "
                "Python: label_questions), or set labels to answers, to learn from its answer"
            )
        return self.starts, self.ends

    @property
    def answer_text(self) -> str:
        """The text of the span ``answer``; empty if it is None."""
        return self.context[slice(*self.answer)] if self.answer else ""

    def columns(self) -> dict[str, Any]:
        """The question as a row: of ``RELABELLED`` if a teacher has answered, else of ``GENERATED_QUESTION``.

        The columns to keep follow ``answers``.
        """
        row = {
            "id": self.id,
            "context": self.context,
            "question": self.question,
            "written": self.generated_answer,
            "answers": self._answers(self.answer),
            **self.kept,
        }
        if self.starts is None or self.ends is None:
            return row
        return {
            **row,
            "written_answers": self._answers(self.generated_span),
            "confidence": self.confidence,
            "starts": self.starts.columns(),
            "ends": self.ends.columns(),
        }

    def _answers(self, span: Span | None) -> dict[str, list[Any]]:
        """The value of a column of the type ``ANSWERS`` for a span."""
        if span is None:
            return {"text": [], "answer_start": []}
        return {"text": [self.context[slice(*span)]], "answer_start": [span[0]]}


def read_generated_questions(
    source: str | Place, keep: Mapping[str, str] | None = None, *, with_answers: bool = False
) -> Iterator[GeneratedQuestion]:
    """Read questions on passages: rows of ``ask`` or ``relabel``, or questions by people, as in SQuAD.

    A question without an id gets one that is computed from its text and its passage. If an answer does not
    stand at its stated offset, its first occurrence in the passage is used. Of an official file, questions
    without an answer are left out; ``say_left_out`` says how many.

    Args:
        source: an official SQuAD file; or rows in any other format with the columns context, question
            (input in rows of ``mine``) and answers, and, if a teacher has read them, starts and ends.
        keep: as for ``read_documents``.
        with_answers: whether the rows need a column answers; a row may still have no answer.
    """
    if file := official(place(source)):
        return (
            _of_people(question, kept_values(row, keep or {}, where))
            for question, where, row in questions_with_rows(file)
        )
    opened = open_questions(source)
    rows = _with_column_answers(opened.rows(), opened.name) if with_answers else opened.rows()
    return generated_questions_in(rows, keep or {})


def say_left_out(sources: Iterable[str], say: Callable[[str], None]) -> None:
    """Say how many questions ``read_generated_questions`` leaves out, if it leaves out any."""
    files = filter(None, (official(place(source)) for source in sources))
    questions = [question for file in files for question in read_questions(file, unanswered=True)]
    if left_out := sum(not question.answers for question in questions):
        say(
            f"{left_out:,} of {len(questions):,} questions in SQuAD's official files "
            f"{verb_for(left_out, 'have')} no answer and {verb_for(left_out, 'are')} left out"
        )


def _with_column_answers(rows: Iterable[tuple[str, Columns]], source: str) -> Iterator[tuple[str, Columns]]:
    """The rows, unchanged; an ``InputError`` if the first of them has no column ``answers``."""
    for number, (where, row) in enumerate(rows):
        if not number:
            pick_columns(row, (["context"], [question_column(row)], ["answers"]), source)
        yield where, row


def _of_people(question: Question, kept: Mapping[str, str | None]) -> GeneratedQuestion:
    first = question.answers[0]
    span = first.start, first.start + len(first.text)
    return GeneratedQuestion(
        question.id, question.context, question.question, first.text, span, span, kept=kept
    )


def generated_questions_in(
    rows: Iterable[tuple[str, Columns]], keep: Mapping[str, str]
) -> Iterator[GeneratedQuestion]:
    """The questions of ``rows``, each given with its location; ``keep`` is as for ``read_documents``."""
    context_name = question_name = ""
    for where, row in rows:
        if not question_name:
            context_name, question_name = pick_columns(row, (["context"], [question_column(row)]), where)
        context, question = str(row.get(context_name) or ""), column_text(row, question_name, where)
        if not column_text(row, context_name, where) or not question:
            raise InputError(f"{where}: the question or its context is blank; fill it in or drop the row")
        answer = _answer(row, "answers", context, where)
        written = str(row.get("written") or (context[slice(*answer)] if answer else ""))
        refuse_half_characters(written, "written", where)
        yield GeneratedQuestion(
            row_id(row, question + context, where),
            context,
            question,
            written,
            answer,
            _generated_span(row, answer, context, where),
            _distribution(row, "starts", context, where),
            _distribution(row, "ends", context, where),
            kept=kept_values(row, keep, where),
        )


def _generated_span(row: Columns, answer: Span | None, context: str, where: str) -> Span | None:
    """The span of the generated answer; None if it does not occur in the passage."""
    if "written_answers" in row:
        return _answer(row, "written_answers", context, where)
    written = str(row.get("written") or "")
    if row.get("starts") is None or not written:
        return answer
    start = context.find(written)  # rows of another program may have the generated answer without its span
    return None if start < 0 else (start, start + len(written))


def _answer(row: Columns, column: str, context: str, where: str) -> Span | None:
    """The span of the first answer in a column; None if the column has no answer."""
    for text, start in answer_pairs(row.get(column), where):
        answer = locate_answer(text, start, context, where)
        return answer.start, answer.start + len(answer.text)
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
        raise InputError(f"{where}: {name}.position has decimal places; expected whole numbers of characters")
    if len(positions) != len(probabilities):
        raise InputError(
            f"{where}: {name} has {len(positions)} positions and {len(probabilities)} probabilities; each "
            "position needs one probability"
        )
    if any(not 0 <= position <= len(context) for position in positions):
        raise InputError(
            f"{where}: a position of {name} lies outside the context, which has {len(context)} characters"
        )
    if not all(probability > 0 for probability in probabilities) or sum(probabilities) > 1 + _SLACK:
        raise InputError(
            f"{where}: the probabilities of {name} are {list(probabilities)}; each has to be above 0, and "
            "their sum at most 1"
        )
    return Distribution(tuple(map(int, positions)), probabilities)


def _numbers(value: Any, where: str) -> tuple[float, ...]:
    are_numbers = isinstance(value, list) and all(
        isinstance(number, int | float) and not isinstance(number, bool) and -math.inf < number < math.inf
        for number in value
    )
    if not are_numbers:
        raise InputError(f"{where}: a list of numbers is expected, found {str(value)[:40]}")
    return tuple(value)
