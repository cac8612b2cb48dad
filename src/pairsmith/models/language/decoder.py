"""The decoder: many continuations at once, each steered by the next-token distributions of several prompts.

A **group** is one continuation: a main prompt, its counter-prompts, and the tokens drawn so far, which are
appended to all of these prompts. Each prompt of a group is a row of the model's batch. Groups of any inputs,
labels and tries decode together, up to a budget of rows; when a group ends, a waiting group takes its rows at
once. Prompts are computed ahead in batches, and a prompt is computed once for all groups that need it at
about the same time. A group may also follow another that ended, as a question follows its answer: it takes
over the rows of the other, and no prompt is computed again.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.models.language.combine import Rule
from pairsmith.models.language.prefixes import common_length
from pairsmith.models.language.protocols import DecodingSession, Prompt, SteerableModel
from pairsmith.models.language.sampling import Sampling, draw_tokens
from pairsmith.models.language.steering import full_distributions, token_choices
from pairsmith.runs.seeds import uniforms

Ending = Literal["stop", "length", "end", "uncertified", "outranked", "too long"]

AHEAD_TOKENS = 2048
"""Prompts are computed ahead in batches of about this many tokens, in the order of the waiting groups.

Batches are larger on a GPU, where a call of the model takes as long as many tokens. On a CPU, where shared
prefixes are computed once, the tokens that a prompt shares with the previous one do not count.
"""


@dataclass(slots=True, eq=False)
class Group:
    """A text that is being drawn: its prompts, the tokens so far, which follow all prompts, and how it ended.

    ``ending`` is None while tokens are drawn. Then it is ``stop`` (the stop string was drawn), ``length``
    (the stop string was not drawn within the limit) or ``end`` (an end token was drawn); for a server's model
    also ``uncertified`` (the server's lists did not prove the next token), ``outranked`` (the text is at
    least as likely after a counter-prompt) or ``too long`` (the server refused a prompt for its length).
    """

    main: Prompt  # the prompt that the text is written for
    counters: tuple[Prompt, ...]  # the prompts that the text must not fit better; may be empty
    stream: int  # key of its random stream (``runs.seeds.stream_key``)
    tokens: list[int] = field(default_factory=list)  # those drawn, including the stop string's
    text: str = ""  # set at the end: the text before the stop string, or the whole text without one
    ending: Ending | None = None
    rows: list[int] = field(default_factory=list)  # the rows in the batch, the main prompt's row first
    max_tokens: int | None = None  # the most tokens to draw; None for the limit of the sampling
    before: tuple[int, ...] = ()  # tokens between the prompts and the drawn tokens
    unread: deque[int] = field(default_factory=deque)  # the last of ``before``, still to be fed to the rows

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The main prompt, then the counter-prompts."""
        return (self.main, *self.counters)

    def end_if_complete(
        self, decode: Callable[[list[int]], str], sampling: Sampling, *, may_stop: bool, is_end: bool
    ) -> None:
        """Set text and ending if the token that was drawn last ends the text.

        ``may_stop`` is whether this token holds the stop string's last character, ``is_end`` whether it is an
        end token of the model. ``decode`` returns the text of tokens.
        """
        if may_stop:
            text, stop, _ = decode(self.tokens).partition(sampling.stop)
            if stop:
                self.text, self.ending = text, "stop"
                return
        if is_end:
            self.ending = "end"
        elif len(self.tokens) == (self.max_tokens or sampling.max_tokens):
            self.ending = "length"
        if self.ending:
            self.text = decode(self.tokens)


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw as passed to ``watch``, which shows what a rule changed.

    ``p_main`` is the main prompt's distribution, ``p_steered`` that of the rule before truncation, both
    ``(vocab,)`` float32.
    """

    group: Group
    token: int
    p_main: Tensor
    p_steered: Tensor


class MultiPromptDecoder:
    """Decodes groups as they are added; see the module's docstring.

    Args:
        model: gives the logits of the next token for many rows at once.
        sampling: D4: top-k, top-p, the most tokens and the stop string.
        seed: of every draw, from 0 to 2**63 - 1.
        rule: combines the prompts' distributions, e.g. ``partial(self_debias, decay=100.0)``.
        prompts: all prompts of the groups to come, for planning memory; prompts that do not fit the model's
            context are skipped.
        rows: the budget of rows, at least the number of prompts of the largest group; by default, what fits
            into memory according to the model.
        watch: called with every draw; slow, and meant for a few examples.
        tail: the largest number of tokens after a prompt, including those of groups that follow others; at
            least ``sampling.max_tokens``, which is the default.
    """

    def __init__(
        self,
        model: SteerableModel,
        rule: Rule,
        sampling: Sampling,
        seed: int,
        prompts: Iterable[Prompt],
        rows: int | None = None,
        watch: Callable[[Draw], None] | None = None,
        tail: int | None = None,
    ) -> None:
        self._model = model
        self._rule = rule
        self._sampling = sampling
        self._seed = seed
        self._tail = sampling.max_tokens if tail is None else tail
        if self._tail < sampling.max_tokens:
            raise ValueError(f"a tail of {tail} tokens is shorter than a text of {sampling.max_tokens}")
        self._planned = frozenset(prompt for prompt in prompts if self.fits(prompt))
        longest = max(map(len, self._planned), default=1)
        self._budget = rows or model.rows_that_fit(longest + self._tail)
        self._session: DecodingSession = model.session(self._budget, self._planned, self._tail)
        self._waiting: deque[Group] = deque()
        self._ready: deque[Group] = deque()  # groups whose prompts are computed
        self._active: list[Group] = []  # those with rows in the batch
        self._used: Counter[Prompt] = Counter()  # computed prompts, and how many groups need them
        self._stop_tokens = model.tokens_with(sampling.stop[-1])
        # Some tokenizers have special tokens that were added without a row in the model's embeddings.
        ends = sorted(end for end in model.end_tokens if end < model.vocab_size)
        self._forbidden = [] if sampling.may_end else ends
        self._watch = watch

    @property
    def room(self) -> int:
        """How many more rows can be added before the waiting groups need more than one batch."""
        return self._budget - sum(
            len(group.prompts) for line in (self._waiting, self._ready) for group in line
        )

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt leaves room for ``tail`` tokens within the model's context, and is not empty."""
        return 0 < len(prompt) <= self._model.context - self._tail

    def add(self, group: Group, *, soon: bool = False) -> None:
        """Queue a group; with ``soon``, e.g. for a retry, at the front if its prompts are computed."""
        if len(group.prompts) > self._budget:
            raise ValueError(f"a group of {len(group.prompts)} prompts needs more than {self._budget} rows")
        if not all(map(self.fits, group.prompts)):
            raise ValueError(
                f"a prompt is empty, or it and {self._tail} new tokens "
                f"do not fit the model's {self._model.context}"
            )
        if group.tokens or group.before:
            raise ValueError("a group is decoded once; make another for another text")
        if group.max_tokens is not None and not 0 < group.max_tokens <= self._tail:
            raise ValueError(f"a text of {group.max_tokens} tokens does not fit a tail of {self._tail}")
        if not self._planned.issuperset(group.prompts):
            raise ValueError("a group has a prompt that was not announced to the decoder")
        if soon and all(prompt in self._used for prompt in group.prompts):
            self._used.update(group.prompts)
            self._ready.appendleft(group)
        else:
            self._waiting.append(group)

    def room_after(self, ended: Group) -> int:
        """How many tokens can follow a group that ended: the lead tokens and the text after them together."""
        return self._tail - len(ended.before) - len(ended.tokens) + 1

    def follow(self, ended: Group, lead: Sequence[int], stream: int, max_tokens: int) -> Group:
        """Draw another text after that of a group which ``finished`` has just yielded, in the same rows.

        Args:
            ended: the group to follow; its last token, which ended it, is not read.
            lead: one or more tokens that are read in place of that token. They and ``max_tokens`` together
                have to fit ``room_after``.
            stream: key of the random stream of the new text.
            max_tokens: the largest number of tokens to draw.
        """
        if ended.ending is None or ended not in self._active:
            raise ValueError("only a group that has just ended can be followed")
        if not lead or len(lead) + max_tokens > self.room_after(ended):
            raise ValueError(
                f"{len(lead)} tokens and {max_tokens} to draw do not fit the {self.room_after(ended)} left"
            )
        following = Group(
            ended.main,
            ended.counters,
            stream,
            max_tokens=max_tokens,
            before=(*ended.before, *ended.tokens[:-1], *lead),
            rows=ended.rows,
            unread=deque(lead),
        )
        self._active[self._active.index(ended)] = following
        return following

    def finished(self) -> Iterator[Group]:
        """Decode until no group is left; yields each group when it ends.

        A group that was just yielded may be followed (``follow``), and groups may be added.
        """
        while self._waiting or self._ready or self._active:
            with torch.inference_mode():
                self._enter()  # draws the first tokens of groups
                for group in self._active:
                    if not group.unread:
                        last = group.tokens[-1]
                        may_stop, is_end = last in self._stop_tokens, last in self._model.end_tokens
                        group.end_if_complete(
                            self._model.decode, self._sampling, may_stop=may_stop, is_end=is_end
                        )
            yield from [group for group in self._active if group.ending]
            with torch.inference_mode():
                self._remove_ended()
                self._step()  # draws the next ones

    def _enter(self) -> None:
        """Move groups whose prompts are computed into free rows, and free the prompts that no group needs."""
        rows = sum(len(group.rows) for group in self._active)
        entering: list[Group] = []
        while (group := self._next_ready()) and rows + len(group.prompts) <= self._budget:
            group.rows = list(range(rows, rows + len(group.prompts)))
            entering.append(group)
            rows += len(group.prompts)
            self._ready.popleft()
        for prompt in [prompt for prompt, groups in self._used.items() if not groups]:
            del self._used[prompt]
            self._session.forget(prompt)
        if entering:
            self._active += entering
            logits = self._session.add_rows([p for group in entering for p in group.prompts])
            self._draw(entering, logits, first=entering[0].rows[0])

    def _next_ready(self) -> Group | None:
        """The next group to enter; computes the prompts of waiting groups, a batch at a time."""
        if not self._ready and self._waiting:
            new: dict[Prompt, None] = {}
            size, last = 0, Prompt()
            most = max(AHEAD_TOKENS, self._session.call_tokens)
            while self._waiting and size < most and len(new) < self._budget:
                group = self._waiting.popleft()
                fresh = [prompt for prompt in group.prompts if prompt not in self._used]
                new.update(dict.fromkeys(fresh))
                for prompt in fresh:
                    size += len(prompt) - (0 if self._session.call_tokens else common_length(last, prompt))
                    last = prompt
                self._used.update(group.prompts)
                self._ready.append(group)
            self._session.prefill(list(new))
        return self._ready[0] if self._ready else None

    def _remove_ended(self) -> None:
        """Remove the groups that ended and were not followed, and free their rows."""
        ended = [group for group in self._active if group.ending]
        if not ended:
            return
        for group in ended:
            self._used.subtract(group.prompts)
        self._active = [group for group in self._active if not group.ending]
        # Rows past the end move to the places of those that ended, so that few have to be moved.
        rows = [row for group in self._active for row in group.rows]
        holes = iter(sorted(set(range(len(rows))) - set(rows)))
        moved = {row: next(holes) for row in rows if row >= len(rows)}
        old = {place: row for row, place in moved.items()}
        self._session.keep_rows([old.get(place, place) for place in range(len(rows))])
        for group in self._active:
            group.rows = [moved.get(row, row) for row in group.rows]

    def _step(self) -> None:
        """Feed every row its group's next token, and draw a token for each group without unread tokens."""
        if not self._active:
            return
        tokens = torch.empty(sum(len(group.rows) for group in self._active), dtype=torch.int64)
        for group in self._active:
            tokens[group.rows] = group.unread.popleft() if group.unread else group.tokens[-1]
        logits = self._session.step(tokens)
        if drawing := [group for group in self._active if not group.unread]:
            self._draw(drawing, logits, first=0)

    def _draw(self, groups: list[Group], logits: Tensor, first: int) -> None:
        """Draw a token for each group; ``logits`` are those of the batch's rows from ``first`` on."""
        most = max(len(group.rows) for group in groups)
        listed = [[row - first for row in group.rows] + [-1] * (most - len(group.rows)) for group in groups]
        rows = torch.tensor(listed, device=logits.device)
        if self._forbidden:
            logits[:, self._forbidden] = -torch.inf
        # The choices are small tensors, and not every device has float64.
        kept, tokens = (t.cpu() for t in token_choices(logits, rows, self._rule, self._sampling))
        if not bool(kept.isfinite().all()):
            raise ModelError("the model's probabilities are not finite numbers; use dtype float32")
        streams = np.array([group.stream for group in groups], dtype=np.uint64)
        positions = np.array([len(group.tokens) for group in groups])
        numbers = torch.from_numpy(uniforms(self._seed, streams, positions))
        for group, token in zip(groups, draw_tokens(kept, tokens, numbers).tolist(), strict=True):
            group.tokens.append(token)
        if self._watch:
            p_main, p_steered = full_distributions(logits, rows, self._rule)
            for i, group in enumerate(groups):
                self._watch(Draw(group, group.tokens[-1], p_main[i], p_steered[i]))
