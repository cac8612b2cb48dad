"""Passages (Q1), and which of the questions that were generated for them are kept (Q2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pairsmith.encoders.asker import Written
from pairsmith.records import Document, Reject, text_id
from pairsmith.runs.executors import Advance
from pairsmith.texts.places import find_answer
from pairsmith.texts.windows import windows


@dataclass(slots=True)
class Passage:
    """A passage, and what has been asked of it so far.

    Attributes:
        id: of the passage, from its text and where it begins there.
        text: the passage.
        found: by question without regard to case, its row.
        drawn: how many sequences were written.
    """

    id: str
    text: str
    found: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    drawn: int = 0


def unheard(tries: int) -> None:
    """Where nobody is shown the progress."""


class QuestionGenerator(Protocol):
    """What writes questions on passages, each with its answer.

    Passages are measured in its model's tokens, special ones not counted; without a model in words and marks.
    """

    @property
    def limit(self) -> int:
        """Tokens of a passage at most."""

    def length(self, text: str) -> int:
        """Tokens of a text."""

    def generate(self, passages: Sequence[Passage], advance: Advance = ...) -> list[Reject]:
        """Add questions to each passage; returns what was written and not kept.

        ``advance`` hears of tries as they are done, of ``options.tries`` for each passage.
        """


def cut(
    generator: QuestionGenerator, documents: Sequence[Document]
) -> tuple[list[list[Passage]], list[Reject]]:
    """The passages of each text (Q1), and as rejects those that the generator cannot read whole."""
    found: list[list[Passage]] = []
    rejects = []
    for document in documents:
        some = []
        for window in windows(document.document, generator.limit, generator.length):
            name = text_id(f"{window.start}:{document.document}")
            if generator.length(window.text) > generator.limit:
                row = {"context": window.text, "where": document.where}
                detail = f"a word of more than {generator.limit} tokens"
                rejects.append(Reject.of(name, "long passage", detail, row))
            else:
                some.append(Passage(name, window.text))
        found.append(some)
    return found, rejects


def _place(written: Written, passage: str) -> tuple[int, int] | None:
    """Where the answer stands."""
    if written.start is None:
        return find_answer(written.answer, passage)
    return written.start, written.start + len(written.answer)


def keep_all(passages: Sequence[Passage], written: Sequence[Sequence[Written]]) -> list[Reject]:
    """Add what was written to each passage's questions; returns what was not kept."""
    found = [keep(passage, each) for passage, some in zip(passages, written, strict=True) for each in some]
    return [reject for reject in found if reject]


def keep(passage: Passage, written: Written) -> Reject | None:
    """Add what was written to the passage's questions, or say why not."""
    name = f"{passage.id}-{passage.drawn}"
    passage.drawn += 1
    place = _place(written, passage.text)
    row = {
        "id": name,
        "context": passage.text,
        "question": written.question,
        "written": written.answer,
        "answers": {
            "text": [passage.text[slice(*place)]] if place else [],
            "answer_start": [place[0]] if place else [],
        },
    }
    if written.fault:
        return Reject.of(name, written.fault, "not an answer with its question", row)
    if written.question.casefold() in passage.found:
        return Reject.of(name, "duplicate", "asked before of this passage", row)
    passage.found[written.question.casefold()] = row
    return None
