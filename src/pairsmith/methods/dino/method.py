"""DINO (Schick and Schütze 2021): a language model writes labelled pairs from one instruction per label.

1. Each input is put into each label's instruction, and into those of the label's counter-labels (D1, D2).
2. The model continues the label's prompt. Tokens that a counter-label's prompt makes likelier are made less
   likely: self-debiasing (D3). Each token is drawn from what top-k and top-p leave, and a quotation mark ends
   the text (D1, D4).
3. A text that is a copy, a repeat or no text is rejected, and another try begins, up to a limit (D4, D6).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.data.schemas import Reject
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.data.tasks.spec import QUOTE
from pairsmith.methods.dino.requests import GeneratedRow, TextRequest, encoded, pair_requests, text_requests
from pairsmith.models.language.combine import Combine, contrast, guidance, named_rule, self_debias
from pairsmith.models.language.decoder import Draw, Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.models.language.sampling import Sampling


@dataclass(frozen=True, slots=True)
class GeneratedRows:
    """The rows that were written for a task.

    Attributes:
        rows: the accepted texts, input by input, label by label and try by try.
        rejects: rejected tries, and requests whose prompt is too long, in the same order, with the reason.
        requests: the number of requests that were begun, one for each input and label.
        complete: the number of requests that got all their texts.
    """

    rows: list[GeneratedRow]
    rejects: list[Reject]
    requests: int
    complete: int


def generate_pairs(
    task: TaskSpec,
    model: SteerableModel,
    inputs: Iterable[str],
    *,
    decoding: Decoding | None = None,
    seed: int = 1,
    rows: int | None = None,
    rule: Combine | str | None = None,
) -> GeneratedRows:
    """Write second texts for ``inputs`` (D1-D4, D6).

    Args:
        task: a pair task.
        model: the language model that writes, as ``load_language_model`` loads it.
        inputs: first texts; equal ones give equal rows.
        decoding: how texts are drawn; the task's by default.
        seed: seed of every draw, 0 to 2**63 - 1.
        rows: number of prompts that the model computes at once, at least ``rows_needed(task)``; by default as
            many as fit the memory.
        rule: a steering rule of your own in place of the one that ``decoding`` names: a function of the form
            ``models.language.combine.Combine``, or its dotted name, ``package.module.function``.

    Returns:
        the accepted rows and the rejected tries.

    Raises:
        SettingsError: ``task`` writes single texts, ``rows`` is too few, or there is no such rule.
    """
    if task.kind != "pair":
        raise SettingsError(f"{task.name} writes single texts: call generate_texts")
    decoding = decoding or task.decoding
    requests = pair_requests(task, inputs, decoding.per_input)
    return write(task, model, requests, decoding, seed, rows, rule=named_rule(rule))


def generate_texts(
    task: TaskSpec,
    model: SteerableModel,
    *,
    decoding: Decoding | None = None,
    seed: int = 1,
    rows: int | None = None,
    rule: Combine | str | None = None,
) -> GeneratedRows:
    """Write ``decoding.per_input`` texts for each label (D5, D14); arguments as for ``generate_pairs``.

    Raises:
        SettingsError: ``task`` writes second texts, ``rows`` is too few, or there is no such rule.
    """
    if task.kind != "text":
        raise SettingsError(f"{task.name} writes second texts for given ones: call generate_pairs")
    decoding = decoding or task.decoding
    requests = text_requests(task, range(decoding.per_input))
    return write(task, model, requests, decoding, seed, rows, rule=named_rule(rule))


def write(
    task: TaskSpec,
    model: SteerableModel | RemoteModel,
    requests: Iterable[TextRequest],
    decoding: Decoding,
    seed: int,
    rows: int | None,
    on_done: Callable[[TextRequest], None] = lambda _: None,
    enough: Callable[[int], bool] = lambda _: False,
    rule: Combine | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> GeneratedRows:
    """Write the texts of all requests; ``rows`` and ``rule`` are those of ``generate_pairs``.

    A request that has ended tries, of an earlier run, goes on with the next. ``on_done`` is called with each
    request when its last try has ended. Before a request is begun, ``enough`` is called with the number of
    requests begun so far; if it returns true, the remaining ones are skipped. ``on_start`` is called before
    the first, with the number of rows that are computed at once.
    """
    encode = lru_cache(maxsize=64)(partial(encoded, task, model))  # an input's labels share prompts
    # At decay 0 self-debiasing changes nothing (D3), so the counter-prompts need not be computed.
    steered = rule is not None or decoding.steers
    if rows is not None and rows < (needed := rows_needed(task) if steered else 1):
        raise SettingsError(f"{rows} rows are too few for {task.name}: a label's prompts take {needed}")
    waiting: deque[tuple[TextRequest, tuple[Prompt, ...]]] = deque()
    for request in requests:
        counter_prompts = request.counter_prompts if steered else ()
        waiting.append((request, tuple(map(encode, (request.prompt, *counter_prompts)))))
    announced = {prompt for _, prompts in waiting for prompt in prompts}
    decoder = make_decoder(model, decoding, seed, announced, rows, rule=rule)
    on_start(decoder.room)
    too_long = f"a prompt and {decoding.max_tokens} new tokens exceed the model's {model.context} tokens"
    begun: list[TextRequest] = []
    running: dict[Group, tuple[TextRequest, int]] = {}

    def begin_tries(request: TextRequest, prompts: tuple[Prompt, ...]) -> None:
        tried = bool(request.texts or request.rejects)
        for number in request.next_tries(decoding.tries):
            group = request.group(number, prompts)
            running[group] = request, number
            decoder.add(group, soon=tried)
            request.running += 1
        if not request.running:
            on_done(request)

    def begin_requests() -> None:
        while waiting and decoder.room > 0 and not enough(len(begun)):
            request, prompts = waiting.popleft()
            begun.append(request)
            if all(map(decoder.fits, prompts)):
                begin_tries(request, prompts)
                continue
            request.reject(0, "too long", too_long, "", task)
            on_done(request)

    begin_requests()
    for group in decoder.finished():
        request, number = running.pop(group)
        request.running -= 1
        request.ended(number, group, task)
        begin_tries(request, group.prompts)
        begin_requests()
    # In the order of the requests, and those of a request in the order of its tries.
    accepted = [row for request in begun for row in request.rows(task)]
    rejects = [reject for request in begun for _, reject in sorted(request.rejects.items())]
    complete = sum(len(request.texts) == request.count for request in begun)
    return GeneratedRows(accepted, rejects, len(begun), complete)


def rows_needed(task: TaskSpec) -> int:
    """The fewest rows that decode the task: a label's prompt and those of its counter-labels."""
    return 1 + max(len(task.counters(label)) for label in task.label_names)


def make_decoder(
    model: SteerableModel | RemoteModel,
    decoding: Decoding,
    seed: int,
    prompts: Collection[Prompt],
    rows: int | None,
    watch: Callable[[Draw], None] | None = None,
    rule: Combine | None = None,
) -> MultiPromptDecoder | RemoteDecoder:
    """A decoder of these prompts that samples by D4 and steers by a rule, D3 unless told otherwise."""
    sampling = Sampling(decoding.top_k, decoding.top_p, decoding.max_tokens, QUOTE)
    if isinstance(model, RemoteModel):
        if rule is not None or decoding.rule != "self-debiasing":
            raise ModelError(f"model {model.name}: a server steers by self-debiasing; leave rule out")
        return RemoteDecoder(model, sampling, seed, decay=decoding.decay, floor=decoding.floor)
    if rule is None:
        if decoding.rule == "guidance":
            rule = partial(guidance, scale=decoding.scale)
        elif decoding.rule == "contrast":
            rule = partial(contrast, strength=decoding.strength, plausible=decoding.plausible)
        else:
            rule = partial(self_debias, decay=decoding.decay, floor=decoding.floor)
    return MultiPromptDecoder(model, rule, sampling, seed, prompts, rows, watch)
