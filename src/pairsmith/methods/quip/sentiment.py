"""Zero-shot sentiment: does a text answer why something is good, or why it is bad (Q11)?

a pair of questions -> S(x, y) of each text x with each question y -> minus C_y, the mean over neutral texts
-> the class of the larger difference; the span that best answers its question is the rationale

The scores come from a student or from a reader. In the baseline they are a masked language model's
log probabilities of two words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.arrays import Float64s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.metrics.bootstrap import resampled_sums
from pairsmith.models.encode import beginning, not_finite, results_by_length
from pairsmith.models.heads import TextModel
from pairsmith.models.reader import Reader, encode_questions, rows_of_questions, whole_text
from pairsmith.models.span_answers import TextVectors, answers_on_text, question_vectors, text_vectors
from pairsmith.models.span_encoder import SpanEncoder, span_logits
from pairsmith.models.teacher import window_scores

PROMPTS = (
    ("Why is it bad?", "Why is it good?"),
    ("Why is this {item} bad?", "Why is this {item} good?"),
    ("Why is it terrible?", "Why is it great?"),
    ("What makes this {item} bad?", "What makes this {item} good?"),
    ("What is the reason this {item} is bad?", "What is the reason this {item} is good?"),
    ("What is the reason this {item} is terrible?", "What is the reason this {item} is great?"),
)
"""Pairs of questions: first the one that negative texts answer, then the one that positive texts answer."""

NEUTRAL = ("the", "be", "to", "of", "and", "a", "in", "that", "have", "I")
"""Neutral texts, from which the bias of each question is estimated."""

ITEM = "movie"
"""What the texts are about, unless ``item`` says otherwise."""

WORDS = ("terrible", "great")
"""The words of the baseline: for negative and for positive texts."""
_MASK_TEMPLATE = " It was {mask}."
_AT_ONCE = 256
"""Number of texts whose vectors are held in memory at once."""
_READ_AT_ONCE = 32
"""Number of texts whose scores with all questions are held in memory at once."""

RATIONALE_TOKENS = 5
"""Longest rationale in tokens."""
RATIONALES = 4
"""Index of the prompt whose answers are the rationales: the one that did best on SST-2 in the paper."""

BestAnswer = Callable[[int, int], str]
"""Finds the span of a text, of at most ``RATIONALE_TOKENS``, that best answers a question.

Its arguments are the index of the text and the index of the question among ``questions_about``. The score
S(x, y) adds the best start and the best end, even if they form no span; the rationale is always a span.
"""

Calibration = Literal["calibrated", "centred", "plain"]
CALIBRATIONS: tuple[Calibration, ...] = ("calibrated", "centred", "plain")
"""What is subtracted from the scores before they are compared, see ``Judged.positive``."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A model's scores of n texts with each of p prompts; a prompt is a pair of questions.

    Attributes:
        scores: ``(p, n, 2)`` float64: S(x, y), first of the negative question, then of the positive one.
        neutral: ``(p, 2)`` float64: C_y, the mean of S over the neutral texts.
        rationales: for each text, the span that best answers a question of the prompt ``RATIONALES``: the
            question for the class that this prompt predicts after calibration; empty if there is no span.
    """

    scores: Float64s
    neutral: Float64s
    rationales: Sequence[str]

    def leads(self) -> Float64s:
        """The positive score of each text minus its negative score, with each prompt: ``(p, n)``."""
        leads: Float64s = self.scores[:, :, 1] - self.scores[:, :, 0]
        return leads

    def positive(
        self, calibration: Calibration, texts: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.bool_]:
        """Whether each text is predicted positive with each prompt, ``(p, n)``.

        ``plain`` predicts the class with the larger score. ``calibrated`` first subtracts the mean scores of
        the neutral texts (Q11). ``centred`` first subtracts the mean scores of the texts themselves; this
        needs no labels, but assumes that both classes are about equally frequent. ``texts`` selects texts by
        their indices; by default all are used.
        """
        leads = self.leads()[:, texts]
        bias: Float64s = np.zeros((len(leads), 1))
        if calibration == "calibrated":
            bias = self.neutral[:, 1:] - self.neutral[:, :1]
        if calibration == "centred":
            bias = leads.mean(axis=1, keepdims=True)
        predicted: NDArray[np.bool_] = leads > bias
        return predicted

    def accuracy_draws(
        self, gold: NDArray[np.bool_], calibration: Calibration, *, draws: int, rng: np.random.Generator
    ) -> Float64s:
        """The accuracy of each prompt on each of ``draws`` bootstrap resamples: ``(draws, p)``, in [0, 1].

        A resample draws n texts with replacement, the same texts for all prompts. ``centred`` predictions are
        made anew in each resample, as they depend on the mean scores of its texts. ``gold`` is ``(n,)``:
        whether each text is positive.
        """
        count = len(gold)
        if calibration != "centred":  # the predictions are the same in each resample
            correct = (self.positive(calibration) == gold).T.astype(np.int64)
            return resampled_sums(correct, draws=draws, rng=rng) / count
        accuracies: Float64s = np.empty((draws, len(self.scores)))
        for draw in accuracies:
            rows = rng.integers(0, count, size=count)
            draw[:] = (self.positive(calibration, rows) == gold[rows]).mean(axis=1)
        return accuracies


def questions_about(item: str) -> list[str]:
    """The questions of ``PROMPTS`` about ``item``: of each prompt the negative, then the positive one."""
    return [question.format(item=item) for pair in PROMPTS for question in pair]


def judge_by_questions(
    encoder: SpanEncoder,
    texts: Sequence[str],
    *,
    item: str = ITEM,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Judged:
    """The scores S(x, y) of texts with the two questions of each prompt, by a student (Q11).

    Args:
        encoder: a student, as ``load_student`` loads it; it is put into evaluation mode.
        texts: n texts.
        item: a word for what the texts are about, such as ``product``.
        batch_tokens: most tokens in a batch, padding included; None: what suits the device.
        progress: shows how far the judging is; by default nothing is shown.

    Raises:
        ModelError: the encoder gives scores that are not finite.
    """
    encoder.tokens.model.eval()
    with torch.inference_mode():
        vectors = question_vectors(encoder, questions_about(item))

    def read(batch: Sequence[str]) -> tuple[Float64s, BestAnswer]:
        of_texts = text_vectors(encoder, batch, batch_tokens=batch_tokens)

        def best_answer(number: int, question: int) -> str:
            starts, ends = (side[question : question + 1] for side in vectors)
            (answer,) = answers_on_text(batch[number], of_texts[number], starts, ends, RATIONALE_TOKENS)
            return answer.text

        return scores_of(of_texts, *vectors), best_answer

    return _judged(read, texts, _AT_ONCE, progress)


def scores_of(texts: Sequence[TextVectors], starts: Tensor, ends: Tensor) -> Float64s:
    """S(x, y) = max_i r(x)_i · f_start(q_y) + max_i r(x)_i · f_end(q_y), ``(p, n, 2)`` float64 (Q11).

    The maxima are over all tokens of a text, special ones included. ``starts`` and ``ends``, ``(2 * p, d)``,
    are f_start and f_end of the questions, two for each prompt, in the dtype of the texts' vectors.
    """
    sums = []
    for text in texts:
        tokens = torch.cat([text.vectors, text.special])
        start, end = span_logits(tokens[None], starts, ends, [len(starts)])
        sums.append((start.amax(dim=1) + end.amax(dim=1)).cpu().double().numpy())
    return np.stack(sums).reshape(len(texts), -1, 2).swapaxes(0, 1)


def rationale_questions(scores: Float64s, neutral: Float64s) -> list[int]:
    """For each of n texts, the index in ``questions_about`` of the question whose answer is the rationale.

    The question belongs to the prompt ``RATIONALES``, and to the class that this prompt predicts after
    calibration. ``scores`` are ``(p, n, 2)``, ``neutral`` ``(p, 2)``, see ``Judged``.
    """
    sides: list[int] = (scores[RATIONALES] - neutral[RATIONALES]).argmax(axis=1).tolist()
    return [2 * RATIONALES + side for side in sides]


def judge_by_reader(
    reader: Reader,
    texts: Sequence[str],
    *,
    item: str = ITEM,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Judged:
    """The scores of texts by a reader, which reads question and text together (Q11).

    A score is the reader's largest start score plus its largest end score over the tokens of the text; 0 for
    a text without tokens. ``reader`` is put into evaluation mode; the other arguments are those of
    ``judge_by_questions``.
    """
    reader.model.eval()
    questions = questions_about(item)

    def read(batch: Sequence[str]) -> tuple[Float64s, BestAnswer]:
        contexts = [text for text in batch for _ in questions]
        windows = encode_questions(reader, questions * len(batch), contexts)
        scores = window_scores(reader, windows, batch_tokens)
        readings = [  # of each text with each question, text by text
            whole_text([windows[row] for row in rows], [scores[row] for row in rows])
            for rows in rows_of_questions(windows)
        ]
        sums = [
            float(reading.scores[:, reading.allowed].amax(dim=1).sum()) if reading.allowed.any() else 0.0
            for reading in readings
        ]

        def best_answer(number: int, question: int) -> str:
            reading = readings[number * len(questions) + question]
            return reading.best(batch[number], RATIONALE_TOKENS).text

        return np.array(sums).reshape(len(batch), -1, 2).swapaxes(0, 1), best_answer

    return _judged(read, texts, _READ_AT_ONCE, progress)


def _judged(
    read: Callable[[Sequence[str]], tuple[Float64s, BestAnswer]],
    texts: Sequence[str],
    at_once: int,
    progress: Progress | None,
) -> Judged:
    """Score the neutral texts and then ``texts``, ``at_once`` at a time, and choose rationales (Q11).

    ``read`` returns the scores S(x, y) of n texts, ``(p, n, 2)``, and a function that finds their rationales.
    """
    parts: list[Float64s] = []
    rationales: list[str] = []
    with torch.inference_mode():
        neutral: Float64s = read(NEUTRAL)[0].mean(axis=1)  # (p, 2)
    with torch.inference_mode(), (progress or Silent()).task("judge", len(texts), "texts") as bar:
        for batch in in_batches(texts, at_once):
            scores, best_answer = read(batch)
            parts.append(_finite(scores))
            rationales += [best_answer(*row) for row in enumerate(rationale_questions(scores, neutral))]
            bar.advance(len(batch))
    return Judged(np.concatenate(parts, axis=1), neutral, rationales)


def judge_by_mask(
    model: TextModel,
    texts: Sequence[str],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Judged:
    """The baseline: a masked language model fills "It was [MASK]." after each text (Q11).

    There is a single prompt. Its scores are the log probabilities of the two ``WORDS`` at the mask, and all
    rationales are empty. ``model`` is in evaluation mode; the other arguments are those of
    ``judge_by_questions``.

    Raises:
        ModelError: one of the words is not a token, or the scores are not finite.
    """
    network, tokenizer = model.model, model.tokenizer
    words = [_token(tokenizer, word) for word in WORDS]
    ending = _MASK_TEMPLATE.format(mask=tokenizer.mask_token)
    room = model.max_length - len(tokenizer(ending)["input_ids"])

    def scored(features: Mapping[str, Tensor]) -> Float64s:
        with torch.inference_mode():
            logits = network(**{name: value.to(network.device) for name, value in features.items()}).logits
            at = (features["input_ids"] == tokenizer.mask_token_id).to(logits.device)
            scores: Float64s = logits[at].float().log_softmax(dim=1)[:, words].cpu().double().numpy()
            return scores

    def score(texts: Sequence[str]) -> Float64s:
        cut = [_cut(tokenizer, text, room) for text in texts]
        scores = np.empty((len(cut), 2))

        def masked(rows: list[int]) -> Any:
            return tokenizer([cut[row] + ending for row in rows], padding=True, return_tensors="pt")

        with (progress or Silent()).task("judge", len(cut), "texts") as bar:
            for rows, both in results_by_length(
                [len(ids) for ids in tokenizer(cut)["input_ids"]],
                masked,
                scored,
                network.device,
                batch_tokens=batch_tokens,
            ):
                scores[rows] = both
                bar.advance(len(rows))
        return scores

    return Judged(_finite(score(texts)[None]), score(NEUTRAL).mean(axis=0)[None], [""] * len(texts))


def _finite(scores: Float64s) -> Float64s:
    """The same scores; raises a ``ModelError`` if one is not finite."""
    if not np.isfinite(scores).all():
        raise not_finite("the model gives scores")
    return scores


def _token(tokenizer: Any, word: str) -> int:
    """The token id of a word in the middle of a sentence."""
    ids: list[int] = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ModelError(
            f"{word!r} is not one of the model's tokens, so it cannot fill the mask; give another masked "
            "language model"
        )
    return ids[0]


def _cut(tokenizer: Any, text: str, room: int) -> str:
    """The text without the names of special tokens such as the mask, cut to ``room`` tokens."""
    for name in tokenizer.all_special_tokens:
        text = text.replace(name, " ")  # a space, so that the text around it forms no new name
    encoded = tokenizer(
        beginning(tokenizer, text, max(1, room)),
        truncation=True,
        max_length=max(1, room),
        return_offsets_mapping=True,
        add_special_tokens=False,
    )
    offsets = encoded["offset_mapping"]
    return text[: offsets[-1][1]] if offsets else ""
