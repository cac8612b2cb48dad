"""A request for one label's texts for one input: prompts (D1, D2), acceptance (D4, D6) and rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial

from pairsmith.data.filters import COPY, DUPLICATE, TOO_LONG
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import LabelledPair, LabelledText, Reject, ScoredPair, as_columns
from pairsmith.data.tasks import PLACEHOLDER, TaskSpec
from pairsmith.data.text.instructed import quotable
from pairsmith.models.language.decoder import Group
from pairsmith.models.language.faults import TextFault, fault_of_text
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.servers import MOST_SENT, UNKNOWN_CONTEXT
from pairsmith.runs.seeds import stream_key

GeneratedRow = ScoredPair | LabelledPair | LabelledText
"""A generated row; its class depends on the task's kind and on whether its labels are numbers."""

# Control characters, and the mark that stands for bytes that are no text.
_UNREADABLE = frozenset([*map(chr, range(32)), *map(chr, range(127, 160)), "\ufffd"])

_MOST_CHARACTERS = 100
"""No prompt has more characters per token than this on average; English has 4 or 5."""


@dataclass(slots=True)
class TextRequest:
    """A request for ``count`` texts of one label and, in a pair task, one input; and its tries.

    The ``id`` is made of the input's content and the label; the ids of rows and the keys of random streams
    derive from it. ``input`` is the first text, unchanged, and None in a text task. ``prompt`` is the label's
    instruction with the input filled in, and ``counter_prompts`` are the same for the counter-labels (D2). A
    try that has ended is in ``texts`` or in ``rejects``, by its number.
    """

    id: str
    input: str | None
    label: str
    count: int
    prompt: str
    counter_prompts: tuple[str, ...]
    texts: dict[int, str] = field(default_factory=dict)
    rejects: dict[int, Reject] = field(default_factory=dict)
    running: int = 0  # tries

    def next_tries(self, limit: int) -> range:
        """The numbers of the tries to begin now, of ``limit`` tries at most.

        There is one for each text that would still be missing if all running tries succeeded. A request thus
        makes the same tries, and the same rows, as if each try waited for the end of the one before it. No
        try follows one whose prompt was too long.
        """
        if any(reject.filter == TOO_LONG for reject in self.rejects.values()):
            return range(0)
        first = len(self.texts) + len(self.rejects) + self.running
        return range(first, min(limit, first + self.count - len(self.texts) - self.running))

    def group(self, number: int, prompts: tuple[Prompt, ...]) -> Group:
        """Try ``number`` as a group with its own random stream; ``prompts`` are the tokens of all prompts."""
        return Group(prompts[0], prompts[1:], stream_key(self.id, number))

    def accept_or_reject(self, number: int, group: Group, task: TaskSpec) -> None:
        """Accept or reject the text of try ``number``; copies and repeats do not count as texts (D4, D6)."""
        text = group.text.strip()
        if fault := self._fault(group):
            # A server refuses the same prompt in every try that runs, so all of them have one reject.
            self.reject(0 if fault[0] == TOO_LONG else number, *fault, text, task)
            return
        self.texts[number] = text
        first: dict[str, int] = {}  # repeats of a text are rejected, whichever try ended first (D6)
        for tried, same in sorted(self.texts.items()):
            if first.setdefault(same, tried) != tried:
                # The first try is not named: of three equal texts, its number depends on which ended first.
                self.reject(tried, DUPLICATE, "repeats the text of an earlier try", same, task)
                del self.texts[tried]

    def _fault(self, group: Group) -> TextFault | None:
        """The name of the filter that rejects a text, with the reason; None if the text is accepted."""
        if fault := fault_of_text(group.text, group.ending, lambda character: character not in _UNREADABLE):
            return fault
        if self.input is not None and group.text.strip() in (self.input.strip(), quotable(self.input)):
            return COPY, "the text repeats the first text"
        return None

    def reject(self, number: int, filter_: str, reason: str, text: str, task: TaskSpec) -> None:
        """Reject try ``number``; the reject holds the row that the text would have become."""
        row = as_columns(self._row(0, text, task))
        self.rejects[number] = Reject.of(f"{self.id}-try-{number}", filter_, reason, row)

    def rows(self, task: TaskSpec) -> list[GeneratedRow]:
        """A row for each text, in the order of the tries."""
        return [self._row(place, text, task) for place, (_, text) in enumerate(sorted(self.texts.items()))]

    def _row(self, place: int, text: str, task: TaskSpec) -> GeneratedRow:
        if self.input is None:
            return LabelledText(self.id, text, self.label)
        if task.numeric:
            return ScoredPair(f"{self.id}-{place}", self.input, text, float(self.label))
        return LabelledPair(f"{self.id}-{place}", self.input, text, self.label)


def pair_requests(task: TaskSpec, inputs: Iterable[str], per_input: int) -> Iterator[TextRequest]:
    """For each input and each label, a request for ``per_input`` second texts (D4)."""
    for text in inputs:
        quoted = quotable(text)
        name = text_id(text)
        number = int(name, 16)  # so that a text has the same wording whatever stands beside it
        for label in task.written_names:
            main, *counters = (
                wording.replace(PLACEHOLDER, quoted) for wording in _wordings(task, label, number)
            )
            yield TextRequest(f"{name}-{label}", text, label, per_input, main, tuple(counters))


def text_requests(task: TaskSpec, numbers: Iterable[int]) -> Iterator[TextRequest]:
    """For each number and each label, a request for one text (D5, D14)."""
    for number in numbers:
        for label in task.written_names:
            main, *counters = _wordings(task, label, number)
            yield TextRequest(f"{label}-{number:06d}", None, label, 1, main, tuple(counters))


def _wordings(task: TaskSpec, label: str, number: int) -> Iterator[str]:
    """The label's instruction in one wording, then each counter-label's in the wording of the same place."""
    place = number % len(task.label(label).wordings)
    yield task.instruction(label, place)
    for counter in task.counters(label):
        yield task.instruction(counter, place)


def prompt_tokens(task: TaskSpec, model: SteerableModel | RemoteModel, prompt: str) -> Prompt:
    """The tokens of a prompt, as plain text or in the model's chat format, which not all models have.

    A prompt that is certainly too long is not tokenized, as tokenizers take minutes for a text of megabytes
    and cannot be interrupted. In its place stand as many zeros as make it one token too long. The result is
    empty if the prompt is too long to be sent to a server that does not tell its context.
    """
    if model.context == UNKNOWN_CONTEXT and len(prompt) > MOST_SENT:
        return ()
    if len(prompt) > _MOST_CHARACTERS * model.context:
        return (0,) * (model.context + 1)
    if task.format == "plain":
        return tuple(model.encode(prompt))
    message, _, answer = prompt.rpartition("\n")
    return tuple(model.encode_chat(message, answer))


def encoded_requests(
    task: TaskSpec, model: SteerableModel | RemoteModel, requests: Iterable[TextRequest], *, steered: bool
) -> Iterator[tuple[TextRequest, tuple[Prompt, ...]]]:
    """Each request with the tokens of its prompt and, where texts are ``steered``, of its counter-prompts."""
    encode = lru_cache(maxsize=64)(partial(prompt_tokens, task, model))  # an input's labels share prompts
    for request in requests:
        prompts = (request.prompt, *request.counter_prompts) if steered else (request.prompt,)
        yield request, tuple(map(encode, prompts))
