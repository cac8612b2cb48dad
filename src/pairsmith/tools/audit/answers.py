"""The annotators' answers, each appended to a file at once, so that none is lost if the process is killed."""

import json
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pairsmith.core.errors import FolderError, StorageError

ANSWERS_FILE = "answers.jsonl"


@dataclass(frozen=True, slots=True)
class AnnotatorAnswer:
    """The label that an annotator gave the row with the id ``row``; None if they took it back."""

    annotator: str
    row: str
    label: str | None


class AnnotatorAnswers:
    """All answers of an audit; of an annotator's answers to a row, the last one counts.

    Several threads may give answers: a lock keeps two of them from writing at the same time.
    """

    def __init__(self, folder: Path) -> None:
        """Read the answers in ``folder``; raises ``FolderError`` if a line of the file is not an answer."""
        self._path = folder / ANSWERS_FILE
        self._lock = threading.Lock()
        self._labels: dict[str, dict[str, str]] = {}  # each annotator's labels by row id, in the order given
        for answer in self._read():
            self._count(answer)

    def give(self, answer: AnnotatorAnswer, *, again: bool = False) -> bool:
        """Write an answer to the disk, then count it; returns whether it was counted.

        An answer replaces an earlier one to the same row only with ``again``, so that a double click or a
        second window changes nothing.
        """
        with self._lock:
            before = self._labels.get(answer.annotator, {}).get(answer.row)
            if (before is not None and not again) or (before is None and answer.label is None):
                return False
            line = {"annotator": answer.annotator, "row": answer.row, "label": answer.label}
            line["time"] = datetime.now(UTC).isoformat(timespec="seconds")
            self._append(json.dumps(line, ensure_ascii=False) + "\n")
            self._count(answer)
            return True

    def take_back(self, annotator: str) -> AnnotatorAnswer | None:
        """Take back the annotator's last answer, and return it; None if there is no answer."""
        with self._lock:
            last = next(reversed(self._labels.get(annotator, {}).items()), None)
        if last is None:
            return None
        self.give(AnnotatorAnswer(annotator, last[0], None), again=True)
        return AnnotatorAnswer(annotator, *last)

    def of(self, annotator: str) -> dict[str, str]:
        """The annotator's labels by row id."""
        with self._lock:
            return dict(self._labels.get(annotator, {}))

    def by_annotator(self) -> dict[str, dict[str, str]]:
        """By annotator, the labels by row id; annotators without labels are left out."""
        with self._lock:
            return {name: dict(labels) for name, labels in self._labels.items() if labels}

    def _append(self, line: str) -> None:
        """Append a line and flush it to the disk, or leave the file as it was."""
        size = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._path, size)
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error

    def _count(self, answer: AnnotatorAnswer) -> None:
        labels = self._labels.setdefault(answer.annotator, {})
        labels.pop(answer.row, None)
        if answer.label is not None:
            labels[answer.row] = answer.label

    def _read(self) -> Iterable[AnnotatorAnswer]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FolderError(f"{self._path} cannot be read: {error.strerror}") from error
        if lines[-1]:  # the process was killed while it wrote this line: remove it before appending others
            os.truncate(self._path, sum(len(line) + 1 for line in lines[:-1]))
        for number, line in enumerate(lines[:-1], start=1):
            try:
                record = json.loads(line)
                label = record["label"]
                if not isinstance(label, str | None):
                    raise TypeError("no label")
                yield AnnotatorAnswer(str(record["annotator"]), str(record["row"]), label)
            except (ValueError, LookupError, TypeError) as error:
                raise FolderError(
                    f"{self._path}:{number}: not a valid answer (a JSON object with annotator, row and "
                    "label); correct the line or remove it"
                ) from error
