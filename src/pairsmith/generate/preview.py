"""A look before a long run: a few examples, and what self-debiasing did to them token by token."""

import json
from collections.abc import Iterator

from pairsmith.generate.wanted import Wanted, pairs_wanted, texts_wanted
from pairsmith.generate.writing import judge, make_decoder
from pairsmith.lm.decoder import Group, Step
from pairsmith.lm.protocols import SteerableModel
from pairsmith.records import Reject
from pairsmith.runs.seeds import stream_key
from pairsmith.tasks import Decoding, TaskSpec

NOTABLE = 0.05
"""A change of probability that is worth showing."""


def preview(
    task: TaskSpec, model: SteerableModel, items: list[str] | range, decoding: Decoding, seed: int
) -> str:
    """The first try for each item and label, as text for a terminal.

    For each token drawn: its probability under the label's own prompt, its probability after
    self-debiasing (D3, before top-k and top-p), and the token that self-debiasing lowered most.
    """
    wanted = texts_wanted(task, items) if isinstance(items, range) else pairs_wanted(task, items, 1)
    lines = [f"preview of {task.name} with {model.name}; decay {decoding.decay:g}; nothing is written"]
    last: str | None = None
    for want in wanted:
        if want.input != last:
            lines += ["", f"first text: {want.input}"]
            last = want.input
        lines += _example(task, model, want, decoding, seed)
    lines += ["", "leave --preview out to start the run"]
    return "\n".join(lines)


def _example(
    task: TaskSpec, model: SteerableModel, want: Wanted, decoding: Decoding, seed: int
) -> Iterator[str]:
    decoder = make_decoder(model, decoding, seed, 1 + len(want.counters))
    decoder.steps = []
    prompts = [tuple(model.encode(prompt)) for prompt in (want.main, *want.counters)]
    counters = ", ".join(task.counters(want.label)) or "none"
    heading = f"  label {want.label} (counter-labels: {counters})"
    longest = max(map(len, prompts))
    if longest + decoding.max_tokens > model.context:
        yield f"{heading}: too long for the model ({longest} tokens of {model.context})"
        return
    decoder.add(Group(prompts[0], tuple(prompts[1:]), stream_key(want.id, 0)))
    (continuation,) = decoder.finished()
    judged = judge(task, want, 0, continuation)
    yield f"{heading}: rejected, {judged.reason}" if isinstance(judged, Reject) else f"{heading}: {judged}"
    if want.counters and decoding.decay:
        yield f"    {'token':<16}{'plain':>8}{'steered':>9}   most lowered"
        yield from (_line(model, step) for step in decoder.steps)


def _line(model: SteerableModel, step: Step) -> str:
    plain, steered = float(step.p_main[step.token]), float(step.p_combined[step.token])
    fall = step.p_main - step.p_combined
    lowest = int(fall.argmax())
    lowered = ""
    if float(fall[lowest]) >= NOTABLE:
        lowered = f"{_shown(model, lowest)} {step.p_main[lowest]:.2f} to {step.p_combined[lowest]:.2f}"
    return f"    {_shown(model, step.token):<16}{plain:>8.2f}{steered:>9.2f}   {lowered}".rstrip()


def _shown(model: SteerableModel, token: int) -> str:
    """A token as text with its spaces and line breaks visible."""
    return json.dumps(model.decode([token]), ensure_ascii=False)[1:-1].replace(" ", "·")[:15]
