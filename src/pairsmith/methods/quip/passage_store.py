"""Passages with their questions on disk, as the training data of a student may not fit into memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.data.questions import DISTRIBUTION, Distribution
from pairsmith.data.stored_rows import StoredRows, StoredSequence
from pairsmith.methods.quip.distillation import LabelledQuestion, PassageExample
from pairsmith.runs.seeds import stream_key

_SCHEMA = pa.schema(
    [("text", pa.string()), ("question", pa.string()), ("starts", DISTRIBUTION), ("ends", DISTRIBUTION)]
)
"""A row is a question with its passage's text; the text is null if it equals that of the previous row."""


class PassageStore(StoredSequence[PassageExample]):
    """Passages in the order of their first occurrence, each with all its questions.

    Memory holds only a few numbers for each question.
    """

    def __init__(self, questions: Iterable[tuple[str, LabelledQuestion]]) -> None:
        """Write questions with their passages to disk; the questions of a passage need not be adjacent."""
        keys, text_rows = array("Q"), array("q")  # for each question, its passage's key and its text's row

        def rows() -> Iterator[dict[str, Any]]:
            for text, question in questions:
                key = stream_key(text)
                is_new = not keys or keys[-1] != key
                text_rows.append(len(keys) if is_new else text_rows[-1])
                keys.append(key)
                lists = {"starts": _lists(question.starts), "ends": _lists(question.ends)}
                yield {"text": text if is_new else None, "question": question.question, **lists}

        self._stored = StoredRows(rows(), _SCHEMA)
        all_keys = np.array(keys, np.uint64)
        _, first_question, key_index = np.unique(all_keys, return_index=True, return_inverse=True)
        by_occurrence = np.argsort(first_question)
        passage = np.argsort(by_occurrence)[key_index]  # of each question, numbered by first occurrence
        self._rows = np.argsort(passage, kind="stable")
        self._ends = np.cumsum(np.bincount(passage))
        self._text_of = np.array(text_rows, np.int64)[first_question[by_occurrence]]

    @property
    def questions(self) -> int:
        """The number of questions of all passages."""
        return len(self._rows)

    def only(self, kept: NDArray[np.bool_]) -> "PassageStore":
        """A copy with some of the questions, and the passages that still have questions.

        ``kept``, ``(questions,)``, says for each question whether it is kept, passage by passage.
        """
        store = copy(self)
        sizes = np.diff(self._ends, prepend=0)
        left = np.bincount(np.repeat(np.arange(len(self)), sizes)[kept], minlength=len(self))
        store._rows = self._rows[kept]
        store._ends = np.cumsum(left[left > 0])
        store._text_of = self._text_of[left > 0]
        return store

    def __len__(self) -> int:
        return len(self._ends)

    def item(self, number: int) -> PassageExample:
        """Read one item from the disk."""
        begin = self._ends[number - 1] if number else 0
        rows = self._rows[begin : self._ends[number]].tolist()
        return PassageExample(
            self._stored[int(self._text_of[number])]["text"],
            [
                LabelledQuestion(row["question"], _distribution(row["starts"]), _distribution(row["ends"]))
                for row in map(self._stored.__getitem__, rows)
            ],
        )


def _lists(distribution: Distribution | None) -> dict[str, Sequence[float]] | None:
    if distribution is None:
        return None
    return {"position": distribution.positions, "probability": distribution.probabilities}


def _distribution(lists: dict[str, Any] | None) -> Distribution | None:
    if lists is None:
        return None
    return Distribution(tuple(lists["position"]), tuple(lists["probability"]))
