"""Readers: models that predict the span of the answer to a question in a text (M9), and how they answer (Q7).

A reader is any model with a question-answering head of transformers. BART, as in M9, reads the question and
the text in its encoder and, shifted by one token, in its decoder, and the head classifies the final states of
the decoder. In an encoder such as BERT, the head classifies the final states of the encoder. A decoder-only
model, such as Llama, reads the question, a line break and the text, and the head classifies its final states;
the state of a token depends on the question and on the text up to this token. A teacher is an encoder with
two perceptrons in place of this head (Q3).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from pairsmith.core.arguments import check_flag, checked_whole_number, model_name
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import resolve_model
from pairsmith.models.encode import (
    batches_by_length,
    beginning,
    moved,
    not_finite,
    padded_inputs,
    padded_tokens,
    refuse_unknown_tokens,
)
from pairsmith.models.heads import Loading, TextModel, load_with_head, require_reader
from pairsmith.models.loading import mark_pairs
from pairsmith.models.span_heads import PerceptronReader, SpanHeads, heads_kind, load_heads
from pairsmith.models.token_vectors import load_token_encoder

QUESTION_TOKENS = 64
"""Largest number of tokens of a question; it is half of a window, without special tokens, if that is less."""

OVERLAP = 128
"""Number of tokens that consecutive windows share: windows of 456 text tokens start 328 tokens apart (Q7)."""

ANSWER_TOKENS = 17
"""Largest number of tokens of an answer (Q7)."""

_SHORTEST = 16  # smallest maximum length of an input, in tokens
_AT_ONCE = 512  # number of questions that are tokenized in one call


class Reader(TextModel):
    """A model with a question-answering head.

    For n pairs of a question and a text, its ``model`` returns ``start_logits`` and ``end_logits``, both
    ``(n, longest)`` float32: the unnormalised scores of each token as the answer's first and last token.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """One window of a text as a model's input: with a question for a reader, without one for an encoder."""

    question: int  # the number of the question or, without questions, of the text
    input_ids: Tensor  # (tokens,) int64, including special tokens
    token_types: Tensor | None  # (tokens,) int64, 1 for the text; None if the model has no token types
    # (tokens, 2) int64, start and end of each token in the text, in characters; 0 outside ``is_context``.
    # Byte-level tokens may begin with the space before a word.
    offsets: Tensor
    is_context: Tensor  # (tokens,) bool, True for tokens of the text that are not only white space


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted answer."""

    text: str
    start: int  # the offset of its first character in the context
    score: float  # its probability, in [0, 1], as in ``Spans``

    @classmethod
    def of(cls, context: str, score: float, start: int, end: int) -> "Prediction":
        """The answer from character ``start`` up to ``end`` (exclusive), stripped of white space."""
        text = context[start:end]
        return cls(text.strip(), start + len(text) - len(text.lstrip()), score)


def load_reader(
    model: str | Path,
    *,
    fresh_head: bool = False,
    perceptrons: bool = False,
    seed: int = 0,
    **how: Unpack[Loading],
) -> Reader:
    """Load ``model`` as a reader, which reads a question and a text together, and predicts the answer's span.

    Args:
        model: a folder that ``train-reader`` or ``train-teacher`` wrote, or a folder or Hub id of a
            question-answering model of transformers.
        fresh_head: whether a model without such a head gets a random head, to be trained.
        perceptrons: whether a fresh head has the two perceptrons of a teacher (Q3).
        seed: random seed of a fresh head.
        how: ``device`` and ``dtype`` as for ``load_encoder``; ``max_length``, the longest input in tokens, at
            least 16, including the question and special tokens. Longer texts are read in windows.

    Returns:
        The reader, which ``label_questions`` takes as a teacher. For n pairs, ``features(questions, texts)``
        returns the inputs of its ``model`` by name, padded tensors ``(n, longest)`` int64, and
        ``token_counts(questions, texts)`` returns n numbers of tokens. Both truncate to ``max_length``.

    Raises:
        ModelError: the model cannot be loaded, has no such head, or reads fewer than 16 tokens.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    model = model_name(model)
    check_flag(fresh_head, "fresh_head")
    check_flag(perceptrons, "perceptrons")
    max_length = how.get("max_length")
    if max_length is not None and checked_whole_number(max_length, "max_length") < _SHORTEST:
        raise SettingsError(
            f"max_length {max_length} leaves no room for a question and a text; give at least {_SHORTEST}"
        )
    if not fresh_head:
        require_reader(model)
    has_heads = heads_kind(resolve_model(model)) == "tokens"
    if has_heads or (fresh_head and perceptrons):
        encoder = load_token_encoder(model, encoder_only=True, **how)
        where, width = resolve_model(model), int(encoder.model.config.hidden_size)
        heads = load_heads(where, width, "tokens") if has_heads else SpanHeads(width, "tokens", seed)
        mark_pairs(encoder.tokenizer)
        reader = Reader(PerceptronReader(encoder.model, heads), encoder.tokenizer, encoder.max_length)
    else:
        reader = Reader(
            *load_with_head(model, "question answering", labels=2, fresh_head=fresh_head, seed=seed, **how)
        )
    if reader.max_length < _SHORTEST:
        raise ModelError(
            f"model {model}: reads {reader.max_length} tokens at once, which leaves no room for a question "
            f"and a text; give a model that reads at least {_SHORTEST}"
        )
    return reader


def encode_questions(reader: Reader, questions: Sequence[str], contexts: Sequence[str]) -> list[Feature]:
    """Tokenize questions with their texts: one feature per window of a text, in the order of the questions.

    In each feature the question, stripped of white space and truncated to ``QUESTION_TOKENS`` tokens, is
    before its window. Consecutive windows share ``OVERLAP`` tokens, but at most half of the shortest window.
    """
    if len(questions) != len(contexts):
        raise ValueError(
            f"expected a context for each question, got {len(questions)} questions, {len(contexts)} contexts"
        )
    features: list[Feature] = []
    for first in range(0, len(questions), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        features += _encode(reader, questions[part], contexts[part], first)
    return features


def rows_of_questions(features: Sequence[Feature]) -> list[list[int]]:
    """For each question, the indices of its features, in order."""
    rows = range(len(features))
    return [list(group) for _, group in groupby(rows, key=lambda row: features[row].question)]


def collate(reader: TextModel, batch: Sequence[Feature]) -> dict[str, Tensor]:
    """Model inputs for a batch of n features, padded on the right: tensors ``(n, longest)``, int64."""
    inputs = padded_inputs([feature.input_ids for feature in batch], reader.tokenizer.pad_token_id)
    types = [feature.token_types for feature in batch if feature.token_types is not None]
    return inputs | ({"token_type_ids": padded_tokens(types, 0)} if types else {})


def answer(
    reader: Reader,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_size: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Prediction]:
    """Answer each question by a span of its text (Q7). The longest windows are read first.

    Args:
        reader: the reader; it is in evaluation mode during the call.
        questions: n questions, as for ``encode_questions``.
        contexts: the text of each question; if it is blank, the answer is empty and has score 0.
        max_answer_tokens: the largest number of tokens of an answer.
        batch_size: the number of windows in a batch.
        advance: is called after each batch with the number of questions that were finished.
    """
    features = encode_questions(reader, questions, contexts)
    lengths = [len(feature.input_ids) for feature in features]
    rows_of = rows_of_questions(features)
    scores: dict[int, Tensor] = {}
    predictions: dict[int, Prediction] = {}
    with _evaluating(reader.model):
        for rows in batches_by_length(lengths, batch_size=batch_size):
            batch = [features[row] for row in rows]
            scores.update(zip(rows, read_windows(reader, batch), strict=True))
            numbers = {feature.question for feature in batch}
            finished = [number for number in numbers if all(row in scores for row in rows_of[number])]
            for number in finished:
                question_rows = rows_of[number]
                text = whole_text(
                    [features[row] for row in question_rows], [scores.pop(row) for row in question_rows]
                )
                predictions[number] = text.best(contexts[number], max_answer_tokens)
            advance(len(finished))
    return [predictions[number] for number in range(len(contexts))]


def read_windows(reader: Reader, batch: Sequence[Feature]) -> list[Tensor]:
    """Start and end scores of the tokens of each window: ``(2, tokens)`` float32, unnormalised."""
    with torch.inference_mode():
        output = reader.model(**moved(collate(reader, batch), reader.model.device))
        logits = torch.stack([output.start_logits, output.end_logits], dim=1).float().cpu()
    return [scores[:, : len(feature.input_ids)] for scores, feature in zip(logits, batch, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class TextScores:
    """A reader's scores for the tokens of a question's whole text.

    An answer does not start or end at a token of white space, but such a token counts towards its length.
    """

    scores: Tensor  # (2, tokens) float32, unnormalised scores of starts and of ends
    offsets: Tensor  # (tokens, 2) int64, start and end of each token in the text, in characters
    allowed: Tensor  # (tokens,) bool, where an answer may start and end

    def best(self, context: str, max_tokens: int) -> Prediction:
        """The answer with the largest product of start and end probability over the whole text (Q7)."""
        if not self.allowed.any():
            return Prediction("", 0, 0.0)
        spans = best_span(self.scores[:1], self.scores[1:], self.allowed[None], max_tokens)
        begin, end = self.offsets[spans.starts[0], 0], self.offsets[spans.ends[0], 1]
        return Prediction.of(context, float(spans.scores[0]), int(begin), int(end))


def whole_text(windows: Sequence[Feature], scores: Sequence[Tensor]) -> TextScores:
    """Combine the scores of a question's windows into scores for its whole text (Q7).

    A token in several windows has the scores from the window with the most context around it. ``windows``
    are all windows of the text in order, ``scores`` what ``read_windows`` returns for them.
    """
    kept = [window.is_context.clone() for window in windows]
    keep_max_context([window.offsets for window in windows], kept)
    kept_tokens = [mask.nonzero().flatten().tolist() for mask in kept]
    owned = [slice(tokens[0], tokens[-1] + 1) if tokens else slice(0, 0) for tokens in kept_tokens]
    text = TextScores(
        torch.cat(
            [window_scores[:, tokens] for window_scores, tokens in zip(scores, owned, strict=True)], dim=1
        ),
        torch.cat([window.offsets[tokens] for window, tokens in zip(windows, owned, strict=True)]),
        torch.cat([mask[tokens] for mask, tokens in zip(kept, owned, strict=True)]),
    )
    if not torch.isfinite(text.scores[:, text.allowed]).all():
        raise not_finite("the model gives scores")
    return text


def keep_max_context(offsets: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    """Divide the tokens that consecutive windows share, so that each has the most context around it (Q7).

    Args:
        offsets: for each window of a text, in order, the start and end of its tokens: ``(tokens, 2)`` int64.
        kept: for each window, ``(tokens,)`` bool, True for the tokens of the text. It is changed in place, to
            True for the tokens that the window keeps.
    """
    for earlier, later in pairwise(range(len(kept))):
        if not kept[later].any():
            continue
        first = offsets[later][kept[later]][0, 0]
        shared = (kept[earlier] & (offsets[earlier][:, 0] >= first)).nonzero().squeeze(1)
        if len(shared):
            # The limit is a character, as several tokens may belong to one character.
            half = offsets[earlier][shared[len(shared) // 2], 0]
            kept[later][offsets[later][:, 0] < half] = False
            kept[earlier][offsets[earlier][:, 0] >= half] = False


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The best span of each of n windows."""

    starts: Tensor  # (n,) int64, the first token of the span
    ends: Tensor  # (n,) int64, the last token of the span
    scores: Tensor  # (n,) float32 in [0, 1], the product of start and end probability


def best_span(start_logits: Tensor, end_logits: Tensor, allowed: Tensor, max_tokens: int) -> Spans:
    """The span of each of n windows with the largest product of start and end probability (Q7).

    A span has ``start <= end < start + max_tokens``. Of several best spans, that with the earliest start is
    chosen, then the shortest. A window without allowed tokens has score 0, start 0 and end 0. The logits are
    ``(n, tokens)`` of any floating dtype, finite at allowed tokens. ``allowed``, ``(n, tokens)`` bool, is
    True for tokens at which a span may start and end; the probabilities are softmaxes over these tokens.
    """
    shapes = {start_logits.shape, end_logits.shape, allowed.shape}
    if len(shapes) > 1 or allowed.ndim != 2 or not allowed.shape[1] or max_tokens < 1:
        raise ValueError(
            "expected three (n, tokens) with one token or more and max_tokens >= 1, got "
            f"{tuple(start_logits.shape)}, {tuple(end_logits.shape)}, {tuple(allowed.shape)}, {max_tokens}"
        )
    # Logarithms are added, as the products of small probabilities would all underflow to 0.
    starts, ends = (_log_softmax(logits, allowed) for logits in (start_logits, end_logits))
    longest = min(max_tokens, starts.shape[1])
    beyond = ends.new_full((len(ends), longest - 1), -torch.inf)
    ends_from = torch.cat([ends, beyond], dim=1).unfold(1, longest, 1)  # (n, tokens, longest)
    best_end, steps = ends_from.max(dim=2)
    score, start = (starts + best_end).max(dim=1)
    return Spans(start, start + steps.gather(1, start[:, None]).squeeze(1), score.exp())


def _log_softmax(logits: Tensor, allowed: Tensor) -> Tensor:
    """The logarithm of the softmax over the allowed tokens, in float32; minus infinity at other tokens."""
    masked = logits.float().masked_fill(~allowed, -torch.inf)
    # Masked a second time, as the softmax of a row without allowed tokens is NaN.
    return masked.log_softmax(dim=1).masked_fill(~allowed, -torch.inf)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _encode(reader: Reader, questions: Sequence[str], contexts: Sequence[str], first: int) -> list[Feature]:
    """The features of consecutive questions, as ``encode_questions`` returns them.

    ``first`` is the number of the first of these questions among all questions.
    """
    room = reader.max_length - reader.tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(QUESTION_TOKENS, room // 2)
    # GPT-2 has no token type embeddings: it accepts token types, but looks them up in its vocabulary.
    token_types = getattr(reader.model.config, "type_vocab_size", None) or 0
    encoded = reader.tokenizer(
        _cut(reader.tokenizer, [question.strip() for question in questions], longest),
        list(contexts),
        truncation="only_second",
        max_length=reader.max_length,
        # The stride does not depend on the questions, so a question's windows do not depend on other
        # questions.
        stride=min(OVERLAP, (room - longest) // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=token_types > 1 and "token_type_ids" in reader.tokenizer.model_input_names,
        split_special_tokens=True,  # as in ``TextModel.tokenized``
    )
    refuse_unknown_tokens(reader.model.config, encoded["input_ids"])
    return features_of(encoded, contexts, 1, first)


def features_of(encoded: Any, texts: Sequence[str], part: int, first: int = 0) -> list[Feature]:
    """The windows of texts in a tokenizer's output, which has overflowing tokens and offsets.

    ``part`` is the position of a text in an input: 0, or 1 after a question. ``first`` is the number of the
    first text.
    """
    features = []
    for row, text in enumerate(encoded["overflow_to_sample_mapping"]):
        offsets = encoded["offset_mapping"][row]
        tokens = zip(encoded.sequence_ids(row), offsets, strict=True)
        is_context = torch.tensor(
            [side == part and bool(texts[text][start:end].strip()) for side, (start, end) in tokens],
            dtype=torch.bool,
        )
        features.append(
            Feature(
                first + text,
                torch.tensor(encoded["input_ids"][row], dtype=torch.int64),
                torch.tensor(encoded["token_type_ids"][row]) if "token_type_ids" in encoded else None,
                torch.where(is_context[:, None], torch.tensor(offsets, dtype=torch.int64).view(-1, 2), 0),
                is_context,
            )
        )
    return features


def _cut(tokenizer: Any, questions: list[str], longest: int) -> list[str]:
    """The questions, each truncated to its first ``longest`` tokens."""
    encoded = tokenizer(
        [beginning(tokenizer, question, longest) for question in questions],
        add_special_tokens=False,
        truncation=True,
        max_length=longest,
        return_offsets_mapping=True,
        split_special_tokens=True,
    )
    pairs = zip(questions, encoded["offset_mapping"], strict=True)
    return [question if len(tokens) < longest else question[: tokens[-1][1]] for question, tokens in pairs]
