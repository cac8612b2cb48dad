"""Readers: models that mark the answer to a question in a text (M9), and how they answer (Q7).

A reader is any model with a question-answering head of transformers. BART reads the question and the text in
its encoder and in its decoder, and the head classifies the decoder's last states, which is M9. In an encoder
such as BERT it classifies the encoder's last states; those of a causal model see nothing after their token.
A teacher is an encoder with two perceptrons in place of that head (Q3).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import DtypeName, resolve_model
from pairsmith.models.heads import load_with_head, score_in_float32
from pairsmith.models.max_context import keep_max_context
from pairsmith.models.span_heads import SpanHeads, heads_kind, load_heads
from pairsmith.models.spans import best_span
from pairsmith.models.token_vectors import load_token_encoder

QUESTION_TOKENS = 64
"""Longest question in tokens, or half of a window's room for question and text if that is less."""

OVERLAP = 128
"""Tokens that neighbouring windows share: windows of 456 text tokens start 328 tokens apart (Q7)."""

ANSWER_TOKENS = 17
"""Longest answer in tokens (Q7)."""

_SHORTEST = 16  # smallest max_length in tokens
_AT_ONCE = 512  # questions that are encoded at once


@dataclass(frozen=True, slots=True)
class Reader:
    """A model with a question-answering head, its tokenizer, and the longest input in tokens."""

    model: Any
    tokenizer: Any
    max_length: int


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """A question with one window of its text, as a reader gets it.

    Attributes:
        question: number of the question.
        input_ids: ``(tokens,)`` int64, special tokens included.
        token_types: ``(tokens,)`` int64, 1 for the text; None where the model has no token types.
        offsets: ``(tokens, 2)`` int64, start and end in the text of each token in ``is_context``, in
            characters; 0 elsewhere. Byte-level tokens may begin with the space before a word.
        is_context: ``(tokens,)`` bool, true for tokens of the text that are not only white space.
    """

    question: int
    input_ids: Tensor
    token_types: Tensor | None
    offsets: Tensor
    is_context: Tensor


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer: ``text`` begins at character ``start`` of the context; ``score`` as in ``Spans``."""

    text: str
    start: int
    score: float

    @classmethod
    def of(cls, context: str, score: float, start: int, end: int) -> "Prediction":
        """The answer from character ``start`` to ``end``, without white space at its ends."""
        text = context[start:end]
        return cls(text.strip(), start + len(text) - len(text.lstrip()), score)


def load_reader(
    model: str,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
    fresh_head: bool = False,
    perceptrons: bool = False,
    seed: int = 0,
    max_length: int | None = None,
) -> Reader:
    """Load ``model`` as a reader.

    Args:
        model: a folder or Hub id in the format of transformers; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2``.
        device: as for ``pick_device``.
        dtype: number format of the weights.
        fresh_head: give a model without a question-answering head a random one, to be trained. An existing
            head is kept.
        perceptrons: whether that random head is a teacher's (Q3).
        seed: seed of the random head; nothing else is random.
        max_length: longest input in tokens, question and special tokens included, at least 16; never more
            than the model's context, which is the default.
    """
    if max_length is not None and max_length < _SHORTEST:
        raise SettingsError(
            f"max_length {max_length} leaves no room for a question and a text; give at least {_SHORTEST}"
        )
    there = heads_kind(resolve_model(model)) == "tokens"
    if there or (fresh_head and perceptrons):
        encoder = load_token_encoder(
            model, device=device, dtype=dtype, max_length=max_length, bidirectional=True
        )
        width = int(encoder.model.config.hidden_size)
        heads = (
            load_heads(resolve_model(model), width, "tokens") if there else SpanHeads(width, "tokens", seed)
        )
        return Reader(PerceptronReader(encoder.model, heads), encoder.tokenizer, encoder.max_length)
    network, tokenizer, context = load_with_head(
        model, "question answering", device=device, dtype=dtype, fresh_head=fresh_head, seed=seed, labels=2
    )
    return Reader(network, tokenizer, min(max_length or context, context))


@dataclass(frozen=True, slots=True, eq=False)
class SpanScores:
    """Output of a reader's model for a batch: two tensors ``(n, tokens)``, unnormalised."""

    start_logits: Tensor
    end_logits: Tensor


class PerceptronReader(nn.Module):
    """An encoder with two perceptrons that score each token, as a start and as an end (Q3)."""

    def __init__(self, encoder: Any, heads: SpanHeads) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = heads.to(encoder.device, encoder.dtype)
        if encoder.dtype != torch.float32:
            score_in_float32(self.heads, 1)
        self.config = encoder.config
        self.eval()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        found: torch.device = self.encoder.device
        return found

    def forward(self, **inputs: Tensor) -> SpanScores:
        """Start and end scores, as from a transformers model with a question-answering head."""
        return SpanScores(*self.heads(self.encoder(**inputs).last_hidden_state))


def encode_questions(
    reader: Reader, questions: Sequence[str], contexts: Sequence[str], stride: int = OVERLAP
) -> list[Feature]:
    """Turn questions and their texts into features: one, or one for each window of a long text.

    The question comes first, its text second. Questions are cut off after ``QUESTION_TOKENS`` tokens.

    Args:
        reader: its tokenizer and longest input are used.
        questions: white space at their ends is dropped.
        contexts: the text of each question.
        stride: tokens that neighbouring windows of a text share; at most half of the shortest window.

    Returns:
        features in the order of the questions, and for each question in the order of its windows.
    """
    if len(questions) != len(contexts) or stride < 0:
        raise ValueError(
            f"expected a context for each question and stride >= 0, got {len(questions)} questions, "
            f"{len(contexts)} contexts and stride {stride}"
        )
    features: list[Feature] = []
    for first in range(0, len(questions), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        features += _encode(reader, questions[part], contexts[part], stride, first)
    return features


def collate(reader: Reader, batch: Sequence[Feature]) -> dict[str, Tensor]:
    """Model inputs for a batch, padded on the right: tensors of shape ``(n, longest)``, int64."""
    inputs = {
        "input_ids": _padded([feature.input_ids for feature in batch], reader.tokenizer.pad_token_id),
        "attention_mask": _padded([torch.ones_like(feature.input_ids) for feature in batch], 0),
    }
    types = [feature.token_types for feature in batch if feature.token_types is not None]
    return inputs | ({"token_type_ids": _padded(types, 0)} if types else {})


def answer(
    reader: Reader,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_size: int = 32,
    stride: int = OVERLAP,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Prediction]:
    """Answer each question by a span of its text (Q7); see ``whole_text``. Long windows are read first.

    Args:
        reader: the reader; it is in evaluation mode during the call.
        questions: as for ``encode_questions``.
        contexts: the text of each question; a blank one gives an empty answer of score 0.
        max_answer_tokens: longest answer in tokens, at least 1.
        batch_size: windows in a batch.
        stride: tokens that neighbouring windows share.
        advance: called with the number of questions that were finished.

    Returns:
        an answer for each question, without white space at its ends.
    """
    features = encode_questions(reader, questions, contexts, stride)
    order = sorted(range(len(features)), key=lambda row: -len(features[row].input_ids))
    rows_of: list[list[int]] = [[] for _ in questions]
    for row, feature in enumerate(features):
        rows_of[feature.question].append(row)
    left = Counter(feature.question for feature in features)
    scores: dict[int, Tensor] = {}
    found: dict[int, Prediction] = {}
    with _evaluating(reader.model):
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            batch = [features[row] for row in rows]
            scores.update(zip(rows, read_windows(reader, batch), strict=True))
            left.subtract(feature.question for feature in batch)
            done = [number for number in {feature.question for feature in batch} if left[number] == 0]
            for number in done:
                each = rows_of[number]
                text = whole_text([features[row] for row in each], [scores.pop(row) for row in each])
                found[number] = text.best(contexts[number], max_answer_tokens)
            advance(len(done))
    return [found[number] for number in range(len(contexts))]


def read_windows(reader: Reader, batch: Sequence[Feature]) -> list[Tensor]:
    """Start and end scores of each window by a reader's model: ``(2, tokens)`` float32."""
    device = reader.model.device
    with torch.inference_mode():
        output = reader.model(**{name: value.to(device) for name, value in collate(reader, batch).items()})
        both = torch.stack([output.start_logits, output.end_logits], dim=1).float().cpu()
    return [each[:, : len(feature.input_ids)] for each, feature in zip(both, batch, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class TextScores:
    """A reader's scores over the whole text of a question.

    Attributes:
        scores: ``(2, tokens)`` float32, start and end scores, unnormalised.
        offsets: ``(tokens, 2)`` int64, where the tokens begin and end in the text, in characters.
        allowed: ``(tokens,)`` bool, where an answer may start and end: not at a token of white space alone,
            which only counts towards an answer's length.
    """

    scores: Tensor
    offsets: Tensor
    allowed: Tensor

    def best(self, context: str, max_tokens: int) -> Prediction:
        """The answer with the largest product of probabilities (Q7), by softmaxes over the whole text."""
        if not self.allowed.any():
            return Prediction("", 0, 0.0)
        spans = best_span(self.scores[:1], self.scores[1:], self.allowed[None], max_tokens)
        begin, end = self.offsets[spans.starts[0], 0], self.offsets[spans.ends[0], 1]
        return Prediction.of(context, float(spans.scores[0]), int(begin), int(end))


def whole_text(windows: Sequence[Feature], scores: Sequence[Tensor]) -> TextScores:
    """Combine the scores of a question's windows into scores over its whole text (Q7).

    Each token's scores are those of the window with the most context around it.

    Args:
        windows: all windows of the text, in order.
        scores: the scores of each window, see ``read_windows``.
    """
    kept = [window.is_context.clone() for window in windows]
    keep_max_context([window.offsets for window in windows], kept)
    middles = [_from_first_to_last(each) for each in kept]
    text = TextScores(
        torch.cat([each[:, middle] for each, middle in zip(scores, middles, strict=True)], dim=1),
        torch.cat([window.offsets[middle] for window, middle in zip(windows, middles, strict=True)]),
        torch.cat([each[middle] for each, middle in zip(kept, middles, strict=True)]),
    )
    if not torch.isfinite(text.scores[:, text.allowed]).all():
        raise ModelError(
            "the model gives scores that are not finite; its weights are damaged, or its number format is "
            "too narrow: try float32"
        )
    return text


def _from_first_to_last(kept: Tensor) -> slice:
    places = kept.nonzero().flatten().tolist()
    return slice(places[0], places[-1] + 1) if places else slice(0, 0)


def _padded(rows: list[Tensor], filler: int) -> Tensor:
    return pad_sequence(rows, batch_first=True, padding_value=filler)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _encode(
    reader: Reader, questions: Sequence[str], contexts: Sequence[str], stride: int, first: int
) -> list[Feature]:
    """``encode_questions`` for some of the questions, numbered from ``first`` on."""
    room = reader.max_length - reader.tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(QUESTION_TOKENS, room // 2)
    types = _has_token_types(reader)
    encoded = reader.tokenizer(
        _cut(reader.tokenizer, [question.strip() for question in questions], longest),
        list(contexts),
        truncation="only_second",
        max_length=reader.max_length,
        # Independent of the given questions, so that one question's windows do not depend on the others.
        stride=min(stride, (room - longest) // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=types,
    )
    return [
        _feature(encoded, row, first + question, contexts[question], types=types)
        for row, question in enumerate(encoded["overflow_to_sample_mapping"])
    ]


def _feature(encoded: Any, row: int, question: int, context: str, *, types: bool) -> Feature:
    offsets = encoded["offset_mapping"][row]
    each = zip(encoded.sequence_ids(row), offsets, strict=True)
    is_context = torch.tensor([part == 1 and not _blank(context, *place) for part, place in each])
    return Feature(
        question,
        torch.tensor(encoded["input_ids"][row]),
        torch.tensor(encoded["token_type_ids"][row]) if types else None,
        torch.where(is_context[:, None], torch.tensor(offsets), 0),
        is_context,
    )


def _blank(text: str, start: int, end: int) -> bool:
    return not text[start:end].strip()


def _cut(tokenizer: Any, questions: list[str], longest: int) -> list[str]:
    """The questions, each cut off after its first ``longest`` tokens."""
    encoded = tokenizer(
        questions,
        add_special_tokens=False,
        truncation=True,
        max_length=longest,
        return_offsets_mapping=True,
    )
    each = zip(questions, encoded["offset_mapping"], strict=True)
    return [question if len(tokens) < longest else question[: tokens[-1][1]] for question, tokens in each]


def _has_token_types(reader: Reader) -> bool:
    """Whether the model has token type embeddings and its tokenizer gives token types.

    GPT-2 accepts token types too, but takes them for tokens of its vocabulary.
    """
    kinds = getattr(reader.model.config, "type_vocab_size", None) or 0
    return kinds > 1 and "token_type_ids" in reader.tokenizer.model_input_names
