"""DINO (Schick and Schütze 2021): a language model writes labelled pairs from one instruction per label.

1. Each input x1 is put into the instruction I_y of each label y, and into the instructions of the
   counter-labels CL(y) (D1, D2).
2. The model continues I_y. A token x has the probability p_y(x) after I_y, and p_y'(x) after the
   instruction of the counter-label y', both followed by the text so far. With delta = p_y(x) minus the
   largest p_y'(x), self-debiasing multiplies p_y(x) by exp(decay * delta), at least ``floor``, where
   delta < 0 (D3, ``self_debias``). The next token is drawn from the tokens that remain after top-k and
   top-p, and the first quotation mark ends the text x2 (D1, D4).
3. A text that is empty, copies x1 or repeats an earlier text is rejected, and the model tries again, up to a
   limit (D4, D6).

``write`` has step 3. It calls ``MultiPromptDecoder.finished`` (``models/language/decoder.py``), the loop over
tokens, which makes step 2 with ``token_choices`` (``steering.py``): from logits to the tokens that may be
drawn, by ``self_debias`` (``combine.py``) and ``truncate`` (``sampling.py``).

The rows then become a training set (``training_set.py``), on which an encoder is trained (``encoder.py``) or,
from single texts, a classifier (``classifier.py``). ``evaluation.py`` measures both.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pairsmith.core.arguments import (
    check_loaded,
    check_not_blank,
    check_not_empty,
    check_progress,
    checked_texts,
    checked_whole_number,
)
from pairsmith.core.errors import ModelError, SettingsError, counted
from pairsmith.core.progress import Progress, Silent
from pairsmith.core.settings import MOST_ROWS_AT_ONCE
from pairsmith.core.validation import checked_options
from pairsmith.data.filters import TOO_LONG
from pairsmith.data.schemas import Reject
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.data.tasks.spec import QUOTE
from pairsmith.methods.dino.requests import TextRequest, encoded_requests, pair_requests, text_requests
from pairsmith.models.language.combine import Rule, named_rule, rule_of
from pairsmith.models.language.decoder import Draw, Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.servers import MOST_SENT, UNKNOWN_CONTEXT
from pairsmith.models.locks import locked
from pairsmith.models.memory import told_if_out_of_memory


@dataclass(frozen=True, slots=True)
class GeneratedRows:
    """The rows that a language model wrote for a task.

    Attributes:
        rows: a row for each accepted text, ordered by input, label and try: a ``ScoredPair`` if the task's
            labels are numbers, a ``LabelledPair`` if they are names, a ``LabelledText`` in a text task.
        rejects: the rejected tries, and the requests whose prompt is too long, in the same order; each has
            its reason.
        requests: the number of requests that were begun, one for each input and label.
        complete: the number of requests for which all texts were written.
    """

    rows: list[Any]  # no union: the task decides on the class, which a type checker cannot know
    rejects: list[Reject]
    requests: int
    complete: int

    def __repr__(self) -> str:
        """Only the numbers of rows and rejects: all rows of a long run would fill a notebook."""
        rows, rejects = counted(len(self.rows), "rows"), counted(len(self.rejects), "rejects")
        done = f"{self.complete:,} of {counted(self.requests, 'requests')} complete"
        return f"{type(self).__name__}({rows}, {rejects}, {done})"

    @classmethod
    def of(cls, requests: Sequence[TextRequest], task: TaskSpec) -> Self:
        """The rows and rejects of requests whose tries have ended."""
        rows = [row for request in requests for row in request.rows(task)]
        rejects = [reject for request in requests for _, reject in sorted(request.rejects.items())]
        complete = sum(len(request.texts) == request.count for request in requests)
        return cls(rows, rejects, len(requests), complete)


def generate_pairs(
    task: TaskSpec,
    model: SteerableModel,
    inputs: Iterable[str],
    *,
    decoding: Decoding | None = None,
    seed: int = 1,
    rows: int | None = None,
    rule: Rule | str | None = None,
    progress: Progress | None = None,
) -> GeneratedRows:
    """Write second texts for ``inputs`` (D1-D4, D6).

    Args:
        task: a pair task.
        model: the language model that writes, as ``load_language_model`` loads it.
        inputs: first texts; equal ones give equal rows.
        decoding: how texts are drawn; the task's by default.
        seed: seed of every draw, 0 to 2**63 - 1.
        rows: number of prompts that the model computes at once, at least ``rows_needed(task)`` and at most
            65,536; by default as many as fit into memory.
        rule: your own steering rule, used instead of the one that ``decoding`` names: a function, or its
            dotted name, ``package.module.function``. The function is called with two tensors of one shape,
            ``(rows, tokens)``: each token's probability after the label's prompt, and the largest of its
            probabilities after the counter-labels' prompts; it returns a tensor of weights of this shape.
        progress: shows how many of the prompts are done; by default nothing is shown.

    Returns:
        ``rows`` with a row for each accepted text, and ``rejects`` with the other tries and their reasons.

    Raises:
        InputError: ``inputs`` is a single text or empty, or contains a blank text or anything but texts.
        SettingsError: ``task`` writes single texts, ``rows`` is too few or does not fit into memory, there is
            no such rule, ``decoding`` or ``seed`` is invalid, or the task or the model is not loaded.
    """
    decoding = _checked_decoding(task, model, decoding)
    if task.kind != "pair":
        raise SettingsError(f"{task.name} writes single texts: call generate_texts")
    seed, rows = _checked_numbers(seed, rows)
    inputs = checked_texts(inputs, "inputs")
    check_not_empty(inputs, "inputs", "text")
    check_not_blank(inputs, "inputs")
    requests = pair_requests(task, inputs, decoding.per_input)
    return _write_with_progress(task, model, requests, decoding, seed, rows, rule, progress)


def generate_texts(
    task: TaskSpec,
    model: SteerableModel,
    *,
    decoding: Decoding | None = None,
    seed: int = 1,
    rows: int | None = None,
    rule: Rule | str | None = None,
    progress: Progress | None = None,
) -> GeneratedRows:
    """Write ``decoding.per_input`` texts for each label (D5, D14); arguments as for ``generate_pairs``.

    Returns:
        ``rows`` with a row for each accepted text, and ``rejects`` with the other tries and their reasons.

    Raises:
        SettingsError: ``task`` writes second texts, ``rows`` is too few or does not fit into memory, there is
            no such rule, ``decoding`` or ``seed`` is invalid, or the task or the model is not loaded.
    """
    decoding = _checked_decoding(task, model, decoding)
    if task.kind != "text":
        raise SettingsError(f"{task.name} writes second texts for inputs: call generate_pairs")
    seed, rows = _checked_numbers(seed, rows)
    requests = text_requests(task, range(decoding.per_input))
    return _write_with_progress(task, model, requests, decoding, seed, rows, rule, progress)


def _write_with_progress(
    task: TaskSpec,
    model: SteerableModel,
    requests: Iterable[TextRequest],
    decoding: Decoding,
    seed: int,
    rows: int | None,
    rule: Rule | str | None,
    progress: Progress | None,
) -> GeneratedRows:
    """Call ``write``, and show in a progress bar how many requests are done."""
    check_progress(progress)
    rule = named_rule(rule)
    requests = list(requests)
    with (
        (progress or Silent()).task("generate", len(requests), "prompts") as bar,
        told_if_out_of_memory(rows),
    ):
        hooks = Hooks(on_done=lambda _: bar.advance())
        return write(task, model, requests, decoding, seed, rows, hooks, rule)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions by which a caller follows the work or ends it early; the default ones do nothing.

    Attributes:
        on_start: called before the first request, with the number of rows that are computed at once.
        on_done: called with each request when its last try has ended.
        enough: called before a request is begun, with the number of requests begun so far; if it returns
            true, the remaining requests are skipped.
    """

    on_start: Callable[[int], None] = lambda _: None
    on_done: Callable[[TextRequest], None] = lambda _: None
    enough: Callable[[int], bool] = lambda _: False


def write(
    task: TaskSpec,
    model: SteerableModel | RemoteModel,
    requests: Iterable[TextRequest],
    decoding: Decoding,
    seed: int,
    rows: int | None,
    hooks: Hooks | None = None,
    rule: Rule | None = None,
) -> GeneratedRows:
    """Write the texts of all requests: second texts of pairs, or single texts (D5, D14).

    The model continues the prompts of a request (D1, D2). A rule steers the distribution of the next token
    (D3), which is drawn after truncation by top-k and top-p (D4). A text is accepted, or it is rejected and
    the model tries again (D4, D6).

    Args:
        requests: the requests; one that already holds ended tries, from an earlier run, continues with its
            next try.
        hooks: functions that are called as the work proceeds and may end it early; by default, none.

    The other arguments are those of ``generate_pairs``.
    """
    hooks = hooks or Hooks()
    # At decay 0 self-debiasing changes nothing (D3), so the counter-prompts need not be computed.
    steered = rule is not None or decoding.steers
    if rows is not None and rows < (needed := rows_needed(task) if steered else 1):
        raise SettingsError(
            f"{counted(rows, 'rows are')} too few for {task.name}: a label's prompts take {needed}"
        )
    waiting = deque(encoded_requests(task, model, requests, steered=steered))
    prompts_of_all = {prompt for _, prompts in waiting for prompt in prompts}
    begun: list[TextRequest] = []
    tries: dict[Group, tuple[TextRequest, int]] = {}  # the request and the number of each running try

    def begin_tries(request: TextRequest, prompts: tuple[Prompt, ...]) -> None:
        """Begin a try for each text that the request still needs; without any, the request is done."""
        # A retry goes to the front, as the decoder may still hold the keys and values of the prompts.
        is_retry = bool(request.texts or request.rejects)
        for number in request.next_tries(decoding.tries):
            group = request.group(number, prompts)
            tries[group] = request, number
            decoder.add(group, soon=is_retry)
            request.running += 1
        if not request.running:
            hooks.on_done(request)

    def begin_requests() -> None:
        """Begin waiting requests while there is room; reject those whose prompts do not fit the model."""
        while waiting and decoder.room > 0 and not hooks.enough(len(begun)):
            request, prompts = waiting.popleft()
            begun.append(request)
            if all(map(decoder.fits, prompts)):
                begin_tries(request, prompts)
            else:
                too_long = (
                    f"a prompt and {decoding.max_tokens} new tokens exceed the model's {model.context} tokens"
                    if all(prompts) or model.context < UNKNOWN_CONTEXT
                    else f"a prompt exceeds {MOST_SENT:,} characters, the most that is sent to a server that "
                    "does not tell its context"
                )
                request.reject(0, TOO_LONG, too_long, "", task)
                hooks.on_done(request)

    with locked(model):
        decoder = make_decoder(model, decoding, seed, prompts_of_all, rows, rule=rule)
        hooks.on_start(decoder.room)
        begin_requests()
        for group in decoder.finished():
            request, number = tries.pop(group)
            request.running -= 1
            request.accept_or_reject(number, group, task)
            begin_tries(request, group.prompts)
            begin_requests()
    return GeneratedRows.of(begun, task)


def make_decoder(
    model: SteerableModel | RemoteModel,
    decoding: Decoding,
    seed: int,
    prompts: Collection[Prompt],
    rows: int | None,
    watch: Callable[[Draw], None] | None = None,
    rule: Rule | None = None,
) -> MultiPromptDecoder | RemoteDecoder:
    """The decoder of a model, which steers by a rule (D3) and truncates by top-k and top-p (D4).

    Args:
        model: the language model. A server's model is steered by self-debiasing only; ``prompts``, ``rows``
            and ``watch`` do not apply to it, and ``rule`` must be None.
        decoding: top-k, top-p, the largest number of tokens, and the rule with its strength.
        seed: seed of every draw, from 0 to 2**63 - 1.
        prompts: all prompts of the groups to come.
        rows: the largest number of prompts that are computed at once; None: as many as fit into memory.
        watch: called with every draw.
        rule: steering rule, used instead of the one that ``decoding`` names.

    Raises:
        ModelError: the model is a server's, and is to be steered by another rule.
    """
    sampling = Sampling(decoding.top_k, decoding.top_p, decoding.max_tokens, QUOTE)
    if isinstance(model, RemoteModel):
        if rule is not None or decoding.rule != "self-debiasing":
            raise ModelError(f"model {model.name}: a server steers by self-debiasing; leave rule out")
        return RemoteDecoder(model, sampling, seed, decay=decoding.decay, floor=decoding.floor)
    rule = rule_of(decoding) if rule is None else rule
    return MultiPromptDecoder(model, rule, sampling, seed, prompts, rows, watch)


def _checked_numbers(seed: int, rows: int | None) -> tuple[int, int | None]:
    seed = checked_whole_number(seed, "seed", most=2**63 - 1)
    return seed, None if rows is None else checked_whole_number(rows, "rows", most=MOST_ROWS_AT_ONCE)


def rows_needed(task: TaskSpec) -> int:
    """The least number of rows that can decode a text: a label's prompt and its counter-labels' prompts."""
    return 1 + max(len(task.counters(label)) for label in task.label_names)


def _checked_decoding(task: TaskSpec, model: SteerableModel, decoding: Decoding | None) -> Decoding:
    """``decoding``, by default the task's, checked; also checks that task and model are loaded."""
    check_loaded(task, "task", "counters", "load_task")
    check_loaded(model, "model", "session", "load_language_model")
    if decoding is None:
        return task.decoding
    if not isinstance(decoding, Decoding):
        raise SettingsError(
            'decoding must be a Decoding, such as task.decoding.model_copy(update={"top_k": 10}), '
            f"not {decoding!r:.60}"
        )
    # ``model_copy`` checks neither names nor values, which may be NumPy's numbers.
    values = {
        name: value.item() if hasattr(value, "item") else value for name, value in vars(decoding).items()
    }
    return checked_options("decoding", Decoding, values)
