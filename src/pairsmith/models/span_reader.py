"""Question answering with a bi-encoder: each passage is encoded once for all its questions (Q4, Q7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.errors import ModelError
from pairsmith.models.encode import batches_by_length, tokens_at_once
from pairsmith.models.max_context import keep_max_context
from pairsmith.models.reader import ANSWER_TOKENS, OVERLAP, QUESTION_TOKENS, Prediction
from pairsmith.models.span_encoder import SpanEncoder, span_logits
from pairsmith.models.spans import best_span
from pairsmith.models.token_vectors import TokenEncoder

_AT_ONCE = 64
"""Passages whose vectors are in memory at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A part of a text that is encoded at once.

    Attributes:
        text: the text's number.
        input_ids: ``(tokens,)`` int64, special tokens included.
        offsets: ``(tokens, 2)`` int64, where the tokens begin and end in the text, in characters.
        kept: ``(tokens,)`` bool, true for the tokens whose vectors are used: each token of the text in the
            window with the most context around it, but no special token and none of white space alone.
    """

    text: int
    input_ids: Tensor
    offsets: Tensor
    kept: Tensor


def text_windows(encoder: TokenEncoder, texts: Sequence[str], stride: int = OVERLAP) -> list[Window]:
    """Cut texts into windows that the encoder can read (Q7), text by text and in order.

    Args:
        encoder: its tokenizer and longest input are used.
        texts: a blank text has a window in which nothing is kept.
        stride: tokens that neighbouring windows share, at most half of a window.
    """
    tokenizer = encoder.tokenizer
    room = encoder.max_length - tokenizer.num_special_tokens_to_add()
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=encoder.max_length,
        stride=min(stride, room // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        split_special_tokens=True,
    )
    windows = []
    for row, text in enumerate(encoded["overflow_to_sample_mapping"]):
        offsets = encoded["offset_mapping"][row]
        each = zip(encoded.sequence_ids(row), offsets, strict=True)
        kept = [part == 0 and bool(texts[text][begin:end].strip()) for part, (begin, end) in each]
        windows.append(Window(text, *map(torch.tensor, (encoded["input_ids"][row], offsets, kept))))
    for _, of_text in groupby(windows, key=lambda window: window.text):
        some = list(of_text)
        keep_max_context([window.offsets for window in some], [window.kept for window in some])
    return windows


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """The tokens of a text, without special tokens and white space.

    Attributes:
        vectors: ``(tokens, d)``.
        offsets: ``(tokens, 2)`` int64, where the tokens begin and end in the text, in characters.
    """

    vectors: Tensor
    offsets: Tensor


def text_vectors(
    encoder: SpanEncoder, texts: Sequence[str], stride: int = OVERLAP, *, batch_tokens: int | None = None
) -> list[TextVectors]:
    """The token vectors r(c) of each text; long windows are encoded first, see ``text_windows``."""
    windows = text_windows(encoder.tokens, texts, stride)
    lengths = [len(window.input_ids) for window in windows]
    found: dict[int, Tensor] = {}
    at_once = batch_tokens or tokens_at_once(encoder.tokens.model.device)
    for rows in batches_by_length(lengths, len(lengths), at_once):
        ids = [windows[row].input_ids for row in rows]
        features = {
            "input_ids": pad_sequence(
                ids, batch_first=True, padding_value=encoder.tokens.tokenizer.pad_token_id
            ),
            "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
        }
        for row, vectors in zip(rows, encoder.token_vectors(features), strict=True):
            kept = windows[row].kept
            found[row] = vectors[: len(kept)][kept.to(vectors.device)]
    of_text: list[list[int]] = [[] for _ in texts]
    for row, window in enumerate(windows):
        of_text[window.text].append(row)
    return [
        TextVectors(
            torch.cat([found[row] for row in rows]),
            torch.cat([windows[row].offsets[windows[row].kept] for row in rows]),
        )
        for rows in of_text
    ]


def answer_by_vectors(
    encoder: SpanEncoder,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    max_answer_tokens: int = ANSWER_TOKENS,
    stride: int = OVERLAP,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Prediction]:
    """Answer each question by a span of its text (Q7); the softmax is over all tokens of the text.

    Args:
        encoder: the bi-encoder; it is put into evaluation mode.
        questions: n questions, cut off after ``QUESTION_TOKENS`` tokens.
        contexts: the text of each question; a blank one gives an empty answer of score 0.
        max_answer_tokens: longest answer in tokens, at least 1.
        stride: tokens that neighbouring windows of a text share.
        advance: called with the number of questions that were finished.

    Returns:
        an answer for each question, without white space at its ends.
    """
    encoder.tokens.model.eval()
    asked: dict[str, list[int]] = {}
    for number, context in enumerate(contexts):
        asked.setdefault(context, []).append(number)
    texts = list(asked)
    found: dict[int, Prediction] = {}
    with torch.inference_mode():
        for first in range(0, len(texts), _AT_ONCE):
            some = texts[first : first + _AT_ONCE]
            numbers = [number for text in some for number in asked[text]]
            starts, ends = question_vectors(encoder, [questions[number] for number in numbers])
            place = 0
            for text, read in zip(some, text_vectors(encoder, some, stride), strict=True):
                rows = slice(place, place + len(asked[text]))
                each = _answers(text, read, starts[rows], ends[rows], max_answer_tokens)
                found.update(zip(asked[text], each, strict=True))
                place = rows.stop
                advance(len(each))
    return [found[number] for number in range(len(contexts))]


def question_vectors(encoder: SpanEncoder, questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """f_start and f_end of each question, ``(questions, d)``; long questions are encoded first."""
    short = encoder.cut(QUESTION_TOKENS)
    counts = short.tokens.token_counts(questions)
    order: list[int] = []
    vectors: list[tuple[Tensor, Tensor]] = []
    for rows in batches_by_length(counts, len(counts), tokens_at_once(encoder.tokens.model.device)):
        order += rows
        vectors.append(short.question_vectors(short.tokens.features([questions[row] for row in rows])))
    back = torch.tensor(order).argsort()
    starts, ends = (torch.cat(each)[back] for each in zip(*vectors, strict=True))
    return starts, ends


def _answers(text: str, read: TextVectors, starts: Tensor, ends: Tensor, max_tokens: int) -> list[Prediction]:
    """Answers to the questions about one text, given f_start and f_end of each."""
    if not len(read.offsets):
        return [Prediction("", 0, 0.0)] * len(starts)
    start, end = span_logits(read.vectors[None], starts, ends, [len(starts)])
    if not (torch.isfinite(start).all() and torch.isfinite(end).all()):
        raise ModelError(
            "the encoder gives vectors that are not finite; its weights are damaged, or its number format is "
            "too narrow: try float32"
        )
    spans = best_span(start, end, torch.ones_like(start, dtype=torch.bool), max_tokens)
    each = zip(spans.scores.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)
    return [
        Prediction.of(text, score, int(read.offsets[one, 0]), int(read.offsets[other, 1]))
        for score, one, other in each
    ]
