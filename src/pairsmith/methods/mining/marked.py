"""Questions whose answers are marked in their texts, kept on disk where they may not fit into memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import pyarrow as pa

from pairsmith.data.squad import Answer, Question
from pairsmith.data.stored_rows import StoredRows

Marks = tuple[int, int]
"""The positions in a text of an answer's first and last characters, neither of which is white space."""

_SCHEMA = pa.schema(
    [("question", pa.string()), ("context", pa.string()), ("marks", pa.list_(pa.list_(pa.int64())))]
)
"""The context is null where it is that of the row before."""


@dataclass(frozen=True, slots=True)
class MarkedQuestion:
    """A question on a text, and the marks of its answers; the first that can be read is learned."""

    question: str
    context: str
    marks: tuple[Marks, ...]

    @classmethod
    def of(cls, asked: Question) -> Self:
        """The question with the marks of its answers, without the white space around them."""
        return cls(asked.question, asked.context, tuple(map(marks_of, asked.answers)))


def marks_of(answer: Answer) -> Marks:
    """The positions of an answer's first and last characters; white space around it does not count."""
    first = answer.start + len(answer.text) - len(answer.text.lstrip())
    return first, answer.start + len(answer.text.rstrip()) - 1


class MarkedStore(Sequence[MarkedQuestion]):
    """Questions on disk; memory holds one number for each."""

    def __init__(self, asked: Iterable[MarkedQuestion]) -> None:
        """Write the questions to disk."""
        self._texts = array("q")  # of each question, the row with its text

        def rows() -> Iterator[dict[str, Any]]:
            before = None
            for each in asked:
                begins = before != each.context
                before = each.context
                self._texts.append(len(self._texts) if begins else self._texts[-1])
                yield {
                    "question": each.question,
                    "context": before if begins else None,
                    "marks": each.marks,
                }

        self._stored = StoredRows(rows(), _SCHEMA)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, number: int) -> MarkedQuestion: ...
    @overload
    def __getitem__(self, number: slice) -> list[MarkedQuestion]: ...
    def __getitem__(self, number: int | slice) -> MarkedQuestion | list[MarkedQuestion]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        row, text = self._stored[range(len(self))[number]], self._stored[self._texts[number]]
        return MarkedQuestion(row["question"], text["context"], tuple(map(tuple, row["marks"])))
