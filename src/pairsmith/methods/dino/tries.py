"""The tries at each request, and the texts that are accepted as rows (D1, D4, D6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pairsmith.data.schemas import LabelledPair, LabelledText, Reject, ScoredPair, as_columns
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.requests import TextRequest, quotable
from pairsmith.models.language.decoder import Continuation, Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.runs.seeds import stream_key

Row = ScoredPair | LabelledPair | LabelledText
"""What the method makes: a row of the kind that the task's labels ask for."""

# By how a text ended, the filter that rejects it and the reason.
_ENDINGS = {
    "length": ("no end", "no quotation mark within the token limit"),
    "end": ("no end", "the model ended the text without a quotation mark"),
    "uncertified": ("not certified", "the server's lists of likeliest tokens do not prove the next token"),
    "outranked": ("outranked", "a counter-label's prompt makes the text at least as likely"),
}
# Control characters, and the mark that stands for bytes that are no text.
_UNREADABLE = frozenset([*map(chr, range(32)), *map(chr, range(127, 160)), "\ufffd"])


@dataclass(slots=True)
class TryResults:
    """What came of the tries at a request: by the number of the try, its text or why there is none."""

    texts: dict[int, str] = field(default_factory=dict)
    rejects: dict[int, Reject] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many tries have ended."""
        return len(self.texts) + len(self.rejects)

    def copy(self) -> "TryResults":
        """The same results, to which others can be added."""
        return TryResults(dict(self.texts), dict(self.rejects))


@dataclass(slots=True)
class OpenRequest:
    """A request, its prompts' tokens, what came of its tries, and how many are running."""

    request: TextRequest
    prompt: Prompt
    counter_prompts: tuple[Prompt, ...]
    outcome: TryResults
    running: int = 0


def run_tries(
    task: TaskSpec,
    decoder: MultiPromptDecoder | RemoteDecoder,
    requests: Iterable[OpenRequest],
    limit: int,
    too_long: str,
    on_done: Callable[[TextRequest], None],
    enough: Callable[[int], bool],
) -> list[OpenRequest]:
    """Try until each request has its texts, or no try is left; returns those that were begun, in their order.

    A try is begun only if the request would lack a text even if all its running tries succeeded. So the same
    tries are made, and the same rows, as if each try waited for the one before. A request has at most
    ``limit`` tries, including those of an earlier run, which are in its outcome. ``too_long`` says why a
    request whose prompts the decoder cannot take is rejected. ``on_done`` and ``enough`` are called as
    ``methods.dino.method.write`` says.
    """
    running: dict[int, tuple[OpenRequest, int]] = {}  # by the identity of the decoder's group
    waiting, begun = iter(requests), list[OpenRequest]()

    def begin_tries(each: OpenRequest) -> None:
        """Begin as many tries as the missing texts ask for."""
        outcome = each.outcome
        while outcome.ended + each.running < limit and each.running + len(outcome.texts) < each.request.count:
            number = outcome.ended + each.running
            group = Group(each.prompt, each.counter_prompts, stream_key(each.request.id, number))
            running[id(group)] = each, number
            decoder.add(group, soon=outcome.ended > 0)
            each.running += 1
        if not each.running:
            on_done(each.request)

    def begin_requests() -> None:
        while decoder.room > 0 and not enough(len(begun)) and (each := next(waiting, None)):
            begun.append(each)
            if all(map(decoder.fits, (each.prompt, *each.counter_prompts))):
                begin_tries(each)
                continue
            each.outcome.rejects[0] = rejected(task, each.request, 0, "too long", too_long, "")
            on_done(each.request)

    begin_requests()
    for continuation in decoder.finished():
        each, number = running.pop(id(continuation.group))
        each.running -= 1
        text = accepted_text(task, each.request, number, continuation)
        if isinstance(text, Reject):
            each.outcome.rejects[number] = text
        else:
            each.outcome.texts[number] = text
            _reject_repeats(task, each)
        begin_tries(each)
        begin_requests()
    return begun


def _reject_repeats(task: TaskSpec, each: OpenRequest) -> None:
    """Reject texts that repeat that of an earlier try, so that they do not count as wanted texts (D6)."""
    first: dict[str, int] = {}
    texts, rejects = each.outcome.texts, each.outcome.rejects
    for number, text in sorted(texts.items()):
        if first.setdefault(text, number) != number:
            # The earlier try is not named: of three equal texts, its number depends on which ended first.
            reason = "repeats the text of an earlier try"
            rejects[number] = rejected(task, each.request, number, "repeat", reason, text)
            del texts[number]


def accepted_text(task: TaskSpec, request: TextRequest, number: int, written: Continuation) -> str | Reject:
    """The text of try ``number``, or why it is rejected: a text that cleaning would remove takes no place."""
    text = written.text.strip()
    fault = _fault(request, written.ending, text)
    return rejected(task, request, number, *fault, text) if fault else text


def _fault(request: TextRequest, ending: str, text: str) -> tuple[str, str] | None:
    """The filter that rejects a text, and the reason; None if it is accepted."""
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if not text:
        return "empty", "nothing before the quotation mark"
    if text.splitlines() != [text]:
        return "line break", "the text holds a line break"
    if unreadable := next((c for c in text if c in _UNREADABLE), None):
        return "bad character", f"the text holds the character U+{ord(unreadable):04X}"
    if request.input is not None and text in (request.input.strip(), quotable(request.input)):
        return "copy", "the text repeats the first text"
    return None


def make_row(task: TaskSpec, request: TextRequest, number: int, text: str) -> Row:
    """The row of the ``number``-th accepted text, of the kind that the task makes."""
    name = request.row_id(number)
    if request.input is None:
        return LabelledText(name, text, request.label)
    if task.numeric:
        return ScoredPair(name, request.input, text, float(request.label))
    return LabelledPair(name, request.input, text, request.label)


def rejected(
    task: TaskSpec, request: TextRequest, number: int, filter_: str, reason: str, text: str
) -> Reject:
    """The reject of try ``number``, with the row that it would have been."""
    row = make_row(task, request, 0, text)
    return Reject.of(f"{request.id}-try-{number}", filter_, reason, as_columns(row))
