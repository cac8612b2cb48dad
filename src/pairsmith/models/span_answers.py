"""Question answering with a span encoder: each passage is encoded once for all its questions (Q4, Q7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.core.batches import in_batches
from pairsmith.models.encode import batches_by_length, not_finite, tokens_at_once
from pairsmith.models.reader import (
    ANSWER_TOKENS,
    OVERLAP,
    QUESTION_TOKENS,
    Feature,
    Prediction,
    best_span,
    collate,
    features_of,
    keep_max_context,
    rows_of_questions,
)
from pairsmith.models.span_encoder import SpanEncoder, span_logits
from pairsmith.models.token_vectors import TokenEncoder

_AT_ONCE = 64
"""Number of passages whose vectors are in memory at the same time."""


def text_windows(encoder: TokenEncoder, texts: Sequence[str]) -> list[Feature]:
    """Cut texts into windows that fit into the encoder, in the order of the texts (Q7).

    Consecutive windows share ``OVERLAP`` tokens, but at most half of a window. ``is_context`` of a shared
    token is True only in the window with the most context around it. A blank text has one window, in which
    ``is_context`` is False for all tokens.
    """
    room = encoder.max_length - encoder.tokenizer.num_special_tokens_to_add()
    encoded = encoder.tokenized(
        texts,
        stride=min(OVERLAP, room // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=False,
    )
    windows = features_of(encoded, texts, 0)
    for rows in rows_of_questions(windows):
        keep_max_context([windows[row].offsets for row in rows], [windows[row].is_context for row in rows])
    return windows


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """The vectors of a text's tokens; tokens of white space count as special tokens."""

    vectors: Tensor  # (tokens, d), the vectors of all tokens that are not special
    offsets: Tensor  # (tokens, 2) int64, start and end of these tokens in the text, in characters
    special: Tensor  # (special tokens of all windows, d), the vectors of the special tokens


def text_vectors(
    encoder: SpanEncoder, texts: Sequence[str], *, batch_tokens: int | None = None
) -> list[TextVectors]:
    """The token vectors r(c) of each text (Q4), from its ``text_windows``; the longest are encoded first."""
    windows = text_windows(encoder.tokens, texts)
    lengths = [len(window.input_ids) for window in windows]
    model = encoder.tokens.model
    none = torch.zeros(0, int(model.config.hidden_size), dtype=model.dtype, device=model.device)
    by_window = dict.fromkeys(range(len(windows)), (none, none))
    for rows in batches_by_length(lengths, batch_tokens=batch_tokens or tokens_at_once(model.device)):
        if not lengths[rows[0]]:  # blank texts, where the tokenizer adds no special tokens
            continue
        features = collate(encoder.tokens, [windows[row] for row in rows])
        for row, vectors in zip(rows, encoder.token_vectors(features), strict=True):
            window = windows[row]
            own = vectors[: len(window.is_context)]
            # Tokens with offsets that are not context are those that the next or previous window has.
            masks = window.is_context, ~window.offsets.any(dim=1)
            by_window[row] = own[masks[0].to(own.device)], own[masks[1].to(own.device)]
    return [
        TextVectors(
            torch.cat([by_window[row][0] for row in rows]),
            torch.cat([windows[row].offsets[windows[row].is_context] for row in rows]),
            torch.cat([by_window[row][1] for row in rows]),
        )
        for rows in rows_of_questions(windows)
    ]


def answer_with_span_encoder(
    encoder: SpanEncoder,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    max_answer_tokens: int = ANSWER_TOKENS,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Prediction]:
    """Answer each question by a span of its text; probabilities are softmaxes over the whole text (Q7).

    Args:
        encoder: the span encoder; it is put into evaluation mode.
        questions: n questions, may be none; each is truncated to 64 tokens.
        contexts: the text of each of the n questions; if it is blank, the answer is empty and has score 0.
        max_answer_tokens: the largest number of tokens of an answer.
        advance: is called with the number of questions on a text after they were answered.

    Returns:
        The answer to each question: its text, the offset of its first character in the context, and its
        probability.

    Raises:
        ModelError: the encoder's vectors are not finite.
    """
    encoder.tokens.model.eval()
    numbers_of: dict[str, list[int]] = {}
    for number, context in enumerate(contexts):
        numbers_of.setdefault(context, []).append(number)
    texts = list(numbers_of)
    predictions: dict[int, Prediction] = {}
    with torch.inference_mode():
        for batch in in_batches(texts, _AT_ONCE):
            numbers = [number for text in batch for number in numbers_of[text]]
            start_end = question_vectors(encoder, [questions[number] for number in numbers])
            counts = [len(numbers_of[text]) for text in batch]
            starts, ends = (torch.split(vectors, counts) for vectors in start_end)
            encoded = text_vectors(encoder, batch)
            for text, tokens, start, end in zip(batch, encoded, starts, ends, strict=True):
                answers = answers_on_text(text, tokens, start, end, max_answer_tokens)
                predictions.update(zip(numbers_of[text], answers, strict=True))
                advance(len(answers))
    return [predictions[number] for number in range(len(contexts))]


def question_vectors(encoder: SpanEncoder, questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """f_start and f_end of each question (Q4): two tensors, ``(questions, d)``, in the given order."""
    question_encoder = encoder.cut(QUESTION_TOKENS)
    counts = question_encoder.tokens.token_counts(questions)
    order: list[int] = []
    vectors: list[tuple[Tensor, Tensor]] = []
    for rows in batches_by_length(counts, batch_tokens=tokens_at_once(encoder.tokens.model.device)):
        order += rows
        features = question_encoder.tokens.features([questions[row] for row in rows])
        vectors.append(question_encoder.question_vectors(features))
    positions = torch.tensor(order).argsort()  # where each question stands in the batches
    starts, ends = (torch.cat(parts)[positions] for parts in zip(*vectors, strict=True))
    return starts, ends


def answers_on_text(
    text: str, tokens: TextVectors, starts: Tensor, ends: Tensor, max_tokens: int
) -> list[Prediction]:
    """The answers to the questions on one text, from f_start and f_end of each, ``(questions, d)`` (Q7)."""
    if not len(tokens.offsets):
        return [Prediction("", 0, 0.0)] * len(starts)
    start, end = span_logits(tokens.vectors[None], starts, ends, [len(starts)])
    if not (torch.isfinite(start).all() and torch.isfinite(end).all()):
        raise not_finite("the encoder gives vectors")
    spans = best_span(start, end, torch.ones_like(start, dtype=torch.bool), max_tokens)
    answers = zip(spans.scores.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)
    return [
        Prediction.of(text, score, int(tokens.offsets[first, 0]), int(tokens.offsets[last, 1]))
        for score, first, last in answers
    ]
