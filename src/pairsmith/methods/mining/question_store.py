"""Questions with the spans of their answers, which are kept on disk if they may not fit into memory."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from pairsmith.data.squad import Answer, Question
from pairsmith.data.stored_rows import StoredRows, StoredSequence

InclusiveSpan = tuple[int, int]
"""The positions of an answer's first and last characters in a text, neither of which is white space."""

_SCHEMA = pa.schema(
    [("question", pa.string()), ("context", pa.string()), ("spans", pa.list_(pa.list_(pa.int64())))]
)
"""The schema of stored questions; a context is null if it equals the context of the previous row."""


@dataclass(frozen=True, slots=True)
class QuestionWithSpans:
    """A question on a text, and the spans of its answers; training uses the first one inside a window."""

    question: str
    context: str
    spans: tuple[InclusiveSpan, ...]

    @classmethod
    def of(cls, question: Question) -> Self:
        """The question with the spans of its answers, without the white space around them."""
        return cls(question.question, question.context, tuple(map(span_of, question.answers)))


def span_of(answer: Answer) -> InclusiveSpan:
    """The positions of an answer's first and last characters; white space around it does not count."""
    first = answer.start + len(answer.text) - len(answer.text.lstrip())
    return first, answer.start + len(answer.text.rstrip()) - 1


class StoredQuestions(StoredSequence[QuestionWithSpans]):
    """Questions on disk; memory holds one number for each."""

    def __init__(self, questions: Iterable[QuestionWithSpans]) -> None:
        """Write the questions to disk."""
        self._texts = array("q")  # for each question, the number of the row that holds its text

        def rows() -> Iterator[dict[str, Any]]:
            previous = None
            for question in questions:
                is_new = previous != question.context
                previous = question.context
                self._texts.append(len(self._texts) if is_new else self._texts[-1])
                yield {
                    "question": question.question,
                    "context": question.context if is_new else None,
                    "spans": question.spans,
                }

        self._stored = StoredRows(rows(), _SCHEMA)

    def __len__(self) -> int:
        return len(self._texts)

    def item(self, number: int) -> QuestionWithSpans:
        """Read one item from the disk."""
        row, text = self._stored[number], self._stored[self._texts[number]]
        return QuestionWithSpans(row["question"], text["context"], tuple(map(tuple, row["spans"])))
