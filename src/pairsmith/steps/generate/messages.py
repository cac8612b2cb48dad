"""What ``generate`` tells the user: a preview, examples during a run, and counts of each label at its end."""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa

from pairsmith.core.errors import counted, one_line
from pairsmith.core.progress import Progress
from pairsmith.core.text_width import left_aligned, text_width
from pairsmith.data.tasks import TaskSpec, label_text
from pairsmith.methods.dino.traces import TokenTrace, Trace, traces
from pairsmith.models.language.protocols import SteerableModel
from pairsmith.runs import DatasetFolder
from pairsmith.runs.status import label_counts

EXAMPLES_PER_LABEL = 3
"""Number of example rows that are shown for each label."""

_SHOWN_CHARACTERS = 90
"""Largest number of characters of a text that are shown."""


def preview(task: TaskSpec, model: SteerableModel, items: list[str] | range, seed: int) -> str:
    """The first try for each item and label, as text for a terminal.

    For each sampled token, the text shows its probability under the label's own prompt, its probability after
    the task's steering rule (self-debiasing, D3) but before top-k and top-p, and the token whose probability
    the rule lowered most.
    """
    decoding = task.decoding
    lines = [
        f"preview of {task.name} with {model.name}, {decoding.steering}; nothing is written",
        f"plain: a token's probability under the label's own instruction; steered: after {decoding.rule}",
    ]
    last_input: str | None = None
    for trace in traces(task, model, items, decoding, seed):
        if trace.input != last_input:
            lines += ["", f"first text: {_printable(trace.input or '')}"]
            last_input = trace.input
        lines += _example(trace, steered=decoding.steers)
    lines += ["", "leave --preview out to start the run"]
    return "\n".join(lines)


def _example(trace: Trace, *, steered: bool) -> Iterator[str]:
    heading = f"  label {trace.label} (counter-labels: {', '.join(trace.counters) or 'none'})"
    if not trace.tokens:
        yield f"{heading}: {trace.rejected}"
        return
    text = f"rejected ({trace.rejected}): {trace.text}" if trace.rejected else trace.text
    yield f"{heading}: {_printable(text)}"
    if trace.counters and steered:
        yield f"    {'token':<16}{'plain':>8}{'steered':>9}   most lowered"
        yield from map(_token_line, trace.tokens)


def _token_line(drawn: TokenTrace) -> str:
    token, before, after = drawn.lowered
    lowered = f"{_shown(token)} {before:.2f} to {after:.2f}" if drawn.is_notable else ""
    head = left_aligned(_shown(drawn.token), 16)
    return f"    {head}{drawn.plain:>8.2f}{drawn.steered:>9.2f}   {lowered}".rstrip()


def _printable(text: str) -> str:
    """``text`` with a replacement character for each control character."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _shown(token: str) -> str:
    """A token, shortened, with visible spaces and line breaks."""
    return json.dumps(token, ensure_ascii=False)[1:-1].replace(" ", "·")[:15]


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


def closing_lines(folder: DatasetFolder, task: TaskSpec, requested: int) -> Iterator[str]:
    """For each label, a line that says how many of the ``requested`` texts became rows."""
    counts = label_counts(folder)
    width = max(map(text_width, task.written_names))
    for name in task.written_names:
        count = counts.get(name, 0)
        few = "" if 2 * count >= requested else "; few: give more --tries, or write a plainer instruction"
        yield f"  label {left_aligned(name, width)}  {count:,} of {counted(requested, 'texts')}{few}"


def _label(row: Mapping[str, object]) -> str:
    value = row.get("label", row.get("score"))
    return label_text(value) if isinstance(value, str | float) else str(value)


def _short(text: str) -> str:
    """A text, shortened, on one line and without control characters."""
    line = one_line(text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"
