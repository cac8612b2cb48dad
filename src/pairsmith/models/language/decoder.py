"""The decoder: many continuations at once, each steered by the next-token distributions of several prompts.

A **group** is one continuation: a main prompt, its counter-prompts, and the tokens drawn so far,
which are appended to all of them. Each prompt of a group is a row of the model's batch. Groups of
any inputs, labels and tries decode together up to a row budget; when a group stops, a waiting one
takes its rows at once. A distinct prompt is computed once for all groups that need it at about the
same time, in batches of prompts computed ahead.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.models.language.combine import Combine
from pairsmith.models.language.protocols import Prompt, Session, SteerableModel
from pairsmith.models.language.sampling import Sampling, draw
from pairsmith.models.language.steering import choose, combined
from pairsmith.runs.seeds import uniforms

Ending = Literal["stop", "length", "end", "uncertified", "outranked"]

AHEAD_TOKENS = 2048
"""Prompts are computed ahead in batches of about this many tokens, in the order of the waiting groups."""


@dataclass(frozen=True, slots=True)
class Group:
    """One continuation to be drawn."""

    main: Prompt  # the prompt that the text is written for
    counters: tuple[Prompt, ...]  # the prompts that the text must not fit better; may be empty
    stream: int  # key of its random stream (``runs.seeds.stream_key``)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The main prompt, then the counter-prompts."""
        return (self.main, *self.counters)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The continuation drawn for a group.

    It ends with ``stop`` (the stop string was drawn), ``length`` (it was not within the limit), ``end`` (the
    model drew an end token); for a server's model also with ``uncertified`` (its lists did not prove the next
    token) and ``outranked`` (a counter-prompt makes the text likelier).
    """

    group: Group
    text: str  # before the stop string, or all of it when there was none
    tokens: tuple[int, ...]  # those drawn, including the stop string's
    ending: Ending


@dataclass(slots=True)
class _Active:
    """A group in the batch: its row numbers, main prompt first, and its tokens so far."""

    group: Group
    rows: list[int]
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw as passed to ``watch``, to show what a rule changed.

    ``p_main`` is the main prompt's distribution, ``p_combined`` the combined one before truncation, each
    ``(vocab,)`` float32.
    """

    group: Group
    token: int
    p_main: Tensor
    p_combined: Tensor


class MultiPromptDecoder:
    """Decodes groups as they are added; see the module's docstring.

    Args:
        rule: combines the prompts' distributions, e.g. ``partial(self_debias, decay=100.0)``.
        prompts: all prompts of the groups to come, for planning memory; prompts that do not fit are skipped.
        rows: row budget, at least the number of prompts of the largest group; by default what the model
            says fits the memory.
        watch: called with every draw; slow, and meant for a few examples.
    """

    def __init__(
        self,
        model: SteerableModel,
        rule: Combine,
        sampling: Sampling,
        seed: int,
        prompts: Iterable[Prompt],
        rows: int | None = None,
        watch: Callable[[Draw], None] | None = None,
    ) -> None:
        self._model = model
        self._rule = rule
        self._sampling = sampling
        self._seed = seed
        self._planned = frozenset(prompt for prompt in prompts if self.fits(prompt))
        longest = max(map(len, self._planned), default=1)
        self._budget = rows or model.rows_that_fit(longest + sampling.max_tokens)
        self._session: Session = model.session(self._budget, self._planned, sampling.max_tokens)
        self._waiting: deque[Group] = deque()
        self._ready: deque[Group] = deque()  # groups whose prompts are computed
        self._active: list[_Active] = []
        self._used: Counter[Prompt] = Counter()  # computed prompts, and how many groups need them
        self._stop_tokens = model.tokens_with(sampling.stop[-1])
        # Some tokenizers have special tokens that were added without a row in the model's embeddings.
        ends = sorted(end for end in model.end_tokens if end < model.vocab_size)
        self._forbidden = [] if sampling.may_end else ends
        self._watch = watch

    @property
    def room(self) -> int:
        """How many more rows can be added before the waiting groups exceed one batch."""
        return self._budget - sum(
            len(group.prompts) for line in (self._waiting, self._ready) for group in line
        )

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt leaves room for ``max_tokens`` within the model's context, and is not empty."""
        return 0 < len(prompt) <= self._model.context - self._sampling.max_tokens

    def add(self, group: Group, *, soon: bool = False) -> None:
        """Queue a group; with ``soon``, e.g. for a retry, at the front if its prompts are computed."""
        if len(group.prompts) > self._budget:
            raise ValueError(f"a group of {len(group.prompts)} prompts needs more than {self._budget} rows")
        if not all(map(self.fits, group.prompts)):
            raise ValueError(
                f"a prompt is empty, or it and {self._sampling.max_tokens} new tokens "
                f"do not fit the model's {self._model.context}"
            )
        if not self._planned.issuperset(group.prompts):
            raise ValueError("a group has a prompt that was not announced to the decoder")
        if soon and all(prompt in self._used for prompt in group.prompts):
            self._used.update(group.prompts)
            self._ready.appendleft(group)
        else:
            self._waiting.append(group)

    def finished(self) -> Iterator[Continuation]:
        """Decode until no group is left, yielding continuations as they end; ``add`` may be called then."""
        while self._waiting or self._ready or self._active:
            with torch.inference_mode():
                self._enter()
                done = self._end()
                self._step()
            yield from done

    def _enter(self) -> None:
        """Move groups whose prompts are computed into the free rows, and free prompts that none needs."""
        rows = sum(len(active.rows) for active in self._active)
        entering: list[_Active] = []
        while (group := self._next_ready()) and rows + len(group.prompts) <= self._budget:
            entering.append(_Active(group, list(range(rows, rows + len(group.prompts)))))
            rows += len(group.prompts)
            self._ready.popleft()
        for prompt in [prompt for prompt, groups in self._used.items() if not groups]:
            del self._used[prompt]
            self._session.forget(prompt)
        if entering:
            self._active += entering
            self._draw(entering, self._session.add_rows([p for a in entering for p in a.group.prompts]))

    def _next_ready(self) -> Group | None:
        """The next group to enter; computes the prompts of waiting groups, a batch at a time."""
        if not self._ready and self._waiting:
            new: dict[Prompt, None] = {}
            size = 0
            while self._waiting and size < AHEAD_TOKENS:
                group = self._waiting.popleft()
                fresh = [prompt for prompt in group.prompts if prompt not in self._used]
                new.update(dict.fromkeys(fresh))
                size += sum(map(len, fresh))
                self._used.update(group.prompts)
                self._ready.append(group)
            self._session.prefill(list(new))
        return self._ready[0] if self._ready else None

    def _end(self) -> list[Continuation]:
        """Remove the groups that ended with the last draw, and return their continuations."""
        ended = [self._ended(active) for active in self._active]
        done = [continuation for continuation in ended if continuation]
        if done:
            for continuation in done:
                self._used.subtract(continuation.group.prompts)
            self._active = [active for active, end in zip(self._active, ended, strict=True) if not end]
            self._session.keep_rows([row for active in self._active for row in active.rows])
            first = 0
            for active in self._active:  # renumbered without gaps
                active.rows = list(range(first, first + len(active.rows)))
                first += len(active.rows)
        return done

    def _step(self) -> None:
        """Feed every row its group's last token, and draw the next."""
        if not self._active:
            return
        tokens = torch.empty(sum(len(active.rows) for active in self._active), dtype=torch.int64)
        for active in self._active:
            tokens[active.rows] = active.tokens[-1]
        self._draw(self._active, self._session.step(tokens))

    def _draw(self, groups: list[_Active], logits: Tensor) -> None:
        """Draw one more token for each group; the groups' rows are consecutive in ``logits``."""
        most = max(len(active.rows) for active in groups)
        first = min(active.rows[0] for active in groups)
        listed = [
            [row - first for row in active.rows] + [-1] * (most - len(active.rows)) for active in groups
        ]
        rows = torch.tensor(listed, device=logits.device)
        if self._forbidden:
            logits[:, self._forbidden] = -torch.inf
        choices = choose(logits, rows, self._rule, self._sampling)
        # The remaining tensors are small, and not every device has float64.
        kept, tokens = choices.kept.cpu(), choices.tokens.cpu()
        if not bool(kept.isfinite().all()):
            raise ModelError("the model's probabilities are not finite numbers; use --dtype float32")
        streams = np.array([active.group.stream for active in groups], dtype=np.uint64)
        positions = np.array([len(active.tokens) for active in groups])
        numbers = torch.from_numpy(uniforms(self._seed, streams, positions))
        for active, token in zip(groups, draw(kept, tokens, numbers).tolist(), strict=True):
            active.tokens.append(token)
        if self._watch:
            p_main, p_combined = combined(logits, rows, self._rule)
            for i, active in enumerate(groups):
                self._watch(Draw(active.group, active.tokens[-1], p_main[i], p_combined[i]))

    def _ended(self, active: _Active) -> Continuation | None:
        """The group's continuation if its last token ended it."""
        token, drawn = active.tokens[-1], tuple(active.tokens)
        if token in self._stop_tokens:
            text, stop, _ = self._model.decode(drawn).partition(self._sampling.stop)
            if stop:
                return Continuation(active.group, text, drawn, "stop")
        if token in self._model.end_tokens:
            return Continuation(active.group, self._model.decode(drawn), drawn, "end")
        if len(drawn) == self._sampling.max_tokens:
            return Continuation(active.group, self._model.decode(drawn), drawn, "length")
        return None
