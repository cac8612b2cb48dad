"""Span encoders: bi-encoders for question answering, which encode questions and passages apart (Q4).

The start head turns the vector of a question's first token into f_start, the end head into f_end. The inner
product of f_start with a token's vector scores an answer that starts there; f_end scores where it ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import resolve_model
from pairsmith.models.encode import moved
from pairsmith.models.heads import Loading
from pairsmith.models.span_heads import SpanHeads, heads_kind, load_heads
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder


@dataclass(frozen=True, slots=True)
class SpanEncoder:
    """What a student is: a token encoder, and the heads for questions."""

    tokens: TokenEncoder
    heads: SpanHeads

    def cut(self, tokens: int) -> "SpanEncoder":
        """The same encoder, which reads at most ``tokens`` tokens of a text."""
        return SpanEncoder(replace(self.tokens, max_length=min(tokens, self.tokens.max_length)), self.heads)

    def token_vectors(self, features: Mapping[str, Tensor]) -> Tensor:
        """r(c) of Q4: the vectors of the last layer, ``(n, longest, d)``, in the model's dtype.

        ``features`` are those of n texts, as ``TextModel.features`` makes them.
        """
        inputs = moved(features, self.tokens.model.device)
        vectors: Tensor = self.tokens.model(**inputs).last_hidden_state
        return vectors

    def question_vectors(self, features: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """f_start and f_end of n questions (Q4), each ``(n, d)``, in the heads' dtype."""
        starts, ends = self.heads(self.token_vectors(features)[:, 0])
        return starts, ends


def load_span_encoder(
    model: str, *, fresh_heads: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> SpanEncoder:
    """Load ``model``, written by ``infuse``, as a span encoder.

    With ``fresh_heads``, any encoder of transformers gets random heads for questions, to be trained; existing
    heads are kept. ``device``, ``dtype`` and ``max_length`` are as for ``load_with_head``.
    """
    if not fresh_heads:
        require_question_heads(model)
    tokens = load_token_encoder(model, bidirectional=True, **how)
    where, width = resolve_model(model), int(tokens.model.config.hidden_size)
    fresh = fresh_heads and heads_kind(where) != "questions"
    heads = SpanHeads(width, "questions", seed) if fresh else load_heads(where, width, "questions")
    return SpanEncoder(tokens, heads.to(tokens.model.device, tokens.model.dtype).eval())


def require_question_heads(model: str) -> None:
    """Refuse a model without heads for questions, before it is loaded or others are trained beside it."""
    kind = heads_kind(resolve_model(model))
    if kind != "questions":
        present = (
            "no heads for questions" if kind is None else "heads that read a question and its text together"
        )
        raise ModelError(f"model {model} has {present}; give a folder that infuse wrote")


def span_logits(
    vectors: Tensor, starts: Tensor, ends: Tensor, counts: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """How well an answer starts, and ends, at each token of its question's passage (Q4).

    Both are ``(questions, tokens)`` float32, unnormalised. Each passage's vectors are multiplied once with
    all its questions, in float32: with bfloat16's eight bits of precision many tokens would tie.

    Args:
        vectors: ``(passages, tokens, d)``, of any floating dtype.
        starts: ``(questions, d)``, f_start of the questions, passage by passage; ``ends``: f_end.
        counts: number of questions of each passage, at least 1; the sum is ``questions``.
    """
    if len(counts) != len(vectors) or sum(counts) != len(starts) or min(counts, default=1) < 1:
        raise ValueError(
            f"expected a count of 1 or more for each of {len(vectors)} passages, {len(starts)} in all, got "
            f"{list(counts)}"
        )
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]  # (passages, largest count)
    mask = mask.to(vectors.device)

    def products(questions: Tensor) -> Tensor:
        by_passage = pad_sequence(list(torch.split(questions.float(), list(counts))), batch_first=True)
        return (by_passage @ vectors.float().transpose(1, 2))[mask]

    with torch.autocast(vectors.device.type, enabled=False):
        return products(starts), products(ends)
