"""The tries at each request: begun while texts are missing, up to a limit (D4, D6)."""

from collections.abc import Callable, Iterable, Mapping
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
    def tries(self) -> int:
        """How many have ended."""
        return len(self.texts) + len(self.rejects)


@dataclass(slots=True)
class OpenRequest:
    """A request, its prompts' tokens, how many tries are running, and what came of the others."""

    request: TextRequest
    prompt: Prompt
    counter_prompts: tuple[Prompt, ...]
    running: int = 0
    outcome: TryResults = field(default_factory=TryResults)


class Tries:
    """Runs the tries at requests in a decoder, many requests at a time.

    A try is begun only when the tries before it cannot be enough, so the set of tries, and with it every row,
    is that of trying one after the other.

    Args:
        task: whose rows are made.
        decoder: draws the texts.
        limit: tries at a request at most.
        too_long: why a request whose prompts the decoder cannot take is rejected.
        on_done: is called with each request when its last try has ended.
        earlier: by a request's id, what came of its tries in an earlier run; the next ones follow them.
    """

    def __init__(
        self,
        task: TaskSpec,
        decoder: MultiPromptDecoder | RemoteDecoder,
        limit: int,
        too_long: str,
        on_done: Callable[[TextRequest], None],
        earlier: Mapping[str, TryResults],
    ) -> None:
        self._task = task
        self._decoder = decoder
        self._limit = limit
        self._too_long = too_long
        self._on_done = on_done
        self._earlier = earlier
        self._running: dict[int, tuple[OpenRequest, int]] = {}  # by the identity of the decoder's group

    def run(self, requests: Iterable[OpenRequest], enough: Callable[[int], bool]) -> list[OpenRequest]:
        """Try until each request has its texts, or no try is left.

        Args:
            requests: in their order.
            enough: is called with the number of requests that were begun, before each; true leaves the rest.

        Returns:
            the requests that were begun, in their order.
        """
        waiting, begun = iter(requests), list[OpenRequest]()

        def take_up() -> None:
            while self._decoder.room > 0 and not enough(len(begun)) and (each := next(waiting, None)):
                begun.append(each)
                self._take_up(each)

        take_up()
        for continuation in self._decoder.finished():
            each, number = self._running.pop(id(continuation.group))
            each.running -= 1
            text = accepted_text(self._task, each.request, number, continuation)
            if isinstance(text, Reject):
                each.outcome.rejects[number] = text
            else:
                each.outcome.texts[number] = text
                self._reject_repeats(each)
            self._try(each)
            take_up()
        return begun

    def _take_up(self, each: OpenRequest) -> None:
        """Begin a request's tries, after those of an earlier run."""
        if known := self._earlier.get(each.request.id):
            each.outcome = TryResults(dict(known.texts), dict(known.rejects))
        if all(map(self._decoder.fits, (each.prompt, *each.counter_prompts))):
            self._try(each)
            return
        each.outcome.rejects[0] = rejected(self._task, each.request, 0, "too long", self._too_long, "")
        self._on_done(each.request)

    def _try(self, each: OpenRequest) -> None:
        """Begin as many tries as the missing texts ask for."""
        outcome = each.outcome
        while (
            outcome.tries + each.running < self._limit
            and each.running + len(outcome.texts) < each.request.count
        ):
            number = outcome.tries + each.running
            group = Group(each.prompt, each.counter_prompts, stream_key(each.request.id, number))
            self._running[id(group)] = each, number
            self._decoder.add(group, soon=outcome.tries > 0)
            each.running += 1
        if not each.running:
            self._on_done(each.request)

    def _reject_repeats(self, each: OpenRequest) -> None:
        """Of equal texts keep that of the earliest try: a repeat takes no place among those wanted (D6)."""
        first: dict[str, int] = {}
        texts, rejects = each.outcome.texts, each.outcome.rejects
        for number, text in sorted(texts.items()):
            if first.setdefault(text, number) != number:
                # Not which one: when there are three, that would hang on which of them ended first.
                reason = "repeats the text of an earlier try"
                rejects[number] = rejected(self._task, each.request, number, "repeat", reason, text)
                del texts[number]
