"""The loss of a student, and its targets: distributions of answers' starts and ends over its tokens (Q5).

a question's labels -> distributions over characters, or hard labels (Q6) -> T_start and T_end over tokens
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.data.questions import Distribution, GeneratedQuestion
from pairsmith.methods.quip.training_options import StudentLabels
from pairsmith.models.token_vectors import Ints, TextTokens, end_tokens, start_tokens


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question, with distributions over the characters at which its answer starts and ends.

    None stands for the first token of the passage, which is the target if the passage does not contain the
    answer (Q6).
    """

    question: str
    starts: Distribution | None
    ends: Distribution | None


@dataclass(frozen=True, slots=True)
class PassageExample:
    """A passage with all its questions."""

    text: str
    questions: Sequence[LabelledQuestion]


def sparse_cross_entropy(logits: Tensor, allowed: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """-Σ T(i) log p(i) for a sparse distribution T, where p is the softmax over the allowed tokens (Q5).

    Args:
        logits: ``(n, tokens)`` of any floating dtype, finite.
        allowed: ``(n, tokens)`` bool, the tokens that the softmax is over.
        places: ``(n, k)`` int64, the tokens at which T is not 0; all of them are allowed.
        weights: ``(n, k)`` float32, T at these tokens; 0 for padding.

    Returns:
        ``(n,)`` float32, at least 0.
    """
    likelihoods = logits.float().masked_fill(~allowed, -torch.inf).log_softmax(dim=1)
    return -(likelihoods.gather(1, places) * weights).sum(dim=1)


def labelled_question(question: GeneratedQuestion, labels: StudentLabels) -> LabelledQuestion:
    """A question with the targets that a student learns: T_start and T_end (Q5), or a variant (Q6).

    With the labels ``teacher`` the targets are the teacher's distributions, with ``hard`` their likeliest
    positions, and with ``answers`` the ends of the generated answer.
    """
    if labels == "answers":
        if question.generated_span is None:
            return LabelledQuestion(question.question, None, None)
        start, end = (Distribution((position,), (1.0,)) for position in question.generated_span)
        return LabelledQuestion(question.question, start, end)
    starts, ends = question.distributions()
    if labels == "hard":
        starts, ends = likeliest(starts), likeliest(ends)
    return LabelledQuestion(question.question, starts, ends)


def likeliest(distribution: Distribution) -> Distribution:
    """A hard label (Q6): probability 1 at the likeliest position; an empty distribution stays empty."""
    if not distribution.positions:
        return distribution
    best = int(np.argmax(distribution.probabilities))
    return Distribution((distribution.positions[best],), (1.0,))


def targets(tokens: Sequence[TextTokens], rows: Sequence[PassageExample]) -> dict[str, Tensor]:
    """T_start and T_end of Q5 over the student's tokens, for the questions of all rows, row by row.

    ``tokens`` are the student's tokens of each row's passage. The probabilities of positions within the same
    token add up. Positions after the last token, where the text was cut off, are left out. Without a
    distribution, the target is the first token (Q6).

    Returns:
        ``start_places`` and ``end_places``, ``(questions, k)`` int64, indices of tokens in the passage; and
        ``start_weights`` and ``end_weights``, ``(questions, k)`` float32, the tokens' probabilities, 0 for
        padding. The k of starts and that of ends may differ.
    """
    passages = zip(tokens, rows, strict=True)
    questions = [(of_passage, question) for of_passage, row in passages for question in row.questions]
    starts = [_in_tokens(of_passage, question.starts, start_tokens) for of_passage, question in questions]
    ends = [_in_tokens(of_passage, question.ends, end_tokens) for of_passage, question in questions]
    return {
        "start_places": pad_sequence([places for places, _ in starts], batch_first=True),
        "start_weights": pad_sequence([weights for _, weights in starts], batch_first=True),
        "end_places": pad_sequence([places for places, _ in ends], batch_first=True),
        "end_weights": pad_sequence([weights for _, weights in ends], batch_first=True),
    }


def is_read(tokens: TextTokens, question: LabelledQuestion) -> bool:
    """Whether any start or end of the answer lies in the part of the passage that the student reads."""
    starts, _ = _in_tokens(tokens, question.starts, start_tokens)
    ends, _ = _in_tokens(tokens, question.ends, end_tokens)
    return len(starts) + len(ends) > 0


def _in_tokens(
    tokens: TextTokens, distribution: Distribution | None, tokens_at: Callable[[Ints, Ints], Ints]
) -> tuple[Tensor, Tensor]:
    """The tokens at a distribution's positions, ``(k,)`` int64, and their probabilities, ``(k,)`` float32.

    Positions that are cut off are left out.
    """
    if distribution is None:
        return torch.zeros(1, dtype=torch.int64), torch.ones(1)
    indices = tokens_at(tokens.offsets, np.array(distribution.positions, np.int64))
    read = indices >= 0
    weights = torch.tensor(distribution.probabilities, dtype=torch.float32)[read]
    return torch.from_numpy(tokens.numbers[indices[read]]), weights
