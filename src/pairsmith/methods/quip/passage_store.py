"""Passages with their questions, kept on disk, as a student's training data may not fit into memory."""

import shutil
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import StorageError, first_line
from pairsmith.data.questions import DISTRIBUTION, Distribution
from pairsmith.methods.quip.distillation import Asked, PassageExample
from pairsmith.runs.seeds import stream_key

_TOGETHER = 4_096
"""Rows in a record batch."""

_PASSAGE = pa.schema([("text", pa.string())])
_QUESTION = pa.schema([("question", pa.string()), ("starts", DISTRIBUTION), ("ends", DISTRIBUTION)])


class PassageStore(Sequence[PassageExample]):
    """Passages in the order of their first occurrence, each with all its questions.

    They are kept in a temporary folder, which is deleted with this object; memory holds only a few numbers
    for each question.
    """

    def __init__(self, asked: Iterable[tuple[str, Asked]]) -> None:
        """Write passages and questions to disk.

        Args:
            asked: passages with questions; those of the same passage need not be adjacent.
        """
        folder = Path(tempfile.mkdtemp(prefix="pairsmith-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        keys, texts = array("Q"), array("q")
        self._texts = _Rows(folder / "passages.arrow", _PASSAGE)
        self._questions = _Rows(folder / "questions.arrow", _QUESTION)
        for text, question in asked:
            key = stream_key(text)
            if not keys or keys[-1] != key:
                self._texts.append({"text": text})
            keys.append(key)
            texts.append(self._texts.count - 1)
            self._questions.append(_row(question))
        self._texts.close()
        self._questions.close()
        _, first, passage = np.unique(np.array(keys, np.uint64), return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.argsort(order)[passage]  # each question's passage, numbered by first occurrence
        self._rows = np.argsort(numbers, kind="stable")
        self._ends = np.cumsum(np.bincount(numbers))
        self._text_of = np.array(texts, np.int64)[first[order]]
        self._whole: PassageStore | None = None

    @property
    def questions(self) -> int:
        """The number of questions of all passages."""
        return len(self._rows)

    def only(self, kept: NDArray[np.bool_]) -> "PassageStore":
        """A copy with some of the questions, without passages that have none left.

        Args:
            kept: whether each question stays, passage by passage.
        """
        found = copy(self)
        found._whole = self  # which keeps the files
        sizes = np.diff(self._ends, prepend=0)
        left = np.bincount(np.repeat(np.arange(len(self)), sizes)[kept], minlength=len(self))
        found._rows = self._rows[kept]
        found._ends = np.cumsum(left[left > 0])
        found._text_of = self._text_of[left > 0]
        return found

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> PassageExample: ...
    @overload
    def __getitem__(self, number: slice) -> list[PassageExample]: ...
    def __getitem__(self, number: int | slice) -> PassageExample | list[PassageExample]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        begin = self._ends[number - 1] if number else 0
        rows = self._rows[begin : self._ends[number]].tolist()
        text: str = self._texts.row(int(self._text_of[number]))["text"]
        return PassageExample(text, [_asked(self._questions.row(row)) for row in rows])


class _Rows:
    """Rows of an Arrow file: first appended, then, once it is closed, read through a memory map."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.count = 0
        self._path, self._schema = path, schema
        with _writing(path):
            self._writer = pa.ipc.new_file(str(path), schema)
        self._waiting: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def append(self, row: dict[str, Any]) -> None:
        self.count += 1
        self._waiting.append(row)
        if len(self._waiting) == _TOGETHER:
            self._write()

    def close(self) -> None:
        self._write()
        with _writing(self._path):
            self._writer.close()
        reader = pa.ipc.open_file(pa.memory_map(str(self._path)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def row(self, number: int) -> dict[str, Any]:
        batch = self._batches[number // _TOGETHER]
        found: dict[str, Any] = batch.slice(number % _TOGETHER, 1).to_pylist()[0]
        return found

    def _write(self) -> None:
        if self._waiting:
            with _writing(self._path):
                self._writer.write_batch(pa.RecordBatch.from_pylist(self._waiting, schema=self._schema))
            self._waiting = []


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot keep the questions in {path.parent}: {first_line(error)}; set TMPDIR to a disk with room"
        ) from error


def _row(asked: Asked) -> dict[str, Any]:
    return {"question": asked.question, "starts": _lists(asked.starts), "ends": _lists(asked.ends)}


def _lists(distribution: Distribution | None) -> dict[str, Sequence[float]] | None:
    if distribution is None:
        return None
    return {"position": distribution.positions, "probability": distribution.probabilities}


def _asked(row: dict[str, Any]) -> Asked:
    return Asked(row["question"], _distribution(row["starts"]), _distribution(row["ends"]))


def _distribution(lists: dict[str, Any] | None) -> Distribution | None:
    if lists is None:
        return None
    return Distribution(tuple(lists["position"]), tuple(lists["probability"]))
