"""What a student learns of a teacher: where answers start and end, in the student's own tokens (Q5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.encoders.alignment import Ints, end_tokens, start_tokens
from pairsmith.encoders.token_vectors import TextTokens
from pairsmith.records.asked import Distribution


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and where its answer starts and ends: places in the passage, and the weight of each.

    No place at all stands for the passage's first token.
    """

    question: str
    starts: Distribution | None
    ends: Distribution | None


@dataclass(frozen=True, slots=True)
class PassageLesson:
    """A passage, and all that is asked of it."""

    text: str
    questions: Sequence[Asked]


def sparse_cross_entropy(logits: Tensor, allowed: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """-Σ T(i) log p(i) of a sparse distribution T, p the softmax over the allowed tokens (Q5).

    The Kullback-Leibler divergence of p from T, but for the entropy of T, which no training changes.

    Args:
        logits: ``(n, tokens)`` of any floating dtype, finite.
        allowed: ``(n, tokens)`` bool.
        places: ``(n, k)`` int64, tokens at which T is not 0; allowed ones.
        weights: ``(n, k)`` float32, T there; 0 where there are fewer than k.

    Returns:
        ``(n,)`` float32, at least 0.
    """
    likelihoods = logits.float().masked_fill(~allowed, -torch.inf).log_softmax(dim=1)
    return -(likelihoods.gather(1, places) * weights).sum(dim=1)


def targets(tokens: Sequence[TextTokens], rows: Sequence[PassageLesson]) -> dict[str, Tensor]:
    """Where answers start and end, in tokens: ``{start,end}_places`` and ``…_weights``, ``(questions, k)``.

    Probabilities of places that one token holds are added up. What lies behind the last token, in text
    that was cut off, is left out. No place stands for the first token of all (Q6).

    Args:
        tokens: of each row's passage.
        rows: passages with their questions.
    """
    each = [(of_text, asked) for of_text, row in zip(tokens, rows, strict=True) for asked in row.questions]
    found = {
        "start": [_in_tokens(of_text, asked.starts, start_tokens) for of_text, asked in each],
        "end": [_in_tokens(of_text, asked.ends, end_tokens) for of_text, asked in each],
    }
    return {
        f"{name}_{what}": pad_sequence([both[number] for both in some], batch_first=True)
        for name, some in found.items()
        for number, what in enumerate(("places", "weights"))
    }


def is_read(tokens: TextTokens, asked: Asked) -> bool:
    """Whether any place of a question's answer is among the tokens of its passage that are read."""
    starts, _ = _in_tokens(tokens, asked.starts, start_tokens)
    ends, _ = _in_tokens(tokens, asked.ends, end_tokens)
    return len(starts) + len(ends) > 0


def _in_tokens(
    tokens: TextTokens, distribution: Distribution | None, tokens_at: Callable[[Ints, Ints], Ints]
) -> tuple[Tensor, Tensor]:
    """The tokens of those places that are read, and their weights."""
    if distribution is None:
        return torch.zeros(1, dtype=torch.int64), torch.ones(1)
    at = tokens_at(tokens.offsets, np.array(distribution.positions, np.int64))
    known = at >= 0
    weights = torch.tensor(distribution.probabilities, dtype=torch.float32)[known]
    return torch.from_numpy(tokens.numbers[at[known]]), weights
