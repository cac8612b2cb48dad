"""A teacher's span distributions: the probabilities of an answer's start and of its end (Q3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pairsmith.data.questions import Distribution
from pairsmith.models.encode import results_by_length
from pairsmith.models.reader import (
    ANSWER_TOKENS,
    Feature,
    Prediction,
    Reader,
    TextScores,
    encode_questions,
    read_windows,
    rows_of_questions,
    whole_text,
)
from pairsmith.runs.mapped import ProgressScaler

TOP = 8
"""Number of the likeliest starts, and of the likeliest ends, that are kept."""


@dataclass(frozen=True, slots=True)
class SpanDistributions:
    """A teacher's predictions for a question; the positions are in order of decreasing probability."""

    starts: Distribution  # of the position of the answer's first character
    ends: Distribution  # of the position after the answer's last character
    best: Prediction  # the span with the largest product of start and end probability (Q7)


def predict_spans(
    reader: Reader,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    top: int = TOP,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[SpanDistributions]:
    """A teacher's sparse distributions of starts and of ends, and its answer, for each question (Q3).

    Probabilities are softmaxes over all tokens of a text (see ``whole_text``). For a blank text the
    distributions have no positions, and the answer is empty and has score 0.

    Args:
        reader: the teacher; it is put into evaluation mode.
        questions: n questions, as for ``encode_questions``.
        contexts: the text of each question.
        top: the number of likeliest starts, and of likeliest ends, that the distributions have.
        max_answer_tokens: the largest number of tokens of an answer.
        batch_tokens: the largest number of tokens in a batch, padding included; None: what suits the device.
        advance: is called after each batch; the numbers that it is called with add up to that of the
            questions.
    """
    if not questions:
        return []
    reader.model.eval()
    windows = encode_questions(reader, questions, contexts)
    scaler = ProgressScaler(len(questions), len(windows), advance)
    scores = window_scores(reader, windows, batch_tokens, scaler)
    distributions = []
    for context, rows in zip(contexts, rows_of_questions(windows), strict=True):
        text = whole_text([windows[row] for row in rows], [scores[row] for row in rows])
        distributions.append(_span_distributions(context, text, top, max_answer_tokens))
    return distributions


def window_scores(
    reader: Reader,
    windows: Sequence[Feature],
    batch_tokens: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Tensor]:
    """Start and end scores of the tokens of each window: ``(2, tokens)`` float32, unnormalised (Q3).

    The tensors are on the CPU. Special tokens are included. ``whole_text`` combines the windows of a text
    (Q7). ``advance`` is called after each batch with the number of its windows.
    """
    scores: list[Tensor] = [torch.empty(0)] * len(windows)
    for rows, results in results_by_length(
        [len(window.input_ids) for window in windows],
        lambda rows: [windows[row] for row in rows],
        partial(read_windows, reader),
        reader.model.device,
        batch_tokens=batch_tokens,
    ):
        for row, window_result in zip(rows, results, strict=True):
            scores[row] = window_result
        advance(len(rows))
    return scores


def _span_distributions(context: str, text: TextScores, top: int, max_tokens: int) -> SpanDistributions:
    """The predictions for one question, from the scores of the tokens of its text."""
    offsets = text.offsets[text.allowed]
    probabilities, tokens = text.scores[:, text.allowed].softmax(dim=1).topk(min(top, len(offsets)), dim=1)
    surfaces = [context[begin:end] for begin, end in offsets.tolist()]
    # Byte-level tokens may begin with the space before a word.
    spaces = torch.tensor([len(surface) - len(surface.lstrip()) for surface in surfaces], dtype=torch.int64)
    begins = offsets[:, 0] + spaces
    starts, ends = (
        Distribution(tuple(positions[likely > 0].tolist()), tuple(likely[likely > 0].tolist()))
        for positions, likely in (
            (begins[tokens[0]], probabilities[0]),
            (offsets[tokens[1], 1], probabilities[1]),
        )
    )
    return SpanDistributions(starts, ends, text.best(context, max_tokens))
