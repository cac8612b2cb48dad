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


class RequestQueue:
    """Begins requests while the decoder has room for them: a try for each text that a request still needs.

    Args:
        requests: each request with the tokens of its prompts, the label's prompt first. A request that
            already holds ended tries, from an earlier run, continues with its next try.
        decoder: decodes the tries; each try is a group of the decoder.
        task: decides the type of the rows.
        decoding: sets the largest number of tries of a request, and of tokens of a text.
        context: the largest number of tokens that the model reads, which the reason of a reject names.
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
        """Begin waiting requests while there is room; reject those whose prompts do not fit the model."""
        while self._waiting and self._decoder.room > 0 and not self._hooks.enough(len(self.begun)):
            request, prompts = self._waiting.popleft()
            self.begun.append(request)
            if all(map(self._decoder.fits, prompts)):
                self._begin_tries(request, prompts)
            else:
                request.reject(0, TOO_LONG, self._too_long, "", self._task)
                self._hooks.on_done(request)

    def ended(self, group: Group) -> None:
        """Accept or reject the text of a try (D4, D6); then begin more tries of its request, and requests."""
        request, number = self._running.pop(group)
        request.running -= 1
        request.ended(number, group, self._task)
        self._begin_tries(request, group.prompts)
        self.begin()

    def _begin_tries(self, request: TextRequest, prompts: tuple[Prompt, ...]) -> None:
        """Begin a try for each text that the request still needs, up to the limit.

        A request is done if no try of it is running then.
        """
        # A retry goes to the front, as the decoder may still hold the keys and values of the prompts.
        is_retry = bool(request.texts or request.rejects)
        for number in request.next_tries(self._tries):
            group = request.group(number, prompts)
            self._running[group] = request, number
            self._decoder.add(group, soon=is_retry)
            request.running += 1
        if not request.running:
            self._hooks.on_done(request)
