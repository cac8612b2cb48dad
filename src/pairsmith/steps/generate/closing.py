"""Messages on generated texts: examples as they are saved, and at the end the count of each label."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pairsmith.core.errors import one_line
from pairsmith.core.progress import Progress
from pairsmith.data.tasks import TaskSpec, label_text
from pairsmith.runs import DatasetFolder
from pairsmith.runs.status import label_counts

EXAMPLES_PER_LABEL = 3
"""How many texts of each label are shown."""

_LONGEST = 90
"""Characters of a text that are shown."""


class ExamplePrinter:
    """Shows the first texts of each label, each once, as shards are saved."""

    def __init__(self, task: TaskSpec, progress: Progress) -> None:
        self._progress = progress
        self._left = dict.fromkeys(task.written_names, EXAMPLES_PER_LABEL)
        self._colours = {name: number for number, name in enumerate(task.label_names)}
        self._width = max(map(len, task.label_names))

    def show(self, rows: pa.Table) -> None:
        """Show the first texts of labels with fewer than ``EXAMPLES_PER_LABEL`` so far.

        ``rows`` is a shard's table.
        """
        for row in rows.to_pylist() if any(self._left.values()) else ():
            label = _label(row)
            if not self._left.get(label):
                continue
            self._left[label] -= 1
            name = self._progress.coloured(label.ljust(self._width), self._colours[label])
            texts = [row[column] for column in ("sentence1", "sentence2", "text") if column in row]
            self._progress.say(f"  {name}  {' → '.join(map(_short, texts))}")


def closing_lines(folder: DatasetFolder, task: TaskSpec, wanted: int) -> Iterator[str]:
    """The number of texts of each label beside ``wanted``, as lines for people."""
    counts = label_counts(folder)
    width = max(map(len, task.written_names))
    for name in task.written_names:
        count = counts.get(name, 0)
        few = "" if 2 * count >= wanted else "; few: more --tries, or a plainer instruction, may help"
        yield f"  label {name:<{width}}  {count:,} of {wanted:,} texts{few}"


def _label(row: Mapping[str, object]) -> str:
    value = row.get("label", row.get("score"))
    return label_text(value) if isinstance(value, str | float) else str(value)


def _short(text: str) -> str:
    """A text on one line, without characters that would change the terminal."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
