"""Messages about generated texts: examples during the run, and counts of each label at its end."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pairsmith.core.errors import counted, one_line
from pairsmith.core.progress import Progress
from pairsmith.core.text_width import left_aligned, text_width
from pairsmith.data.tasks import TaskSpec, label_text
from pairsmith.runs import DatasetFolder
from pairsmith.runs.status import label_counts

EXAMPLES_PER_LABEL = 3
"""Number of example rows that are shown for each label."""

_SHOWN_CHARACTERS = 90
"""Largest number of characters of a text that are shown."""


class ExamplePrinter:
    """Shows the first rows of each label as examples while shards are saved."""

    def __init__(self, task: TaskSpec, progress: Progress) -> None:
        self._progress = progress
        self._remaining = dict.fromkeys(task.written_names, EXAMPLES_PER_LABEL)
        self._colours = {name: number for number, name in enumerate(task.label_names)}
        self._width = max(map(text_width, task.label_names))

    def show(self, rows: pa.Table) -> None:
        """Show rows of a saved shard whose label has fewer than ``EXAMPLES_PER_LABEL`` examples so far."""
        for row in rows.to_pylist() if any(self._remaining.values()) else ():
            label = _label(row)
            if not self._remaining.get(label):
                continue
            self._remaining[label] -= 1
            name = self._progress.coloured(left_aligned(label, self._width), self._colours[label])
            texts = [row[column] for column in ("sentence1", "sentence2", "text") if column in row]
            self._progress.say(f"  {name}  {' → '.join(map(_short, texts))}")


def closing_lines(folder: DatasetFolder, task: TaskSpec, wanted: int) -> Iterator[str]:
    """A line for each label: its number of rows, out of the ``wanted`` rows that were requested."""
    counts = label_counts(folder)
    width = max(map(text_width, task.written_names))
    for name in task.written_names:
        count = counts.get(name, 0)
        few = "" if 2 * count >= wanted else "; few: give more --tries, or write a plainer instruction"
        yield f"  label {left_aligned(name, width)}  {count:,} of {counted(wanted, 'texts')}{few}"


def _label(row: Mapping[str, object]) -> str:
    value = row.get("label", row.get("score"))
    return label_text(value) if isinstance(value, str | float) else str(value)


def _short(text: str) -> str:
    """A text, shortened, on one line and without control characters."""
    line = one_line(text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"
