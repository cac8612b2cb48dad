"""The decoder for models behind a server: each group on its own, many at the same time.

There are three ways, depending on the server: **plain** sampling, where there is nothing to steer
against; **certified** self-debiasing from lists of the likeliest tokens; **reranked**, which samples a
text and keeps it if its own prompt makes it likelier than every counter-prompt does.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock

import numpy as np
import torch

from pairsmith.core.errors import ModelError
from pairsmith.models.language.certified import certified
from pairsmith.models.language.decoder import Continuation, Ending, Group
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.sampling import Sampling, draw
from pairsmith.models.language.steering import Choices
from pairsmith.runs.seeds import uniforms

WIDER = 5
"""When a list proves too little, one this many times as long is requested."""


class RemoteDecoder:
    """Decodes groups as they are added, as ``MultiPromptDecoder`` does.

    Args:
        model: the server's model, and how it is steered.
        decay: lambda of D3, for ``certified``.
        floor: smallest factor of D3, for ``certified``.
        sampling: truncation and stopping.
        seed: seed of all draws.

    Attributes:
        steps: number of ``certified`` draws, and ``widened`` of those that needed longer lists.
        uncertified: number of groups given up because even longer lists did not prove the next token.
    """

    def __init__(
        self,
        model: RemoteModel,
        sampling: Sampling,
        seed: int,
        *,
        decay: float,
        floor: float,
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._seed = seed
        self._decay, self._floor = decay, floor
        self._at_once = model.at_once
        self._listed = model.listed
        self._longest: int | None = None  # longest list that the server gives, once it is known
        ways = {"plain": self._plain, "certified": self._certified, "reranked": self._reranked}
        self._decoded = ways[model.way]
        self._waiting: deque[Group] = deque()
        self.steps = self.widened = self.uncertified = 0
        self._counting = Lock()

    @property
    def room(self) -> int:
        """How many more groups can be added before more wait than are decoded at the same time."""
        return self._at_once - len(self._waiting)

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt leaves room for ``max_tokens`` within the model's context, and is not empty."""
        return 0 < len(prompt) <= self._model.context - self._sampling.max_tokens

    def add(self, group: Group, *, soon: bool = False) -> None:
        """Queue a group; ``soon`` makes no difference here."""
        del soon
        self._waiting.append(group)

    def finished(self) -> Iterator[Continuation]:
        """Decode until no group is left, yielding continuations as they end; ``add`` may be called then."""
        pool = ThreadPoolExecutor(self._at_once)
        running: set[Future[Continuation]] = set()
        try:
            while self._waiting or running:
                while self._waiting and len(running) < self._at_once:
                    running.add(pool.submit(self._decoded, self._waiting.popleft()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            self._model.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _plain(self, group: Group) -> Continuation:
        sampling = self._sampling
        (number,) = uniforms(self._seed, np.array([group.stream], dtype=np.uint64), np.array([0]))
        text, ending = self._model.continued(
            self._model.decode(group.main),
            int(number * 2**31),
            sampling.top_k,
            sampling.top_p,
            sampling.max_tokens,
            sampling.stop,
        )
        endings: dict[str, Ending] = {"stop": "stop", "length": "length", "end": "end"}
        return Continuation(group, text, (), endings[ending])

    def _reranked(self, group: Group) -> Continuation:
        drawn = self._plain(group)
        if drawn.ending != "stop" or not group.counters:
            return drawn
        prompts = [self._model.decode(prompt) for prompt in group.prompts]
        own, *others = self._model.log_probabilities(prompts, drawn.text + self._sampling.stop)
        return drawn if own > max(others) else Continuation(group, drawn.text, (), "outranked")

    def _certified(self, group: Group) -> Continuation:
        drawn: list[int] = []
        ending: Ending = "length"
        while len(drawn) < self._sampling.max_tokens:
            choices = self._choices([(*prompt, *drawn) for prompt in group.prompts])
            if choices is None:
                self._count(uncertified=1)
                return Continuation(
                    group, self._model.decode(drawn) if drawn else "", tuple(drawn), "uncertified"
                )
            number = uniforms(self._seed, np.array([group.stream], dtype=np.uint64), np.array([len(drawn)]))
            drawn.append(int(draw(choices.kept, choices.tokens, torch.from_numpy(number))))
            if self._sampling.stop[-1] in self._model.text_of(drawn[-1]):
                text, stop, _ = self._model.decode(drawn).partition(self._sampling.stop)
                if stop:
                    return Continuation(group, text, tuple(drawn), "stop")
            elif self._model.ends(drawn[-1]):
                ending = "end"
                break
        return Continuation(group, self._model.decode(drawn), tuple(drawn), ending)

    def _count(self, steps: int = 0, widened: int = 0, uncertified: int = 0) -> None:
        with self._counting:  # several threads decode groups
            self.steps += steps
            self.widened += widened
            self.uncertified += uncertified

    def _choices(self, rows: list[Prompt]) -> Choices | None:
        """A group's certified choices, from longer lists where the first do not prove them."""
        self._count(steps=1)
        for count in (self._listed, WIDER * self._listed):
            if self._longest is not None and count > self._listed >= self._longest:
                break
            try:
                main, *counters = self._model.likeliest(rows, count)
            except ModelError:
                if count == self._listed:
                    raise
                self._longest = self._listed  # it refuses longer lists
                break
            if len(main) < count:
                self._longest = len(main)
            self._count(widened=int(count > self._listed))
            if choices := certified(main, counters, self._sampling, self._decay, self._floor):
                return choices
        return None
