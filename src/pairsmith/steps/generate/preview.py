"""A preview before a long run: a few examples, and the effect of steering on each of their tokens."""

import json
from collections.abc import Iterator

from pairsmith.core.text_width import left_aligned
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.traces import TokenTrace, Trace, traces
from pairsmith.models.language.protocols import SteerableModel


def preview(
    task: TaskSpec, model: SteerableModel, items: list[str] | range, decoding: Decoding, seed: int
) -> str:
    """The first try for each item and label, as text for a terminal.

    For each sampled token, the text shows its probability under the label's own prompt, its probability after
    the task's steering rule (self-debiasing, D3) but before top-k and top-p, and the token whose probability
    the rule lowered most.
    """
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
        yield from map(_line, trace.tokens)


def _line(drawn: TokenTrace) -> str:
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
