"""The queue of requests for texts: which wait, and which tries are being decoded (D4)."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pairsmith.data.filters import TOO_LONG
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.requests import TextRequest
from pairsmith.models.language.decoder import Group
from pairsmith.models.language.decoders import Decoder
from pairsmith.models.language.protocols import Prompt


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions by which a caller follows the work and ends it early; those by default do neither.

    Attributes:
        on_start: called before the first request, with the number of rows that are computed at once.
        on_done: called with each request when its last try has ended.
        enough: called before a request is begun, with the number of requests begun so far; if it returns
            true, the remaining ones are skipped.
    """

    on_start: Callable[[int], None] = lambda _: None
    on_done: Callable[[TextRequest], None] = lambda _: None
    enough: Callable[[int], bool] = lambda _: False


class RequestQueue:
    """Begins requests while the decoder has room for them, each with a try for every text that it lacks.

    Args:
        requests: each with the tokens of its prompts, the label's first. Those that have ended tries, of an
            earlier run, go on with the next.
        decoder: decodes the tries, each of which is a group.
        task: decides what kind of rows there will be.
        decoding: gives the most tries of a request, and the most tokens of a text.
        context: the most tokens of the model, for the reason why a request is rejected.
        hooks: of these, ``on_done`` and ``enough`` are called.

    Attributes:
        begun: the requests that were begun, in their order.
    """

    def __init__(
        self,
        requests: Iterable[tuple[TextRequest, tuple[Prompt, ...]]],
        decoder: Decoder,
        task: TaskSpec,
        decoding: Decoding,
        context: int,
        hooks: Hooks,
    ) -> None:
        self.begun: list[TextRequest] = []
        self._waiting = deque(requests)
        self._running: dict[Group, tuple[TextRequest, int]] = {}  # a try's request and its number
        self._decoder = decoder
        self._task = task
        self._tries = decoding.tries
        self._too_long = f"a prompt and {decoding.max_tokens} new tokens exceed the model's {context} tokens"
        self._hooks = hooks

    def begin(self) -> None:
        """Begin waiting requests while there is room; one whose prompts do not fit the model is rejected."""
        while self._waiting and self._decoder.room > 0 and not self._hooks.enough(len(self.begun)):
            request, prompts = self._waiting.popleft()
            self.begun.append(request)
            if all(map(self._decoder.fits, prompts)):
                self._begin_tries(request, prompts)
            else:
                request.reject(0, TOO_LONG, self._too_long, "", self._task)
                self._hooks.on_done(request)

    def ended(self, group: Group) -> None:
        """Accept or reject a try's text (D4, D6), begin further tries of its request, then other requests."""
        request, number = self._running.pop(group)
        request.running -= 1
        request.ended(number, group, self._task)
        self._begin_tries(request, group.prompts)
        self.begin()

    def _begin_tries(self, request: TextRequest, prompts: tuple[Prompt, ...]) -> None:
        """Begin a try for every text that a request lacks, up to the limit; without any, it is done."""
        # A further try begins soon, as the decoder may still hold the keys and values of the prompts.
        tried = bool(request.texts or request.rejects)
        for number in request.next_tries(self._tries):
            group = request.group(number, prompts)
            self._running[group] = request, number
            self._decoder.add(group, soon=tried)
            request.running += 1
        if not request.running:
            self._hooks.on_done(request)
