"""Sentiment scores: by a bi-encoder's answers to questions, or by the word that fills a mask (Q11)."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress
from pairsmith.models.encode import batches_by_length, one_thread_each, tokens_at_once
from pairsmith.models.heads import load_with_head
from pairsmith.models.reader import (
    TextScores,
    best_span,
    encode_questions,
    load_reader,
    rows_of_questions,
    whole_text,
)
from pairsmith.models.span_encoder import load_span_encoder, span_logits
from pairsmith.models.span_reader import TextVectors, question_vectors, text_vectors
from pairsmith.models.teacher import window_scores
from pairsmith.steps.evaluate.transfer_settings import EvaluateSentimentSettings
from pairsmith.steps.shared import load_options

WORDS = ("terrible", "great")
_BEHIND = " It was {mask}."
_AT_ONCE = 256
"""Number of texts whose vectors are held in memory at once."""
_READ_AT_ONCE = 32
"""Number of texts whose scores with all questions are held in memory at once."""

RATIONALE_TOKENS = 5
"""Longest rationale in tokens."""
RATIONALES = 4
"""Index of the prompt whose answers are the rationales: the one that did best on SST-2 in the paper."""

Scores = NDArray[np.float64]
Calibration = Literal["calibrated", "centred", "plain"]
CALIBRATIONS: tuple[Calibration, ...] = ("calibrated", "centred", "plain")
"""What is subtracted from the scores before they are compared, see ``Judged.positive``."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A model's scores of n texts with each of p prompts.

    Attributes:
        scores: ``(p, n, 2)``: S(x, y), for negative and positive.
        neutral: ``(p, 2)``: C_y, the mean score of neutral texts.
        rationales: for each text, the span that best answers the question of the prompt ``RATIONALES`` for
            the class that this prompt, calibrated, predicts; empty if there is none.
    """

    scores: Scores
    neutral: Scores
    rationales: Sequence[str]

    def leads(self) -> Scores:
        """By how much each text's positive score exceeds its negative score with each prompt, ``(p, n)``."""
        leads: Scores = self.scores[:, :, 1] - self.scores[:, :, 0]
        return leads

    def positive(self, calibration: Calibration) -> NDArray[np.bool_]:
        """Whether each text is predicted positive with each prompt, ``(p, n)``.

        ``plain`` predicts the larger score. ``calibrated`` first subtracts the neutral texts' mean scores
        (Q11), ``centred`` the mean scores of the texts themselves, which needs no labels and is fair where
        both classes are about as frequent.
        """
        leads = self.leads()
        bias: Scores = np.zeros((len(leads), 1))
        if calibration == "calibrated":
            bias = self.neutral[:, 1:] - self.neutral[:, :1]
        if calibration == "centred":
            bias = leads.mean(axis=1, keepdims=True)
        predicted: NDArray[np.bool_] = leads > bias
        return predicted


def judge_by_questions(
    settings: EvaluateSentimentSettings,
    texts: Sequence[str],
    prompts: Sequence[Sequence[str]],
    neutral: Sequence[str],
    progress: Progress,
) -> Judged:
    """The scores of texts by the two questions of each prompt, the one for negative texts first."""
    encoder = load_span_encoder(settings.model, **load_options(settings))
    encoder.tokens.model.eval()
    with torch.inference_mode():
        vectors = question_vectors(encoder, [question for pair in prompts for question in pair])
        empty = scores_of(text_vectors(encoder, neutral), *vectors).mean(axis=1)  # (p, 2)
        scores = np.empty((len(prompts), len(texts), 2))
        rationales: list[str] = []
        with progress.task("judge", len(texts), "texts") as bar:
            for first in range(0, len(texts), _AT_ONCE):
                some = texts[first : first + _AT_ONCE]
                read = text_vectors(encoder, some, batch_tokens=settings.batch_tokens)
                part = scores_of(read, *vectors)
                scores[:, first : first + len(some)] = part
                sides = (part[RATIONALES] - empty[RATIONALES]).argmax(axis=1) + 2 * RATIONALES
                rationales += [
                    _rationale(*row, vectors) for row in zip(some, read, sides.tolist(), strict=True)
                ]
                bar.advance(len(some))
    return Judged(scores, empty, rationales)


def scores_of(texts: Sequence[TextVectors], starts: Tensor, ends: Tensor) -> Scores:
    """S(x, y): the largest product with a question's start vector plus the largest with its end vector (Q11).

    They are the largest over all tokens of a text, special ones included. ``starts`` and ``ends``,
    ``(2 · p, d)``, are f_start and f_end of the questions, two for each prompt; the scores are ``(p, n, 2)``.
    """
    sums = []
    for text in texts:
        every = torch.cat([text.vectors, text.special])
        start, end = span_logits(every[None], starts, ends, [len(starts)])
        sums.append((start.amax(dim=1) + end.amax(dim=1)).double().cpu().numpy())
    return np.stack(sums).reshape(len(texts), -1, 2).swapaxes(0, 1)


def _rationale(text: str, read: TextVectors, question: int, vectors: tuple[Tensor, Tensor]) -> str:
    """The span that best answers a question, by the sum of the two products.

    The score S(x, y), in contrast, takes the best start and the best end, even if they form no span.
    """
    if not len(read.offsets):
        return ""
    starts, ends = (side[question : question + 1] for side in vectors)
    start, end = span_logits(read.vectors[None], starts, ends, [1])
    spans = best_span(start, end, torch.ones_like(start, dtype=torch.bool), RATIONALE_TOKENS)
    begin, finish = int(read.offsets[spans.starts[0], 0]), int(read.offsets[spans.ends[0], 1])
    return text[begin:finish].strip()


def judge_by_reader(
    settings: EvaluateSentimentSettings,
    texts: Sequence[str],
    prompts: Sequence[Sequence[str]],
    neutral: Sequence[str],
    progress: Progress,
) -> Judged:
    """The same by a reader that reads question and text together: its largest start and end scores.

    They are the largest over the tokens of the text; of a text without tokens they are 0.
    """
    reader = load_reader(settings.model, **load_options(settings))
    reader.model.eval()
    all_questions = [question for pair in prompts for question in pair]

    def read(some: Sequence[str]) -> list[TextScores]:
        """The scores of each text with each question, text by text."""
        questions, contexts = all_questions * len(some), [text for text in some for _ in all_questions]
        windows = encode_questions(reader, questions, contexts)
        scores = window_scores(reader, windows, settings.batch_tokens)
        return [
            whole_text([windows[row] for row in rows], [scores[row] for row in rows])
            for rows in rows_of_questions(windows)
        ]

    def largest(of: Sequence[TextScores]) -> Scores:
        sums = [
            float(reading.scores[:, reading.allowed].amax(dim=1).sum()) if reading.allowed.any() else 0.0
            for reading in of
        ]
        return np.array(sums).reshape(-1, len(prompts), 2).swapaxes(0, 1)

    empty = largest(read(neutral)).mean(axis=1)
    parts: list[Scores] = []
    rationales: list[str] = []
    with progress.task("judge", len(texts), "texts") as bar:
        for first in range(0, len(texts), _READ_AT_ONCE):
            some = texts[first : first + _READ_AT_ONCE]
            of = read(some)
            parts.append(largest(of))
            sides = (parts[-1][RATIONALES] - empty[RATIONALES]).argmax(axis=1) + 2 * RATIONALES
            for number, (text, side) in enumerate(zip(some, sides.tolist(), strict=True)):
                rationales.append(of[number * len(all_questions) + side].best(text, RATIONALE_TOKENS).text)
            bar.advance(len(some))
    return Judged(np.concatenate(parts, axis=1), empty, rationales)


def judge_by_mask(
    settings: EvaluateSentimentSettings, texts: Sequence[str], neutral: Sequence[str], progress: Progress
) -> Judged:
    """The baseline: the log probabilities of both words as the mask after each text, as those of one prompt.

    There are no rationales.
    """
    network, tokenizer, context = load_with_head(
        settings.model, "masked language modelling", device=settings.device, dtype=settings.dtype
    )
    longest = min(settings.max_length or context, context)
    words = [_token(settings.model, tokenizer, word) for word in WORDS]
    behind = _BEHIND.format(mask=tokenizer.mask_token)
    room = longest - len(tokenizer(behind)["input_ids"])

    def scored(features: Mapping[str, Tensor]) -> Scores:
        with torch.inference_mode():
            logits = network(**{name: value.to(network.device) for name, value in features.items()}).logits
            at = (features["input_ids"] == tokenizer.mask_token_id).to(logits.device)
            scores: Scores = logits[at].float().log_softmax(dim=1)[:, words].double().cpu().numpy()
            return scores

    def begin(pool: ThreadPoolExecutor, some: Sequence[str]) -> Future[Scores]:
        whole = [text + behind for text in some]
        return pool.submit(scored, tokenizer(whole, padding=True, return_tensors="pt"))

    def score(some: Sequence[str]) -> Scores:
        cut = [_cut(tokenizer, text, room) for text in some]
        lengths = [len(ids) for ids in tokenizer(cut)["input_ids"]]
        scores = np.empty((len(cut), 2))
        most = settings.batch_tokens or tokens_at_once(network.device)
        batches = batches_by_length(lengths, len(cut), most)
        with progress.task("judge", len(cut), "texts") as bar, one_thread_each(network.device) as pool:
            for rows, both in pool.results(
                lambda pool, rows: begin(pool, [cut[row] for row in rows]), batches
            ):
                scores[rows] = both
                bar.advance(len(rows))
        return scores

    return Judged(score(texts)[None], score(neutral).mean(axis=0)[None], [""] * len(texts))


def _token(model: str, tokenizer: Any, word: str) -> int:
    """The token id of a word in the middle of a sentence."""
    ids: list[int] = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ModelError(f"model {model}: {word!r} is not one of its tokens, so it cannot fill the mask")
    return ids[0]


def _cut(tokenizer: Any, text: str, room: int) -> str:
    """The text cut to ``room`` tokens, without any mask token in it."""
    text = text.replace(tokenizer.mask_token, " ")  # so that the rest forms no new mask
    encoded = tokenizer(
        text,
        truncation=True,
        max_length=max(1, room),
        return_offsets_mapping=True,
        add_special_tokens=False,
    )
    offsets = encoded["offset_mapping"]
    return text[: offsets[-1][1]] if offsets else ""
