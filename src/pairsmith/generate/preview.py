"""A look before a long run: a few examples, and what self-debiasing did to them token by token."""

import json
from collections.abc import Iterator

from pairsmith.generate.wanted import Wanted, pairs_wanted, texts_wanted
from pairsmith.generate.writing import encoded, judge, make_decoder
from pairsmith.lm.decoder import Draw, Group
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
    lines = [
        f"preview of {task.name} with {model.name}, decay {decoding.decay:g}; nothing is written",
        "plain: a token's probability under the label's own instruction; steered: after self-debiasing",
    ]
    last: str | None = None
    for want in wanted:
        if want.input != last:
            lines += ["", f"first text: {_printable(want.input or '')}"]
            last = want.input
        lines += _example(task, model, want, decoding, seed)
    lines += ["", "leave --preview out to start the run"]
    return "\n".join(lines)


def _example(
    task: TaskSpec, model: SteerableModel, want: Wanted, decoding: Decoding, seed: int
) -> Iterator[str]:
    draws: list[Draw] = []
    prompts = [encoded(task, model, prompt) for prompt in (want.main, *want.counters)]
    decoder = make_decoder(model, decoding, seed, prompts, len(prompts), draws.append)
    counters = ", ".join(task.counters(want.label)) or "none"
    heading = f"  label {want.label} (counter-labels: {counters})"
    group = Group(prompts[0], tuple(prompts[1:]), stream_key(want.id, 0))
    if not all(map(decoder.fits, prompts)):
        yield f"{heading}: too long for the model's {model.context} tokens"
        return
    decoder.add(group)
    (continuation,) = decoder.finished()
    judged = judge(task, want, 0, continuation)
    if isinstance(judged, Reject):
        judged = f"rejected ({judged.reason}): {continuation.text}"
    yield f"{heading}: {_printable(judged)}"
    if want.counters and decoding.decay:
        yield f"    {'token':<16}{'plain':>8}{'steered':>9}   most lowered"
        yield from (_line(model, draw) for draw in draws)


def _line(model: SteerableModel, draw: Draw) -> str:
    plain, steered = float(draw.p_main[draw.token]), float(draw.p_combined[draw.token])
    fall = draw.p_main - draw.p_combined
    lowest = int(fall.argmax())
    lowered = ""
    if float(fall[lowest]) >= NOTABLE:
        lowered = f"{_shown(model, lowest)} {draw.p_main[lowest]:.2f} to {draw.p_combined[lowest]:.2f}"
    return f"    {_shown(model, draw.token):<16}{plain:>8.2f}{steered:>9.2f}   {lowered}".rstrip()


def _printable(text: str) -> str:
    """``text`` without characters that could steer a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _shown(model: SteerableModel, token: int) -> str:
    """A token as text with its spaces and line breaks visible."""
    return json.dumps(model.decode([token]), ensure_ascii=False)[1:-1].replace(" ", "·")[:15]
