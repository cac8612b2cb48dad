"""The decoder: many continuations at once, each steered by the next-token distributions of several prompts.

A **group** is one continuation: a main prompt, its counter-prompts, and the tokens drawn so far,
which continue all of them alike. Each prompt of a group is a row of the model's batch. Groups of
any inputs, labels and tries decode together up to a row budget; a group that stops leaves at once
and a waiting one takes its rows. A distinct prompt is computed once for all the groups that start
from it within reach of each other.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairsmith.errors import ModelError
from pairsmith.lm.combine import Combine, counter_maximum
from pairsmith.lm.protocols import Prompt, Session, SteerableModel
from pairsmith.lm.sampling import Sampling, draw, truncate
from pairsmith.runs.seeds import uniforms

Ending = Literal["stop", "length", "end"]


@dataclass(frozen=True, slots=True)
class Group:
    """One continuation to be drawn.

    Attributes:
        main: tokens of the prompt that the text is written for.
        counters: tokens of the prompts that it must not fit better; may be empty.
        stream: name of its random numbers (``runs.seeds.stream_key``).
    """

    main: Prompt
    counters: tuple[Prompt, ...]
    stream: int

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The main prompt, then the counter-prompts."""
        return (self.main, *self.counters)


@dataclass(frozen=True, slots=True)
class Continuation:
    """What was drawn for a group.

    Attributes:
        group: the group it belongs to.
        text: the text before the stop string, or all of it when there was none.
        tokens: what was drawn, the stop string's tokens included.
        ending: ``stop`` (the stop string came), ``length`` (it did not within the limit), or
            ``end`` (the model ended the text itself).
    """

    group: Group
    text: str
    tokens: tuple[int, ...]
    ending: Ending


@dataclass(slots=True)
class _Active:
    """A group in the batch: its row numbers, main prompt first, and its tokens so far."""

    group: Group
    rows: list[int]
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw as a watcher sees it, for showing what a rule changed.

    Attributes:
        group: the group.
        token: what was drawn.
        p_main: the main prompt's distribution, ``(vocab,)`` float32.
        p_combined: the rule's, before truncation, ``(vocab,)`` float32.
    """

    group: Group
    token: int
    p_main: Tensor
    p_combined: Tensor


class MultiPromptDecoder:
    """Decodes groups as they are added; see the module's text.

    Args:
        model: gives the distributions.
        rule: combines them, e.g. ``partial(self_debias, decay=100.0)``.
        sampling: truncation and stopping.
        seed: of all draws.
        rows: row budget; at least as many as the largest group has prompts.
        watch: hears of every draw; slow, and meant for a few examples.
    """

    def __init__(
        self,
        model: SteerableModel,
        rule: Combine,
        sampling: Sampling,
        seed: int,
        rows: int = 256,
        watch: Callable[[Draw], None] | None = None,
    ) -> None:
        self._model = model
        self._rule = rule
        self._sampling = sampling
        self._seed = seed
        self._budget = rows
        self._session: Session = model.session(rows)
        self._waiting: deque[Group] = deque()
        self._active: list[_Active] = []
        self._logits = torch.empty(0, model.vocab_size)
        self._computed: OrderedDict[Prompt, None] = OrderedDict()
        self._stop_tokens = model.tokens_with(sampling.stop[-1])
        self._watch = watch

    @property
    def room(self) -> int:
        """How many more rows the waiting line can use before it is longer than the batch."""
        return self._budget - sum(len(group.prompts) for group in self._waiting)

    def fits(self, group: Group) -> bool:
        """Whether each prompt of a group leaves room for ``max_tokens`` within the model's context."""
        return max(map(len, group.prompts)) + self._sampling.max_tokens <= self._model.context

    def add(self, group: Group) -> None:
        """Put a group into the waiting line.

        Raises:
            ValueError: it has more prompts than there are rows, an empty prompt, or one that
                leaves no room for ``max_tokens`` within the model's context.
        """
        if len(group.prompts) > self._budget:
            raise ValueError(f"a group of {len(group.prompts)} prompts needs more than {self._budget} rows")
        if not self.fits(group) or not all(group.prompts):
            raise ValueError(
                f"a prompt is empty, or it and {self._sampling.max_tokens} new tokens "
                f"do not fit the model's {self._model.context}"
            )
        self._waiting.append(group)

    def finished(self) -> Iterator[Continuation]:
        """Decode until nothing waits, yielding each continuation as it ends; ``add`` may be called then."""
        while self._waiting or self._active:
            with torch.inference_mode():
                self._enter()
                done = self._advance()
            yield from done

    def _enter(self) -> None:
        """Move waiting groups into the free rows."""
        entering: list[_Active] = []
        used = self._logits.shape[0]
        while self._waiting and used + len(self._waiting[0].prompts) <= self._budget:
            group = self._waiting.popleft()
            entering.append(_Active(group, list(range(used, used + len(group.prompts)))))
            used += len(group.prompts)
        if not entering:
            return
        prompts = [prompt for active in entering for prompt in active.group.prompts]
        self._compute(prompts)
        fresh = self._session.add_rows(prompts)
        self._logits = torch.cat([self._logits.to(fresh), fresh])
        self._active += entering

    def _compute(self, prompts: Sequence[Prompt]) -> None:
        """Have every prompt computed, and let those used longest ago go."""
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._computed]
        if new:
            self._session.prefill(new)
        for prompt in prompts:
            self._computed[prompt] = None
            self._computed.move_to_end(prompt)
        # What an input's other labels and its next tries need stays; a prompt may take many megabytes.
        while len(self._computed) > max(self._budget // 4, len(set(prompts))):
            self._session.forget(self._computed.popitem(last=False)[0])

    def _advance(self) -> list[Continuation]:
        """Draw one token for every group; returns the groups that ended with it."""
        drawn = self._draw()
        done: list[Continuation] = []
        staying: list[_Active] = []
        for active, token in zip(self._active, drawn, strict=True):
            active.tokens.append(token)
            ended = self._ended(active)
            if ended is None:
                staying.append(active)
            else:
                done.append(ended)
        if done:
            self._leave(staying)
        if staying:
            tokens = torch.empty(self._logits.shape[0], dtype=torch.int64)
            for active in staying:
                tokens[active.rows] = active.tokens[-1]
            self._logits = self._session.step(tokens)
        return done

    def _draw(self) -> list[int]:
        """One token for each active group from its combined, truncated distribution."""
        probabilities = torch.softmax(self._logits.float(), dim=1)
        device = probabilities.device
        most = max(len(active.rows) for active in self._active)
        rows = torch.tensor([a.rows + [-1] * (most - len(a.rows)) for a in self._active], device=device)
        p_main = probabilities[rows[:, 0]]
        combined = self._rule(p_main, counter_maximum(probabilities, rows[:, 1:])) if most > 1 else p_main
        kept, choices = truncate(combined, self._sampling.top_k, self._sampling.top_p)
        kept, choices = kept.cpu(), choices.cpu()  # what is left is small, and not every device has float64
        if not bool(kept.isfinite().all()):
            raise ModelError("the model's probabilities are not finite numbers; use --dtype float32")
        streams = np.array([active.group.stream for active in self._active], dtype=np.uint64)
        positions = np.array([len(active.tokens) for active in self._active])
        numbers = torch.from_numpy(uniforms(self._seed, streams, positions))
        drawn: list[int] = draw(kept, choices, numbers).tolist()
        if self._watch:
            for i, (active, token) in enumerate(zip(self._active, drawn, strict=True)):
                self._watch(Draw(active.group, token, p_main[i], combined[i]))
        return drawn

    def _ended(self, active: _Active) -> Continuation | None:
        """The group's continuation if its last token ended it."""
        token = active.tokens[-1]
        if token in self._stop_tokens:
            text, stop, _ = self._model.decode(active.tokens).partition(self._sampling.stop)
            if stop:
                return Continuation(active.group, text, tuple(active.tokens), "stop")
        ending: Ending | None = None
        if token in self._model.end_tokens:
            ending = "end"
        elif len(active.tokens) == self._sampling.max_tokens:
            ending = "length"
        if ending is None:
            return None
        return Continuation(active.group, self._model.decode(active.tokens), tuple(active.tokens), ending)

    def _leave(self, staying: list[_Active]) -> None:
        """Close the gaps that ended groups left, moving as few rows as can be."""
        kept = {row for active in staying for row in active.rows}
        size = len(kept)
        gaps = iter(row for row in range(size) if row not in kept)
        order = list(range(size))
        for active in staying:
            for i, row in enumerate(active.rows):
                if row >= size:
                    active.rows[i] = next(gaps)
                    order[active.rows[i]] = row
        self._active = staying
        self._session.keep_rows(order)
        self._logits = self._logits[order]
