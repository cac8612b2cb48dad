"""Seeds: human-labelled pairs of an input and an output, for each kind of task."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from pairsmith.core.errors import InputError
from pairsmith.data.documents import read_summarised
from pairsmith.data.readers import at_least_one, graded_rows, read_inputs_and_outputs
from pairsmith.data.sources import Columns, Source, open_source
from pairsmith.data.squad import Question, open_questions, read_questions

T = TypeVar("T")

ExampleKind = Literal["pairs", "reading", "summaries", "scored"]
"""pairs: any two texts; reading: a question, and an answer in a passage; summaries: a document and its
summary; scored: two texts and a score of how well they match."""

_SUMMARIES = (
    "the kind summaries needs the columns document and summary, so rename those that hold the documents and "
    "their summaries"
)

_PAIRS = (
    "rename those that hold them to these names, or choose another kind: reading for questions with answers, "
    "summaries for documents with summaries"
)

_FAULTS = 5
"""Largest number of faulty rows that an error message lists."""

FEW = 10
"""With fewer seeds than this, a training reports that they are hardly enough to learn from."""


@dataclass(frozen=True, slots=True)
class Example:
    """A seed: an input and the output that belongs to it."""

    input: str  # a question, a document, or any text
    output: str  # an answer and its passage as one text (``answer_in_passage``), a summary, or any text
    # The next three are set only for the kind ``reading``.
    context: str | None = None  # the passage
    answer: str | None = None
    answer_start: int | None = None  # the offset of the answer in the passage, in characters
    score: float = 1.0  # how well input and output match, from 0 to 1


def answer_in_passage(answer: str, passage: str) -> str:
    """An answer and its passage as one text, as encoders read it (M7)."""
    return f"{answer}: {passage}"


def example_of(question: Question) -> Example:
    """The example of the kind ``reading`` for a question and its first answer, which it needs."""
    answer = question.answers[0]
    output = answer_in_passage(answer.text, question.context)
    return Example(question.question, output, question.context, answer.text, answer.start)


def read_examples(source: str, kind: ExampleKind) -> list[Example]:
    """The examples in a file, dataset folder or Hub data set, without duplicates, in order.

    The rows are read by ``read_inputs_and_outputs`` for the kind ``pairs``, by ``read_questions`` for
    ``reading``, by ``read_summarised`` for ``summaries``, and by ``graded_rows`` for ``scored``. They are
    few, so that an ``InputError`` tells the faults of all of them.
    """
    return list(dict.fromkeys(at_least_one(all_examples(source, kind), f"{source} holds no examples")))


def all_examples(source: str, kind: ExampleKind) -> list[Example]:
    """The examples of ``read_examples`` with duplicates."""
    opening = open_questions if kind == "reading" else open_source
    return _all_items(source, opening, lambda opened: iter_examples(opened, kind))


def all_questions(source: str, *, unanswered: bool = False) -> list[Question]:
    """The questions of ``read_questions``; they are few, so an ``InputError`` tells all faulty rows."""
    return _all_items(source, open_questions, partial(read_questions, unanswered=unanswered))


def _all_items(
    source: str, opening: Callable[[str], Source], read: Callable[[str | Source], Iterable[T]]
) -> list[T]:
    """The items that ``read`` yields; if several rows have a fault, one ``InputError`` tells all faults.

    ``opening`` opens the source by its name, so that ``read`` can be called with single rows of it.
    """
    try:
        return list(read(source))
    except InputError:
        opened = opening(source)
        rows: list[tuple[str, Columns]] = []
        with suppress(InputError):  # the file itself is damaged further on
            for row in opened.rows():
                rows.append(row)

        def fault(*sample: tuple[str, Columns]) -> str:
            try:
                list(read(Source(opened.name, lambda: iter(sample))))
            except InputError as error:
                return str(error)
            return ""

        # The names of the columns are those of a first row without a fault.
        first = next((row for row in rows if not fault(row)), None)
        faults = [text for row in rows if (text := fault(first, row))] if first else []
        if len(faults) < 2:
            raise
        more = f"\nand {len(faults) - _FAULTS:,} more" if len(faults) > _FAULTS else ""
        lines = "\n".join(faults[:_FAULTS])
        raise InputError(f"{len(faults):,} of {len(rows):,} rows have a fault:\n{lines}{more}") from None


def iter_examples(source: str | Source, kind: ExampleKind) -> Iterator[Example]:
    """The examples of ``read_examples``, one at a time and with duplicates."""
    if kind == "reading":
        yield from map(example_of, read_questions(source))
    elif kind == "summaries":
        yield from summary_examples(source)
    elif kind == "scored":
        for where, _, pair in graded_rows(open_source(source)):
            if not 0 <= pair.score <= 1:
                raise InputError(
                    f"{where}: the score is {pair.score:g}; scores have to lie between 0 "
                    "and 1: divide scores on another scale by the highest score of that scale"
                )
            yield Example(pair.sentence1, pair.sentence2, score=pair.score)
    else:
        for pair in read_inputs_and_outputs(source, remedy=_PAIRS):
            yield Example(pair.sentence1, pair.sentence2, score=pair.score)


def summary_examples(
    source: str | Source, on_blank: Callable[[str], object] | None = None
) -> Iterator[Example]:
    """Documents with their summaries; with ``on_blank``, rows without either are skipped, else refused.

    ``on_blank`` is called with the location of each of these rows.
    """
    if on_blank is None:
        documents = read_summarised(source, remedy=_SUMMARIES)
    else:
        documents = read_summarised(source, remedy=_SUMMARIES, on_blank=on_blank, on_blank_summary=on_blank)
    return (Example(document.text, document.summary) for document in documents)
