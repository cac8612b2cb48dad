"""Beam search with a causal language model, in which prompts share computed prefixes (Q2).

A continuation may end with any of many tokens, such as all tokens that contain a quotation mark. The beam
search of transformers, which ``shared_beams.py`` uses for summaries, computes each prompt separately, even
ten prompts of one passage with ten answers. A session computes what these share once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.models.language.protocols import Prompt, SteerableModel


class Continuation(NamedTuple):
    """A continuation of a prompt: its tokens, the natural logarithm of their probability, whether it ended.

    The last token of a continuation that ended is an end token.
    """

    tokens: tuple[int, ...] = ()
    log_probability: float = 0.0
    ended: bool = False


class _Longer(NamedTuple):
    """A continuation that is one token longer than a beam, and the rank of this beam."""

    beam: int
    continuation: Continuation


@dataclass(slots=True)
class _Search:
    """The search behind one prompt: its beams, the likeliest first, and the continuations that ended."""

    number: int
    beams: list[Continuation] = field(default_factory=lambda: [Continuation()])
    ended: list[Continuation] = field(default_factory=list)

    def advance(self, choices: Sequence[_Longer], width: int) -> list[int]:
        """Make the ``width`` likeliest unended choices the new beams; returns the ranks of their old beams.

        Choices that ended are kept if they are among the ``width`` likeliest of all choices.
        """
        ranked = sorted(choices, key=lambda choice: (-choice.continuation.log_probability, choice))
        self.ended += [choice.continuation for choice in ranked[:width] if choice.continuation.ended]
        going = [choice for choice in ranked if not choice.continuation.ended][:width]
        self.beams = [choice.continuation for choice in going]
        return [choice.beam for choice in going]

    def best(self, count: int, length_penalty: float) -> list[Continuation]:
        """The first ``count`` of: the continuations that ended, by falling scores, and then the beams."""

        def score(continuation: Continuation) -> float:
            return continuation.log_probability / float(len(continuation.tokens) ** length_penalty)

        return [*sorted(self.ended, key=score, reverse=True), *self.beams][:count]


def search_continuations(
    model: SteerableModel,
    prompts: Sequence[Prompt],
    *,
    beams: int,
    count: int,
    max_tokens: int,
    ends: Collection[int],
    never: Collection[int] = (),
    length_penalty: float = 1.0,
) -> list[list[Continuation]]:
    """The continuations that beam search finds for each of n prompts, the best first.

    A search is over when ``beams`` continuations have ended (``early_stopping`` in transformers). If fewer
    than ``count`` continuations have ended after ``max_tokens``, the likeliest beams are returned with them.

    Args:
        model: computes the logits of next tokens.
        prompts: prompts of 1 token or more; each leaves room for ``max_tokens`` in the model's context.
        beams: number of beams for each prompt, 1 or more; this many rows are computed even if fewer fit into
            memory.
        count: largest number of continuations to return for a prompt, 1 to ``beams``.
        max_tokens: longest continuation, its end token included; 1 or more.
        ends: tokens that end a continuation.
        never: tokens that no continuation may contain.
        length_penalty: a log-probability is divided by the number of tokens to this power: 0 finds the
            likeliest continuations, 1 those with the likeliest tokens on average, which may be longer.

    Raises:
        ModelError: the model's scores are NaN.
    """
    longest = max(map(len, prompts), default=1)
    together = max(1, model.rows_that_fit(longest + max_tokens) // beams)
    endings = torch.zeros(model.vocab_size, dtype=torch.bool)
    # Some tokenizers have special tokens that were added without a row in the model's embeddings.
    endings[[token for token in ends if token < model.vocab_size]] = True
    banned = torch.tensor(sorted(token for token in never if token < model.vocab_size), dtype=torch.int64)
    results: list[list[Continuation]] = [[] for _ in prompts]
    for first in range(0, len(prompts), together):
        batch = prompts[first : first + together]
        for search in _search_together(model, batch, beams, max_tokens, endings, banned):
            results[first + search.number] = search.best(count, length_penalty)
    return results


def _search_together(
    model: SteerableModel,
    prompts: Sequence[Prompt],
    beams: int,
    max_tokens: int,
    endings: Tensor,
    banned: Tensor,
) -> Iterator[_Search]:
    """Search behind all prompts at once, token by token; a search is yielded when it is over.

    ``endings`` marks the tokens that end a continuation, ``(vocab,)``; ``banned`` lists those that none may
    contain.
    """
    session = model.session(len(prompts) * beams, prompts, max_tokens)
    searches = [_Search(number) for number in range(len(prompts))]
    with torch.inference_mode():
        session.prefill(prompts)
        logits = session.add_rows(prompts)
    for length in range(1, max_tokens + 1):
        choices = _choices(searches, logits, beams, endings, banned)
        going: list[_Search] = []
        rows: list[int] = []
        first_row = 0
        for search in searches:
            width = len(search.beams)
            of_search = chain.from_iterable(choices[first_row : first_row + width])
            former = search.advance(list(of_search), beams)
            if len(search.ended) >= beams or length == max_tokens or not former:
                yield search
            else:
                going.append(search)
                rows += [first_row + beam for beam in former]
            first_row += width
        if not going:
            return
        searches = going
        last = [beam.tokens[-1] for search in searches for beam in search.beams]
        with torch.inference_mode():
            session.keep_rows(rows)
            logits = session.step(torch.tensor(last))


def _choices(
    searches: Sequence[_Search], logits: Tensor, beams: int, endings: Tensor, banned: Tensor
) -> list[list[_Longer]]:
    """For each beam, its likeliest next tokens: up to ``beams`` end tokens, and up to as many others.

    ``logits``, ``(rows, vocab)``, has a row for each beam. Banned tokens do not change the probabilities of
    the others.
    """
    scores = logits.float().log_softmax(dim=1)
    if bool(scores.isnan().any()):
        raise ModelError("the model's probabilities are not finite numbers; use dtype float32")
    scores.index_fill_(1, banned.to(scores.device), -torch.inf)
    most = min(beams, scores.shape[1])
    ending = endings.to(scores.device)
    likeliest = [scores.masked_fill(ending == ends, -torch.inf).topk(most, dim=1) for ends in (False, True)]
    values = torch.cat([top.values for top in likeliest], dim=1).tolist()
    tokens = torch.cat([top.indices for top in likeliest], dim=1).tolist()
    ended = [True] * most + [False] * most
    ranked_beams = ((rank, beam) for search in searches for rank, beam in enumerate(search.beams))
    return [
        [
            _Longer(rank, Continuation((*beam.tokens, token), beam.log_probability + value, ends))
            for token, value, ends in zip(of_tokens, of_values, ended, strict=True)
            if value > -torch.inf
        ]
        for (rank, beam), of_tokens, of_values in zip(ranked_beams, tokens, values, strict=True)
    ]
