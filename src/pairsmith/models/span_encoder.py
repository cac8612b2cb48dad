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

from pairsmith.core.arguments import check_flag, checked_folder, model_name
from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.model_files import quiet_loading
from pairsmith.core.model_names import resolve_model
from pairsmith.models.encode import moved
from pairsmith.models.heads import Loading
from pairsmith.models.span_heads import SpanHeads, heads_kind, load_heads, save_heads
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder


@dataclass(frozen=True, slots=True)
class SpanEncoder:
    """A student: a token encoder, and the heads for questions.

    Attributes:
        tokens: the encoder with its tokenizer. ``tokens.features(texts)`` returns the encoder's inputs for n
            texts, by name, as padded tensors ``(n, longest)`` int64.
        heads: map the vector of a question's first token, ``(n, d)``, to f_start and f_end, ``(n, d)`` each.
    """

    tokens: TokenEncoder
    heads: SpanHeads

    def __repr__(self) -> str:
        """The encoder's name, without its layers."""
        return f"{type(self).__name__}({self.tokens!r})"

    def cut(self, tokens: int) -> "SpanEncoder":
        """The same encoder with texts truncated to ``tokens`` tokens."""
        return SpanEncoder(replace(self.tokens, max_length=min(tokens, self.tokens.max_length)), self.heads)

    def token_vectors(self, features: Mapping[str, Tensor]) -> Tensor:
        """The token vectors r(c) of n texts (Q4): ``(n, longest, d)`` in the model's dtype.

        ``features`` are what ``tokens.features`` returns for the texts; padding has vectors, too.

        Raises:
            InputError: ``features`` are something else, such as the texts themselves.
        """
        if not isinstance(features, Mapping):
            raise InputError(
                "features must be what the student's tokens.features(texts) returns; they are of the type "
                f"{type(features).__name__}"
            )
        inputs = moved(features, self.tokens.model.device)
        vectors: Tensor = self.tokens.model(**inputs).last_hidden_state
        return vectors

    def question_vectors(self, features: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """f_start and f_end of n questions (Q4), each ``(n, d)`` in the heads' dtype.

        ``features`` are what ``tokens.features`` returns for the questions.
        """
        starts, ends = self.heads(self.token_vectors(features)[:, 0])
        return starts, ends

    def save(self, folder: str | Path) -> None:
        """Save the encoder as a transformers model, the tokenizer and heads, for ``load_student``.

        ``AutoModel`` opens the encoder in the folder.
        """
        folder = checked_folder(folder, "folder")
        with quiet_loading():
            self.tokens.model.save_pretrained(str(folder))
            self.tokens.tokenizer.save_pretrained(str(folder))
        save_heads(self.heads, folder)


def load_span_encoder(
    model: str | Path, *, fresh_heads: bool = False, seed: int = 0, **how: Unpack[Loading]
) -> SpanEncoder:
    """Load ``model``, which ``infuse`` wrote, as a student: an encoder with heads for questions.

    Args:
        model: a folder that ``infuse`` or a student's ``save`` wrote.
        fresh_heads: whether ``model`` may be any encoder of transformers: if it has no heads for questions,
            it gets random heads, to be trained.
        seed: random seed of fresh heads.
        how: ``device`` and ``dtype`` as for ``load_encoder``; ``max_length``, the longest question or window
            of a text in tokens, including special tokens.

    Returns:
        The student, for ``answer_with_student``. With ``student.tokens.features(texts)`` for n texts,
        ``token_vectors`` returns their token vectors, ``(n, longest, d)``, and ``question_vectors`` the two
        vectors of n questions, ``(n, d)`` each, all in ``dtype``. The inner product of a question's first
        vector with a token's is the score of an answer that starts at this token, and with the second vector
        that of one that ends there (Q4). ``save(folder)`` writes the student into a folder.

    Raises:
        ModelError: the model cannot be loaded, or has no heads for questions.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    model = model_name(model)
    check_flag(fresh_heads, "fresh_heads")
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
