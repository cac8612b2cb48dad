"""The tries at each request: begun while texts are missing, up to a limit (D4, D6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pairsmith.data.schemas import Reject
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.acceptance import accepted_text, rejected
from pairsmith.methods.dino.requests import TextRequest
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.runs.seeds import stream_key


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

    A try is begun only when the tries before it cannot be enough, so the set of tries, and with it every row,
    is that of trying one after the other. A request has at most ``limit`` tries, with those of an earlier run
    that are in its outcome. ``too_long`` says why a request whose prompts the decoder cannot take is
    rejected. ``on_done`` and ``enough`` are called as ``methods.dino.method.write`` says.
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
    """Of equal texts keep that of the earliest try: a repeat takes no place among those wanted (D6)."""
    first: dict[str, int] = {}
    texts, rejects = each.outcome.texts, each.outcome.rejects
    for number, text in sorted(texts.items()):
        if first.setdefault(text, number) != number:
            # Not which one: when there are three, that would hang on which of them ended first.
            reason = "repeats the text of an earlier try"
            rejects[number] = rejected(task, each.request, number, "repeat", reason, text)
            del texts[number]
