"""The reader trained on about a hundred questions and added mined ones (M9).

questions with answers -> windows that contain an answer -> classifiers of start and end -> reader
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.squad import Answer, Question
from pairsmith.metrics.squad import qa_scores
from pairsmith.models.reader import Feature, Reader, answer, collate, encode_questions, load_reader
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked, sum_of_losses
from pairsmith.training.fit import TrainingTask, fit_each_rate
from pairsmith.training.question_settings import TrainTeacherSettings
from pairsmith.training.settings import TrainReaderSettings


@dataclass(frozen=True, slots=True)
class TrainedReader:
    """A trained reader, and how its training went.

    Attributes:
        reader: the reader with the weights of its best step.
        learning_rate: the one that did best.
        training: how it went with that rate.
        questions: number of questions it was trained on: those with an answer that a window contains.
    """

    reader: Reader
    learning_rate: float
    training: TrainingHistory
    questions: int


def train_reader_on(
    questions: Sequence[Question],
    validation: Sequence[Question],
    settings: TrainReaderSettings | TrainTeacherSettings,
    device: str,
    *,
    perceptrons: bool = False,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedReader:
    """Train a reader at each learning rate, and keep the one with the best F1.

    Args:
        questions: to train on; those of which no window contains an answer are left out, with a message.
        validation: questions by which the best step and rate are chosen; may be empty.
        settings: of its paths only ``base`` is read here.
        device: ``cpu``, ``cuda`` or ``mps``.
        perceptrons: whether the new head, if the base has none, is a teacher's (Q3).
        progress: where progress is shown.
        checkpoints: where checkpoints are kept.
    """
    shown = progress or Silent()

    def make() -> SpanMarker:
        reader = load_reader(
            settings.base,
            device=device,
            fresh_head=True,
            perceptrons=perceptrons,
            seed=settings.seed,
            max_length=settings.max_length,
        )
        reader.tokenizer.model_max_length = reader.max_length  # saved for later use with the same windows
        return SpanMarker(reader, training_windows(reader, questions))

    told = False

    def lesson(marker: SpanMarker) -> TrainingTask[Target]:
        nonlocal told
        if not told:  # once, not for each learning rate
            _say_left_out(len(questions), marker, shown)
            told = True
        measure = partial(validation_f1, marker.reader, validation) if validation else None
        draw = partial(_drawn, marker.examples)
        return TrainingTask(len(marker.examples), draw, partial(batch_of_windows, marker.reader), measure)

    marker, rate, training = fit_each_rate(
        make, lesson, settings, metric="F1", device=device, progress=shown, checkpoints=checkpoints
    )
    return TrainedReader(marker.reader, rate, training, len(marker.examples))


def _say_left_out(count: int, marker: "SpanMarker", progress: Progress) -> None:
    if left_out := count - len(marker.examples):
        progress.say(
            f"{left_out:,} of {count:,} questions are left out: no window of {marker.reader.max_length} "
            "tokens holds their answer"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A window, and the first and the last token of the answer in it."""

    window: Feature
    start: int
    end: int


def training_windows(reader: Reader, questions: Sequence[Question]) -> list[list[Target]]:
    """For each question, the windows that contain its first answer or, where none do, its next answer.

    Returns:
        one list for each question that has such windows.
    """
    windows: list[list[Feature]] = [[] for _ in questions]
    texts = [question.question for question in questions]
    for window in encode_questions(reader, texts, [question.context for question in questions]):
        windows[window.question].append(window)
    found = [_targets(windows[number], question.answers) for number, question in enumerate(questions)]
    if not any(found):
        raise InputError(
            f"no window of {reader.max_length} tokens holds an answer to any of the {len(questions)} "
            "questions; give a larger --max-length, or questions with shorter answers"
        )
    return [targets for targets in found if targets]


def _targets(windows: Sequence[Feature], answers: Sequence[Answer]) -> list[Target]:
    for each in answers:
        tokens = [(window, answer_tokens(window, each)) for window in windows]
        found = [Target(window, *place) for window, place in tokens if place]
        if found:
            return found
    return []


def answer_tokens(window: Feature, gold: Answer) -> tuple[int, int] | None:
    """The tokens of the text that cover an answer's first and last character; white space does not count.

    Returns:
        the first token on the first character, and the last token on the last; None if either is missing.
    """
    text = gold.text
    first = gold.start + len(text) - len(text.lstrip())
    last = gold.start + len(text.rstrip()) - 1
    begins, ends = window.offsets.unbind(1)

    def covering(character: int) -> list[int]:
        covered = window.is_context & (begins <= character) & (character < ends)
        return [int(token) for token in covered.nonzero()]

    starts, finals = covering(first), covering(last)
    return (starts[0], finals[-1]) if starts and finals else None


def _drawn(examples: Sequence[Sequence[Target]], number: int, _: int, rng: np.random.Generator) -> Target:
    """A question's window, drawn at random if several overlapping windows contain the answer."""
    targets = examples[number]
    return targets[int(rng.integers(len(targets)))]


def batch_of_windows(reader: Reader, rows: Sequence[Target]) -> Mapping[str, Any]:
    """The arguments of ``SpanMarker.forward``."""
    lengths = [len(row.window.input_ids) for row in rows]
    made = chunked(
        lengths, lambda numbers: _features(reader, [rows[i] for i in numbers]), reader.model.device
    )
    return {"windows": made.as_inputs()}


def _features(reader: Reader, rows: Sequence[Target]) -> dict[str, Any]:
    windows = [row.window for row in rows]
    return {
        "inputs": collate(reader, windows),
        "allowed": pad_sequence([window.is_context for window in windows], batch_first=True),
        "starts": torch.tensor([row.start for row in rows]),
        "ends": torch.tensor([row.end for row in rows]),
    }


class SpanMarker(nn.Module):
    """A reader's model and its training windows; called with a batch of windows, it returns the loss."""

    def __init__(self, reader: Reader, examples: Sequence[Sequence[Target]]) -> None:
        super().__init__()
        self.model = reader.model
        self.reader = reader
        self.examples = examples

    def forward(self, windows: Mapping[str, Any]) -> dict[str, Tensor]:
        """The mean loss of a batch."""
        count = len(windows["order"])
        return {"loss": sum_of_losses(self._losses, windows["chunks"], self) / count}

    def _losses(self, features: Mapping[str, Any]) -> Tensor:
        found = self.model(**features["inputs"])
        places = (features[name] for name in ("allowed", "starts", "ends"))
        return span_losses(found.start_logits, found.end_logits, *places)


def span_losses(
    start_logits: Tensor, end_logits: Tensor, allowed: Tensor, starts: Tensor, ends: Tensor
) -> Tensor:
    """The mean of the cross-entropies of the answers' starts and ends (M9).

    The softmax is over the tokens of the text, as at inference (Q7), without those of the question, which
    the heads of transformers include.

    Args:
        start_logits: ``(n, tokens)`` of any floating dtype; finite where allowed.
        end_logits: the same for ends.
        allowed: ``(n, tokens)`` bool, the tokens of the text.
        starts: ``(n,)`` int64, the first token of each answer; an allowed one.
        ends: ``(n,)`` int64, the last token of each answer; an allowed one.

    Returns:
        ``(n,)`` float32, at least 0.
    """
    of_starts, of_ends = (
        nn.functional.cross_entropy(
            logits.float().masked_fill(~allowed, -torch.inf), places, reduction="none"
        )
        for logits, places in ((start_logits, starts), (end_logits, ends))
    )
    return (of_starts + of_ends) / 2


def validation_f1(reader: Reader, questions: Sequence[Question]) -> float | None:
    """F1 of the reader's answers, ×100; None where its scores are no longer finite."""
    try:
        found = answer(reader, [each.question for each in questions], [each.context for each in questions])
    except ModelError:  # the training diverged, which is reported at its end
        return None
    return qa_scores([prediction.text for prediction in found], [each.golds for each in questions]).f1
