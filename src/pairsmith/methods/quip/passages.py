"""Passages (Q1), and which of the answers and questions that are generated for them are kept (Q2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pairsmith.data.documents import Document
from pairsmith.data.filters import DUPLICATE, TOO_LONG
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import Reject
from pairsmith.data.text.spans import find_answer
from pairsmith.data.text.windows import is_within, windows
from pairsmith.metrics.squad import f1
from pairsmith.models.language.faults import TextFault
from pairsmith.models.question_generator import WrittenQuestion
from pairsmith.runs.work import Advance

NOT_CHOSEN: TextFault = ("not chosen", "answers that differ more from each other were chosen")
"""The reason for rejecting the answers that are not chosen."""


@dataclass(slots=True)
class Passage:
    """A passage, and the questions that were generated for it so far.

    The ``id`` is ``passage_id`` of the document's text and the offset of the passage in it. ``kept`` holds
    the columns that are copied from the document. ``questions`` holds the accepted questions by their
    case-folded text, ``rejects`` the outputs that were not accepted. ``outputs`` counts both.
    """

    id: str
    text: str
    kept: Mapping[str, str | None] = field(default_factory=dict)
    questions: dict[str, GeneratedQuestion] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    outputs: int = 0

    @property
    def is_new(self) -> bool:
        """Whether nothing was generated for the passage yet, neither questions nor rejects."""
        return not (self.questions or self.rejects)

    def missing(self, questions: int) -> range:
        """The numbers of the outputs that must be drawn for the passage to get this many questions."""
        return range(self.outputs, self.outputs + max(0, questions - len(self.questions)))


def passage_id(start: int, text: str) -> str:
    """The id of the passage that begins at the character ``start`` of a text."""
    return text_id(f"{start}:{text}")


class QuestionGenerator(Protocol):
    """Generates questions on passages, each with its answer.

    Lengths are in tokens of the model, without special ones; without a model, in words and punctuation marks.
    """

    @property
    def limit(self) -> int:
        """The longest passage, in tokens."""

    @property
    def tries(self) -> int:
        """The number of tries for each passage, see ``generate``."""

    def length(self, text: str) -> int:
        """The number of tokens in a text."""

    def generate(self, passages: Sequence[Passage], advance: Advance = ...) -> None:
        """Add the generated questions to each passage, and outputs that are not kept to its rejects.

        ``advance`` is called with the number of finished tries; each passage has ``tries``.
        """


def cut_passages(
    generator: QuestionGenerator, documents: Sequence[Document]
) -> tuple[list[list[Passage]], list[Reject]]:
    """Cut documents into passages (Q1); a word that alone exceeds the generator's limit becomes a reject."""
    passages: list[list[Passage]] = []
    rejects = []
    for document in documents:
        of_document = []
        for window in windows(document.text, generator.limit, generator.length):
            name = passage_id(window.start, document.text)
            if not is_within(window.text, generator.limit, generator.length):
                row = {"context": window.text, "where": document.where, **document.kept}
                detail = f"a word of more than {generator.limit} tokens"
                rejects.append(Reject.of(name, TOO_LONG, detail, row))
            else:
                of_document.append(Passage(name, window.text, document.kept))
        passages.append(of_document)
    return passages, rejects


def diverse(answers: Sequence[str], count: int) -> list[int]:
    """The indices of up to ``count`` answers that differ as much as possible, in the order of choice (Q2).

    The first answer is chosen first. Then, repeatedly, the answer is chosen whose largest F1 with any chosen
    answer is smallest; among equals, the first one. Empty and repeated answers are skipped.
    """
    seen: set[str] = set()
    remaining: list[int] = []
    for place, answer in enumerate(answers):
        if answer and answer.casefold() not in seen:
            seen.add(answer.casefold())
            remaining.append(place)
    selection: list[int] = []

    def largest_f1(place: int) -> float:
        return f1(answers[place], [answers[other] for other in selection]) if selection else 0.0

    while remaining and len(selection) < count:
        most_different = min(remaining, key=largest_f1)
        remaining.remove(most_different)
        selection.append(most_different)
    return selection


def keep_all(passages: Sequence[Passage], written: Sequence[Sequence[WrittenQuestion]]) -> None:
    """Add the generated questions to their passages; faulty and repeated ones become rejects."""
    for passage, questions in zip(passages, written, strict=True):
        for output in questions:
            name = f"{passage.id}-{passage.outputs}"
            passage.outputs += 1
            if output.start is None:
                place = find_answer(output.answer, passage.text)
            else:
                place = output.start, output.start + len(output.answer)
            question = GeneratedQuestion(
                name, passage.text, output.question, output.answer, place, place, kept=passage.kept
            )
            fault = output.fault
            if not fault and output.question.casefold() in passage.questions:
                fault = DUPLICATE, "the passage already has this question"
            if fault:
                passage.rejects.append(Reject.of(name, *fault, question.columns()))
            else:
                passage.questions[output.question.casefold()] = question
