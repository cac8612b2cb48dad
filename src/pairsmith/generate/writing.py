"""Have a language model write what is wanted: the tries of D4, and what is kept of them.

``write`` is the heart of the route and knows nothing of files; a library user calls it through
``generate_pairs`` or ``generate_texts``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

from pairsmith.generate.wanted import Row, Wanted, pairs_wanted, quotable, texts_wanted
from pairsmith.lm.combine import Combine, contrast, guidance, named_rule, self_debias
from pairsmith.lm.decoder import Continuation, Draw, Group, MultiPromptDecoder
from pairsmith.lm.protocols import Prompt, SteerableModel
from pairsmith.lm.remote import RemoteModel
from pairsmith.lm.remote_decoder import RemoteDecoder
from pairsmith.lm.sampling import Sampling
from pairsmith.records import LabelledPair, LabelledText, Reject, ScoredPair, as_columns
from pairsmith.runs.seeds import stream_key
from pairsmith.tasks import Decoding, TaskSpec
from pairsmith.tasks.spec import QUOTE

Done = Callable[[Wanted], None]
# Control characters, and the mark that stands for bytes that are no text.
_UNREADABLE = frozenset([*map(chr, range(32)), *map(chr, range(127, 160)), "\ufffd"])


@dataclass(slots=True)
class _Job:
    """A ``Wanted`` being worked on: its prompts' tokens, tries begun and open, and what came of each."""

    wanted: Wanted
    main: Prompt
    counters: tuple[Prompt, ...]
    begun: int = 0
    open: int = 0
    texts: dict[int, str] = field(default_factory=dict)
    rejects: dict[int, Reject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What came of a ``Wanted``'s tries in an earlier run: by the try's number, a text or a reject."""

    texts: dict[int, str] = field(default_factory=dict)
    rejects: dict[int, Reject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a set of ``Wanted``.

    Attributes:
        rows: accepted texts, in the order of what was wanted and of the tries.
        rejects: tries that gave no text, and what could not be tried, in the same order.
        asked: how many ``Wanted`` there were.
        complete: how many of them got all their texts.
    """

    rows: list[Row]
    rejects: list[Reject]
    asked: int
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
) -> Written:
    """Write second texts for ``inputs`` (D1-D4).

    Args:
        task: a pair task.
        model: writes them.
        inputs: first texts; equal ones give equal rows.
        decoding: how texts are drawn; the task's by default.
        seed: of every draw, 0 to 2**63 - 1.
        rows: prompts that the model computes at once, at least ``rows_needed(task)``; as many as fit the
            memory by default.
        rule: combines distributions in place of the one that ``decoding`` names: a function of the form
            ``lm.combine.Combine``, or its dotted name, ``package.module.function``.

    Raises:
        ValueError: ``task`` writes single texts, ``rows`` is too few, or there is no such rule.
    """
    if task.kind != "pair":
        raise ValueError(f"{task.name} writes single texts: call generate_texts")
    decoding = decoding or task.decoding
    wanted = pairs_wanted(task, inputs, decoding.per_input)
    return write(task, model, wanted, decoding, seed, rows, rule=named_rule(rule))


def generate_texts(
    task: TaskSpec,
    model: SteerableModel,
    *,
    decoding: Decoding | None = None,
    seed: int = 1,
    rows: int | None = None,
    rule: Combine | str | None = None,
) -> Written:
    """Write ``decoding.per_input`` texts for each label (D5, D14); arguments as for ``generate_pairs``.

    Raises:
        ValueError: ``task`` writes second texts, or ``rows`` is too few.
    """
    if task.kind != "text":
        raise ValueError(f"{task.name} writes second texts for given ones: call generate_pairs")
    decoding = decoding or task.decoding
    wanted = texts_wanted(task, range(decoding.per_input))
    return write(task, model, wanted, decoding, seed, rows, rule=named_rule(rule))


def write(
    task: TaskSpec,
    model: SteerableModel | RemoteModel,
    wanted: Iterable[Wanted],
    decoding: Decoding,
    seed: int,
    rows: int | None,
    on_done: Done | None = None,
    earlier: Mapping[str, Earlier] | None = None,
    enough: Callable[[int], bool] | None = None,
    rule: Combine | None = None,
) -> Written:
    """Write everything that is ``wanted``; ``on_done`` hears of each when its last try has ended.

    ``enough`` is asked before each, with how many were begun, whether to leave the rest. ``rule`` takes the
    place of the one that ``decoding`` names.

    A try is begun only when the tries before it cannot be enough, so the set of tries, and with it
    every row, is that of trying one after the other. Tries of an ``earlier`` run, by the id of what
    was wanted, are taken as they are, and the next ones follow them.
    """
    # The labels of one input follow each other and share prompts.
    encode = lru_cache(maxsize=64)(partial(encoded, task, model))
    # At decay 0 self-debiasing changes nothing (D3), so the counter-prompts need not be computed.
    steered = rule is not None or decoding.rule != "self-debiasing" or decoding.decay > 0
    jobs = [
        _Job(want, encode(want.main), tuple(map(encode, want.counters)) if steered else ()) for want in wanted
    ]
    prompts = {prompt for job in jobs for prompt in (job.main, *job.counters)}
    decoder = make_decoder(model, decoding, seed, prompts, rows, rule=rule)
    return _Writer(task, model, jobs, decoding, decoder, on_done, earlier or {}, enough).run()


def encoded(task: TaskSpec, model: SteerableModel | RemoteModel, prompt: str) -> Prompt:
    """The tokens of a prompt, in the form that the task has.

    Raises:
        ModelError: the task is a chat, and the model is not made for chats.
    """
    if task.format == "plain":
        return tuple(model.encode(prompt))
    message, _, answer = prompt.rpartition("\n")
    return tuple(model.encode_chat(message, answer))


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
        return RemoteDecoder(model, sampling, seed, decay=decoding.decay, floor=decoding.floor)
    return MultiPromptDecoder(model, rule or rule_of(decoding), sampling, seed, prompts, rows, watch)


def rule_of(decoding: Decoding) -> Combine:
    """The rule by which a label's prompt is combined with those of its counter-labels."""
    if decoding.rule == "guidance":
        return partial(guidance, scale=decoding.scale)
    if decoding.rule == "contrast":
        return partial(contrast, strength=decoding.strength, plausible=decoding.plausible)
    return partial(self_debias, decay=decoding.decay, floor=decoding.floor)


class _Writer:
    """Feeds the decoder with tries and sorts what comes back."""

    def __init__(
        self,
        task: TaskSpec,
        model: SteerableModel | RemoteModel,
        jobs: list[_Job],
        decoding: Decoding,
        decoder: MultiPromptDecoder | RemoteDecoder,
        on_done: Done | None,
        earlier: Mapping[str, Earlier],
        enough: Callable[[int], bool] | None,
    ) -> None:
        self._task = task
        self._context = model.context
        self._waiting = iter(jobs)
        self._decoding = decoding
        self._decoder = decoder
        self._on_done = on_done or (lambda _: None)
        self._earlier = earlier
        self._enough = enough or (lambda _: False)
        self._jobs: list[_Job] = []  # that were begun
        self._running: dict[int, tuple[_Job, int]] = {}

    def run(self) -> Written:
        self._refill()
        for continuation in self._decoder.finished():
            job, number = self._running.pop(id(continuation.group))
            job.open -= 1
            judged = judge(self._task, job.wanted, number, continuation)
            if isinstance(judged, Reject):
                job.rejects[number] = judged
            else:
                job.texts[number] = judged
                self._drop_repeats(job)
            self._begin(job)
            self._refill()
        return self._collect()

    def _refill(self) -> None:
        """Take up more of what is wanted while the decoder has room for it."""
        while (
            self._decoder.room > 0
            and not self._enough(len(self._jobs))
            and (job := next(self._waiting, None))
        ):
            if known := self._earlier.get(job.wanted.id):
                job.texts, job.rejects = dict(known.texts), dict(known.rejects)
                job.begun = len(job.texts) + len(job.rejects)
            self._jobs.append(job)
            if all(map(self._decoder.fits, (job.main, *job.counters))):
                self._begin(job)
                continue
            reason = f"a prompt and {self._decoding.max_tokens} new tokens exceed the model's {self._context}"
            job.rejects[0] = _reject(self._task, job.wanted, 0, "too long", reason, "")
            self._on_done(job.wanted)

    def _drop_repeats(self, job: _Job) -> None:
        """Of equal texts keep that of the earliest try: a repeat takes no place among those wanted (D6)."""
        first: dict[str, int] = {}
        for number, text in sorted(job.texts.items()):
            if first.setdefault(text, number) != number:
                # Not which one: when there are three, that would hang on which of them ended first.
                reason = "the text of an earlier try again"
                job.rejects[number] = _reject(self._task, job.wanted, number, "repeat", reason, text)
                del job.texts[number]

    def _begin(self, job: _Job) -> None:
        """Begin as many tries as the missing texts ask for."""
        while job.begun < self._decoding.tries and job.open + len(job.texts) < job.wanted.count:
            group = Group(job.main, job.counters, stream_key(job.wanted.id, job.begun))
            self._running[id(group)] = job, job.begun  # equal inputs have equal groups
            self._decoder.add(group, soon=bool(job.texts or job.rejects))
            job.begun += 1
            job.open += 1
        if not job.open:
            self._on_done(job.wanted)

    def _collect(self) -> Written:
        rows: list[Row] = []
        rejects: list[Reject] = []
        for job in self._jobs:
            texts = [job.texts[number] for number in sorted(job.texts)]
            rows += [make_row(self._task, job.wanted, i, text) for i, text in enumerate(texts)]
            rejects += [job.rejects[number] for number in sorted(job.rejects)]
        complete = sum(len(job.texts) == job.wanted.count for job in self._jobs)
        return Written(rows, rejects, len(self._jobs), complete)


def judge(task: TaskSpec, wanted: Wanted, number: int, continuation: Continuation) -> str | Reject:
    """The text of try ``number``, or why it is none (D1, D6): what would be removed later takes no place."""
    text = continuation.text.strip()
    if continuation.ending == "length":
        return _reject(task, wanted, number, "no end", "no quotation mark within the token limit", text)
    if continuation.ending == "end":
        return _reject(
            task, wanted, number, "no end", "the model ended the text without a quotation mark", text
        )
    if continuation.ending == "uncertified":
        reason = "the server's lists of likeliest tokens do not prove the next token"
        return _reject(task, wanted, number, "not certified", reason, text)
    if continuation.ending == "outranked":
        reason = "a counter-label's prompt makes the text at least as likely"
        return _reject(task, wanted, number, "outranked", reason, text)
    if not text:
        return _reject(task, wanted, number, "empty", "nothing before the quotation mark", text)
    if text.splitlines() != [text]:
        return _reject(task, wanted, number, "line break", "the text holds a line break", text)
    if unreadable := next((c for c in text if c in _UNREADABLE), None):
        reason = f"the text holds the character U+{ord(unreadable):04X}"
        return _reject(task, wanted, number, "bad character", reason, text)
    if wanted.input is not None and text in (wanted.input.strip(), quotable(wanted.input)):
        return _reject(task, wanted, number, "copy", "the text is the first text again", text)
    return text


def make_row(task: TaskSpec, wanted: Wanted, number: int, text: str) -> Row:
    """The row of the ``number``-th accepted text, of the kind that the task makes."""
    name = wanted.row_id(number)
    if wanted.input is None:
        return LabelledText(name, text, wanted.label)
    if task.numeric:
        return ScoredPair(name, wanted.input, text, float(wanted.label))
    return LabelledPair(name, wanted.input, text, wanted.label)


def _reject(task: TaskSpec, wanted: Wanted, number: int, name: str, reason: str, text: str) -> Reject:
    row = make_row(task, wanted, 0, text)
    return Reject.of(f"{wanted.id}-try-{number}", name, reason, as_columns(row))
