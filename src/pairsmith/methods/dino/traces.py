"""How the task's steering rule (D3 by default) changed the probabilities of a text's tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.method import make_decoder
from pairsmith.methods.dino.requests import encoded_requests, pair_requests, text_requests
from pairsmith.models.language.decoder import Draw
from pairsmith.models.language.protocols import SteerableModel

NOTABLE = 0.05
"""The smallest decrease of a probability that is shown."""


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """A token that was drawn, with probabilities before top-k and top-p.

    ``plain`` is the token's probability under the label's own prompt, ``steered`` its probability after the
    rule. ``lowered`` is the token whose probability the rule lowered most, with that probability before and
    after.
    """

    token: str
    plain: float
    steered: float
    lowered: tuple[str, float, float]

    @property
    def is_notable(self) -> bool:
        """Whether the largest decrease of a probability is large enough to be shown."""
        return self.lowered[1] - self.lowered[2] >= NOTABLE


@dataclass(frozen=True, slots=True)
class Trace:
    """The first try at a text of one label for one input; ``input`` is None in a text task.

    ``rejected`` is the reason why the text was rejected, empty if it was accepted. ``tokens`` is empty if the
    prompt is too long.
    """

    input: str | None
    label: str
    counters: tuple[str, ...]
    text: str
    rejected: str
    tokens: tuple[TokenTrace, ...]


def traces(
    task: TaskSpec, model: SteerableModel, items: list[str] | range, decoding: Decoding, seed: int
) -> Iterator[Trace]:
    """The first try for each item and label, with the same draws as ``generate`` makes with this seed.

    ``items`` are the inputs of a pair task, or the numbers of the texts of a text task.
    """
    requests = text_requests(task, items) if isinstance(items, range) else pair_requests(task, items, 1)
    for request, prompts in encoded_requests(task, model, requests, steered=True):
        draws: list[Draw] = []
        decoder = make_decoder(model, decoding, seed, prompts, len(prompts), draws.append)
        counters = tuple(task.counters(request.label))
        if not all(map(decoder.fits, prompts)):
            too_long = f"too long for the model's {model.context} tokens"
            yield Trace(request.input, request.label, counters, "", too_long, ())
            continue
        decoder.add(request.group(0, prompts))
        (written,) = decoder.finished()
        request.accept_or_reject(0, written, task)
        rejected = request.rejects[0].reason if request.rejects else ""
        text = request.texts.get(0, written.text)
        tokens = tuple(_token(model, draw) for draw in draws)
        yield Trace(request.input, request.label, counters, text, rejected, tokens)


def _token(model: SteerableModel, draw: Draw) -> TokenTrace:
    most_lowered = int((draw.p_main - draw.p_steered).argmax())
    return TokenTrace(
        model.decode([draw.token]),
        float(draw.p_main[draw.token]),
        float(draw.p_steered[draw.token]),
        (
            model.decode([most_lowered]),
            float(draw.p_main[most_lowered]),
            float(draw.p_steered[most_lowered]),
        ),
    )
