"""The decoder for models behind a server, which decodes many groups at the same time, each by itself.

There are three ways of steering. **plain** samples from the main prompt alone, without steering.
**certified** computes self-debiasing from lists of the likeliest tokens. **reranked** samples a text from the
main prompt, and accepts it if it is likelier after this prompt than after every counter-prompt.
"""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float64s
from pairsmith.core.errors import ModelError
from pairsmith.models.language.certified import certified
from pairsmith.models.language.decoder import Group
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.remote import PromptLengthError, RemoteModel
from pairsmith.models.language.sampling import Sampling, draw_tokens
from pairsmith.runs.seeds import uniforms

WIDER = 5
"""If the lists do not prove the next token, lists this many times as long are requested."""
STOP_SECONDS = 0.5
"""After Ctrl-C, requests that were already sent may still be answered for this many seconds."""


class RemoteDecoder:
    """Decodes groups as they are added, as ``MultiPromptDecoder`` does.

    ``decay`` and ``floor`` are those of D3, for ``certified``.
    """

    def __init__(
        self, model: RemoteModel, sampling: Sampling, seed: int, *, decay: float, floor: float
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._seed = seed
        self._decay, self._floor = decay, floor
        self._at_once = model.at_once
        self._longest: int | None = None  # longest list that the server gives, once it is known
        ways = {"plain": self._plain, "certified": self._certified, "reranked": self._reranked}
        self._decode = ways[model.way]
        self._waiting: deque[Group] = deque()
        self._answered = False  # whether the server has answered for any group
        self._refused: PromptLengthError | None = None

    @property
    def room(self) -> int:
        """How many more groups can be added before more are waiting than are decoded at the same time."""
        return self._at_once - len(self._waiting)

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt leaves room for ``max_tokens`` within the model's context, and is not empty."""
        return 0 < len(prompt) <= self._model.context - self._sampling.max_tokens

    def add(self, group: Group, *, soon: bool = False) -> None:
        """Queue a group; ``soon`` makes no difference here."""
        del soon
        self._waiting.append(group)

    def finished(self) -> Iterator[Group]:
        """Decode until no group is left; yields each group when it ends, and ``add`` may be called then.

        If the server refuses all groups for the length of their prompts, the last refusal is raised: a prompt
        that is too long is its input's fault, all of them are not.

        After an error, requests that were already sent are still answered, and their answers kept. Ctrl-C
        does not wait for these answers. When all of them have ended, the model can be used again.
        """
        running: set[Future[Group]] = set()
        try:
            while self._waiting or running:
                while self._waiting and len(running) < self._at_once:
                    running.add(self._begin(self._waiting.popleft()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
            if self._refused and not self._answered:  # as if the server's limit is too small for any prompt
                raise self._refused
        except BaseException as error:
            self._model.stopped.set()
            wait(running, None if isinstance(error, Exception) else STOP_SECONDS)

            def resume(_: Future[Group] | None = None) -> None:
                if all(future.done() for future in running):
                    self._model.stopped.clear()

            for future in running:
                future.add_done_callback(resume)
            resume()
            raise

    def _begin(self, group: Group) -> Future[Group]:
        """Decode a group in a thread of its own.

        Python waits at its end for the threads of a pool, also for one in a request that takes minutes.
        """
        future: Future[Group] = Future()

        def decode() -> None:
            try:
                self._decode(group)
                self._answered = True
                future.set_result(group)
            except PromptLengthError as error:
                # A prompt alone is too long in every try; with a text, another text may be shorter.
                group.ending = "length" if group.text or group.tokens else "too long"
                self._refused = error
                future.set_result(group)
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=decode, daemon=True).start()
        return future

    def _plain(self, group: Group) -> Group:
        sampling = self._sampling
        (number,) = self._number(group, 0)
        group.text, group.ending = self._model.continued(
            group.main,
            int(number * 2**31),
            sampling.top_k,
            sampling.top_p,
            sampling.max_tokens,
            sampling.stop,
        )
        return group

    def _reranked(self, group: Group) -> Group:
        if self._plain(group).ending == "stop" and group.counters:
            own, *others = self._model.server.log_probabilities(
                group.prompts, group.text + self._sampling.stop
            )
            if own <= max(others):
                group.ending = "outranked"
        return group

    def _certified(self, group: Group) -> Group:
        while group.ending is None:
            choices = self._choices([(*prompt, *group.tokens) for prompt in group.prompts])
            if choices is None:
                group.ending = "uncertified"
                group.text = self._model.decode(group.tokens) if group.tokens else ""
                break
            number = torch.from_numpy(self._number(group, len(group.tokens)))
            token = int(draw_tokens(*choices, number))
            group.tokens.append(token)
            may_stop = self._sampling.stop[-1] in self._model.text_of(token)
            group.end_if_complete(
                self._model.decode, self._sampling, may_stop=may_stop, is_end=self._model.ends(token)
            )
        return group

    def _number(self, group: Group, place: int) -> Float64s:
        """The random number, ``(1,)``, with which a group draws its token number ``place``."""
        return uniforms(self._seed, np.array([group.stream], dtype=np.uint64), np.array([place]))

    def _choices(self, rows: list[Prompt]) -> tuple[Tensor, Tensor] | None:
        """A group's certified choices, from longer lists if the first lists do not prove them."""
        listed = self._model.listed
        for count in (listed, WIDER * listed):
            if self._longest is not None and count > listed >= self._longest:
                break
            try:
                main, *counters = self._model.server.likeliest(rows, count)
            except ModelError:
                if count == listed:
                    raise
                self._longest = listed  # it refuses longer lists
                break
            if len(main) < count:
                self._longest = len(main)
            if choices := certified(main, counters, self._sampling, self._decay, self._floor):
                return choices
        return None
