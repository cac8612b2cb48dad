"""Span encoders: bi-encoders for question answering, which encode questions and passages separately (Q4).

Two heads map the vector of a question's first token to the vectors f_start and f_end. The inner product of
f_start with the vector of a passage's token is the score of an answer that starts at this token; the inner
product with f_end is the score of an answer that ends there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.arguments import model_name
from pairsmith.core.errors import ModelError
from pairsmith.core.model_files import quiet_loading
from pairsmith.core.model_names import resolve_model
from pairsmith.models.encode import moved
from pairsmith.models.heads import Loading
from pairsmith.models.span_heads import SpanHeads, heads_kind, load_heads, save_heads
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder


@dataclass(frozen=True, slots=True)
class SpanEncoder:
    """A student: a token encoder, and the heads for questions."""

    tokens: TokenEncoder
    heads: SpanHeads

    def cut(self, tokens: int) -> "SpanEncoder":
        """The same encoder with texts truncated to ``tokens`` tokens."""
        return SpanEncoder(replace(self.tokens, max_length=min(tokens, self.tokens.max_length)), self.heads)

    def token_vectors(self, features: Mapping[str, Tensor]) -> Tensor:
        """The token vectors r(c) of n texts (Q4): ``(n, longest, d)`` in the model's dtype.

        ``features`` are the result of ``TextModel.features`` for the texts.
        """
        inputs = moved(features, self.tokens.model.device)
        vectors: Tensor = self.tokens.model(**inputs).last_hidden_state
        return vectors

    def question_vectors(self, features: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """f_start and f_end of n questions (Q4), each ``(n, d)`` in the heads' dtype."""
        starts, ends = self.heads(self.token_vectors(features)[:, 0])
        return starts, ends

    def save(self, folder: str | Path) -> None:
        """Save the encoder as a transformers model, the tokenizer and heads, for ``load_student``.

        ``AutoModel`` opens the encoder in the folder.
        """
        with quiet_loading():
            self.tokens.model.save_pretrained(str(folder))
            self.tokens.tokenizer.save_pretrained(str(folder))
        save_heads(self.heads, Path(folder))


def load_span_encoder(
    model: str | Path, *, fresh_heads: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> SpanEncoder:
    """Load a student: an encoder that reads texts without a question, and its heads for questions (Q4).

    Args:
        model: a folder that ``infuse`` or a student's ``save`` wrote; with ``fresh_heads`` any encoder of
            transformers.
        fresh_heads: whether an encoder without heads for questions gets random ones, to be trained.
        seed: the random seed of fresh heads.
        how: ``device``: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; ``auto`` (the default) is CUDA if
            available, else MPS, else the CPU. ``dtype``: the weights' number format, ``float32`` (the
            default), ``bfloat16``, ``float16`` or ``auto``. ``max_length``: the longest input in tokens,
            including special tokens; by default what the student was trained with.

    Returns:
        the student, for ``answer_with_student``. With ``features = student.tokens.features(texts)``, model
        inputs ``(n, longest)`` int64, ``student.token_vectors(features)`` returns r(c), ``(n, longest, d)``,
        and ``student.question_vectors(features)`` f_start and f_end, each ``(n, d)`` (Q4), all in ``dtype``.
        ``student.save(folder)`` writes it, so that it can be loaded again.

    Raises:
        ModelError: the model cannot be loaded, or has no heads for questions.
        SettingsError: there is no such device or number format.
    """
    model = model_name(model)
    if not fresh_heads:
        require_question_heads(model)
    tokens = load_token_encoder(model, bidirectional=True, **how)
    where, width = resolve_model(model), int(tokens.model.config.hidden_size)
    fresh = fresh_heads and heads_kind(where) != "questions"
    heads = SpanHeads(width, "questions", seed) if fresh else load_heads(where, width, "questions")
    return SpanEncoder(tokens, heads.to(tokens.model.device, tokens.model.dtype).eval())


def require_question_heads(model: str) -> None:
    """Raise a ``ModelError`` if a model has no heads for questions; this is checked before it is loaded."""
    kind = heads_kind(resolve_model(model))
    if kind != "questions":
        present = (
            "no heads for questions" if kind is None else "heads that read a question and its text together"
        )
        raise ModelError(f"model {model} has {present}; give a folder that infuse wrote")


def span_logits(
    vectors: Tensor, starts: Tensor, ends: Tensor, counts: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Start and end scores of each token of a question's passage (Q4).

    The result is two tensors, ``(questions, tokens)`` float32, unnormalised. The vectors of a passage are
    multiplied with all its questions at once. The products are computed in float32, as with bfloat16's eight
    bits of precision many tokens would have equal scores.

    Args:
        vectors: ``(passages, tokens, d)`` of any floating dtype, the token vectors of each passage.
        starts: ``(questions, d)``, f_start of the questions, passage by passage.
        ends: ``(questions, d)``, f_end of the questions, in the same order.
        counts: the number of questions on each passage, at least 1; their sum is the number of questions.
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
