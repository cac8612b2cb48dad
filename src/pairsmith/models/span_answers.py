"""Question answering with a span encoder: each passage is encoded once for all its questions (Q4, Q7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.core.arguments import check_loaded, checked_texts
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
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
"""Number of passages whose vectors are in memory at once."""


def text_windows(encoder: TokenEncoder, texts: Sequence[str]) -> list[Feature]:
    """Cut texts into windows that the encoder can read (Q7), text by text and in order.

    Neighbouring windows share ``OVERLAP`` tokens, at most half of a window. ``is_context`` of a shared token
    is true only in the window with the most context around it. In the window of a blank text it is false
    everywhere.
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
    """The token vectors of a text; tokens of white space alone count as special tokens."""

    vectors: Tensor  # (tokens, d), without special tokens
    offsets: Tensor  # (tokens, 2) int64, where the tokens begin and end in the text, in characters
    special: Tensor  # (special tokens of all windows, d)


def text_vectors(
    encoder: SpanEncoder, texts: Sequence[str], *, batch_tokens: int | None = None
) -> list[TextVectors]:
    """The token vectors r(c) of each text; long windows are encoded first, see ``text_windows``."""
    windows = text_windows(encoder.tokens, texts)
    lengths = [len(window.input_ids) for window in windows]
    by_window: dict[int, tuple[Tensor, Tensor]] = {}
    at_once = batch_tokens or tokens_at_once(encoder.tokens.model.device)
    for rows in batches_by_length(lengths, batch_tokens=at_once):
        features = collate(encoder.tokens, [windows[row] for row in rows])
        for row, vectors in zip(rows, encoder.token_vectors(features), strict=True):
            window = windows[row]
            own = vectors[: len(window.is_context)]
            masks = window.is_context, ~window.offsets.any(dim=1)  # neighbouring windows share other tokens
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
    """Answer each question by a span of its text (Q7); the softmax is over all tokens of the text.

    Args:
        encoder: a student, as ``load_student`` loads it; it is put into evaluation mode.
        questions: n questions; each is cut off after 64 tokens.
        contexts: the text of each question; a blank one gives an empty answer of score 0.
        max_answer_tokens: longest answer in tokens.
        advance: called with numbers of questions that were answered.

    Returns:
        n answers: their text, the position of its first character in the context, and its probability.

    Raises:
        InputError: ``questions`` or ``contexts`` is no list of texts, or one is longer than the other.
        ModelError: the encoder gives vectors that are not finite.
        SettingsError: the encoder is not loaded.
    """
    check_loaded(encoder, "encoder", "question_vectors", "load_student")
    questions, contexts = checked_texts(questions, "questions"), checked_texts(contexts, "contexts")
    if len(questions) != len(contexts):
        raise InputError(f"there are {len(questions):,} questions and {len(contexts):,} contexts")
    encoder.tokens.model.eval()
    numbers_of: dict[str, list[int]] = {}
    for number, context in enumerate(contexts):
        numbers_of.setdefault(context, []).append(number)
    texts = list(numbers_of)
    predictions: dict[int, Prediction] = {}
    with torch.inference_mode():
        for batch in in_batches(texts, _AT_ONCE):
            numbers = [number for text in batch for number in numbers_of[text]]
            sides = question_vectors(encoder, [questions[number] for number in numbers])
            starts, ends = (torch.split(side, [len(numbers_of[text]) for text in batch]) for side in sides)
            for text, read, start, end in zip(batch, text_vectors(encoder, batch), starts, ends, strict=True):
                answers = _answers(text, read, start, end, max_answer_tokens)
                predictions.update(zip(numbers_of[text], answers, strict=True))
                advance(len(answers))
    return [predictions[number] for number in range(len(contexts))]


def question_vectors(encoder: SpanEncoder, questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """f_start and f_end of each question, ``(questions, d)``; long questions are encoded first."""
    short = encoder.cut(QUESTION_TOKENS)
    counts = short.tokens.token_counts(questions)
    order: list[int] = []
    vectors: list[tuple[Tensor, Tensor]] = []
    for rows in batches_by_length(counts, batch_tokens=tokens_at_once(encoder.tokens.model.device)):
        order += rows
        vectors.append(short.question_vectors(short.tokens.features([questions[row] for row in rows])))
    back = torch.tensor(order).argsort()
    starts, ends = (torch.cat(parts)[back] for parts in zip(*vectors, strict=True))
    return starts, ends


def _answers(text: str, read: TextVectors, starts: Tensor, ends: Tensor, max_tokens: int) -> list[Prediction]:
    """Answers to the questions about one text, given f_start and f_end of each."""
    if not len(read.offsets):
        return [Prediction("", 0, 0.0)] * len(starts)
    start, end = span_logits(read.vectors[None], starts, ends, [len(starts)])
    if not (torch.isfinite(start).all() and torch.isfinite(end).all()):
        raise not_finite("the encoder gives vectors")
    spans = best_span(start, end, torch.ones_like(start, dtype=torch.bool), max_tokens)
    answers = zip(spans.scores.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)
    return [
        Prediction.of(text, score, int(read.offsets[one, 0]), int(read.offsets[other, 1]))
        for score, one, other in answers
    ]
