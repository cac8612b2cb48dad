"""Sentiment scores S(x, y) by a bi-encoder: the best start and end of an answer in the text (Q11)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.core.progress import Progress
from pairsmith.models.reader import best_span
from pairsmith.models.span_encoder import load_span_encoder, span_logits
from pairsmith.models.span_reader import TextVectors, question_vectors, text_vectors
from pairsmith.steps.evaluate.settings import EvaluateSentimentSettings

_AT_ONCE = 256
"""Number of texts whose vectors are held in memory at once."""

RATIONALE_TOKENS = 5
"""Longest rationale in tokens."""

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """A model's scores of n texts with each of p prompts.

    Attributes:
        scores: ``(p, n, 2)``: S(x, y), for negative and positive.
        neutral: ``(p, 2)``: C_y, the mean score of neutral texts.
        rationales: for each text, the span that best answers the first prompt's question for the class that
            this prompt, calibrated, predicts; empty if there is none.
    """

    scores: Scores
    neutral: Scores
    rationales: Sequence[str]

    def positive(self, *, calibrated: bool) -> NDArray[np.bool_]:
        """Whether each text is predicted positive with each prompt, ``(p, n)``."""
        scores = self.scores - (self.neutral[:, None, :] if calibrated else 0.0)
        found: NDArray[np.bool_] = scores[:, :, 1] > scores[:, :, 0]
        return found


def judge_by_questions(
    settings: EvaluateSentimentSettings,
    texts: Sequence[str],
    prompts: Sequence[Sequence[str]],
    neutral: Sequence[str],
    progress: Progress,
) -> Judged:
    """The scores of texts by the two questions of each prompt.

    Args:
        settings: the model and the device.
        texts: n texts.
        prompts: p pairs of questions, the one for negative texts first.
        neutral: neutral texts.
        progress: where progress is shown.
    """
    encoder = load_span_encoder(
        settings.model, device=settings.device, dtype=settings.dtype, max_length=settings.max_length
    )
    encoder.tokens.model.eval()
    with torch.inference_mode():
        asked = question_vectors(encoder, [question for pair in prompts for question in pair])
        empty = scores_of(text_vectors(encoder, neutral), *asked).mean(axis=1)  # (p, 2)
        scores = np.empty((len(prompts), len(texts), 2))
        rationales: list[str] = []
        with progress.task("judge", len(texts), "texts") as bar:
            for first in range(0, len(texts), _AT_ONCE):
                some = texts[first : first + _AT_ONCE]
                read = text_vectors(encoder, some, batch_tokens=settings.batch_tokens)
                found = scores_of(read, *asked)
                scores[:, first : first + len(some)] = found
                sides = (found[0] - empty[0]).argmax(axis=1)
                rationales += [
                    _rationale(*each, asked) for each in zip(some, read, sides.tolist(), strict=True)
                ]
                bar.advance(len(some))
    return Judged(scores, empty, rationales)


def scores_of(texts: Sequence[TextVectors], starts: torch.Tensor, ends: torch.Tensor) -> Scores:
    """S(x, y): the largest product with a question's start vector plus the largest with its end vector (Q11).

    Args:
        texts: n texts; one without tokens, such as a zero-width space, has the score 0.
        starts: ``(2 · p, d)``, f_start of the questions, two for each prompt.
        ends: ``(2 · p, d)``, f_end of the questions.

    Returns:
        ``(p, n, 2)`` float64.
    """
    found = []
    for text in texts:
        if not len(text.offsets):
            found.append(np.zeros(len(starts)))
            continue
        start, end = span_logits(text.vectors[None], starts, ends, [len(starts)])
        found.append((start.amax(dim=1) + end.amax(dim=1)).double().cpu().numpy())
    return np.stack(found).reshape(len(texts), -1, 2).swapaxes(0, 1)


def _rationale(text: str, read: TextVectors, side: int, asked: tuple[torch.Tensor, torch.Tensor]) -> str:
    """The span that best answers the first prompt's question for a class, by the sum of the two products.

    The score S(x, y), in contrast, takes the best start and the best end, even if they form no span.
    """
    if not len(read.offsets):
        return ""
    starts, ends = (each[side : side + 1] for each in asked)
    start, end = span_logits(read.vectors[None], starts, ends, [1])
    spans = best_span(start, end, torch.ones_like(start, dtype=torch.bool), RATIONALE_TOKENS)
    begin, finish = int(read.offsets[spans.starts[0], 0]), int(read.offsets[spans.ends[0], 1])
    return text[begin:finish].strip()
