"""Training a reader on about a hundred questions, and on mined questions that are added to them (M9).

questions with answers -> windows that contain an answer -> classifiers of start and end -> reader
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.squad import Question
from pairsmith.methods.mining.question_store import InclusiveSpan, QuestionWithSpans
from pairsmith.models.reader import Feature, Reader, answer, collate, encode_questions, load_reader
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked, mean_of_losses
from pairsmith.training.fit import TrainedModel, TrainingTask, train_at_each_rate
from pairsmith.training.options import FitOptions
from pairsmith.training.validation import validation_f1

_AT_ONCE = 1_000
"""Number of questions that are tokenized at once to find the windows with their answers."""


@dataclass(frozen=True, slots=True)
class TrainedReader(TrainedModel[Reader]):
    """A trained reader, and the number of its training questions: those with an answer inside a window."""

    questions: int


def train_reader_on(
    questions: Sequence[QuestionWithSpans],
    validation: Sequence[Question],
    options: FitOptions,
    *,
    perceptrons: bool = False,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedReader:
    """Train a reader at each learning rate, and keep the one with the best F1 (M9).

    A question is left out, with a message, if no window of its text contains an answer. F1 on ``validation``
    chooses step and learning rate; without validation questions the last step at the first rate is kept.
    ``options`` are ``ReaderOptions`` or, for a teacher, ``TeacherOptions``. With ``perceptrons``, a base
    without a head for answers gets that of a teacher: a 2-layer perceptron for starts, one for ends (Q3).
    """
    shown = progress or Silent()
    say_once = cache(shown.say)  # not for each learning rate

    def make() -> tuple[ReaderWithLoss, TrainingTask[Target]]:
        reader = load_reader(
            options.base,
            device=pick_device(options.device),
            fresh_head=True,
            perceptrons=perceptrons,
            seed=options.seed,
            max_length=options.max_length,
        )
        reader.tokenizer.model_max_length = reader.max_length  # saved for later use with the same windows
        usable = answerable(reader, questions)
        if left_out := len(questions) - len(usable):
            say_once(
                f"{left_out:,} of {len(questions):,} questions are left out: no window of "
                f"{reader.max_length} tokens holds their answer"
            )

        def draw(number: int, _: int, rng: np.random.Generator) -> Target:
            """A window at random, as several overlapping ones may contain the answer."""
            (targets,) = training_windows(reader, [questions[int(usable[number])]])
            return targets[int(rng.integers(len(targets)))]

        measure = partial(validation_f1, partial(answer, reader), validation) if validation else None
        model = ReaderWithLoss(reader, len(usable))
        return model, TrainingTask(len(usable), draw, model.batch, measure, "F1")

    trained = train_at_each_rate(make, options, shown, checkpoints)
    with_loss = trained.model
    return TrainedReader(with_loss.reader, trained.learning_rate, trained.history, with_loss.questions)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A window of a text, and the indices in it of the answer's first and last token."""

    window: Feature
    start: int
    end: int


def answerable(reader: Reader, questions: Sequence[QuestionWithSpans]) -> NDArray[np.int64]:
    """The numbers ``(n,)`` int64, ascending, of the questions with an answer inside a window.

    Raises an ``InputError`` if there is no such question.
    """
    parts = [np.zeros(0, np.int64)]
    for first in range(0, len(questions), _AT_ONCE):
        targets = training_windows(reader, questions[first : first + _AT_ONCE])
        parts.append(first + np.flatnonzero(list(map(len, targets))))
    numbers: NDArray[np.int64] = np.concatenate(parts)
    if not len(numbers):
        raise InputError(
            f"no window of {reader.max_length} tokens holds an answer to any of the {len(questions)} "
            "questions; give a larger max_length, or questions with shorter answers"
        )
    return numbers


def training_windows(reader: Reader, questions: Sequence[QuestionWithSpans]) -> list[list[Target]]:
    """For each question, the windows with the first of its answers that is in any window; may be empty."""
    windows: list[list[Feature]] = [[] for _ in questions]
    texts = [question.question for question in questions]
    for window in encode_questions(reader, texts, [question.context for question in questions]):
        windows[window.question].append(window)
    targets_of_all = []
    for of_question, question in zip(windows, questions, strict=True):
        by_span = (
            [Target(window, *place) for window in of_question if (place := answer_tokens(window, span))]
            for span in question.spans
        )
        targets_of_all.append(next((targets for targets in by_span if targets), []))
    return targets_of_all


def answer_tokens(window: Feature, span: InclusiveSpan) -> tuple[int, int] | None:
    """The indices of an answer's first and last token in a window; None if the window lacks one of them."""
    begins, ends = window.offsets.unbind(1)
    starts, finals = (
        (window.is_context & (begins <= character) & (character < ends)).nonzero().flatten().tolist()
        for character in span
    )
    return (starts[0], finals[-1]) if starts and finals else None


class ReaderWithLoss(nn.Module):
    """A reader's model, which returns the loss of windows; ``questions`` is how many questions it learns."""

    def __init__(self, reader: Reader, questions: int) -> None:
        super().__init__()
        self.model = reader.model
        self.reader = reader
        self.questions = questions

    def batch(self, rows: Sequence[Target]) -> Mapping[str, Any]:
        """The arguments of ``forward``: the windows, with their answers, in chunks of similar length."""

        def features(numbers: list[int]) -> dict[str, Any]:
            chunk = [rows[number] for number in numbers]
            return {
                "inputs": collate(self.reader, [row.window for row in chunk]),
                "allowed": pad_sequence([row.window.is_context for row in chunk], batch_first=True),
                "starts": torch.tensor([row.start for row in chunk]),
                "ends": torch.tensor([row.end for row in chunk]),
            }

        lengths = [len(row.window.input_ids) for row in rows]
        return {"windows": chunked(lengths, features, self.reader.model.device)}

    def forward(self, windows: Mapping[str, Any]) -> dict[str, Tensor]:
        """The mean loss of a batch of n windows (M9), ``loss``, ``()`` float32.

        ``windows`` are the windows that ``batch`` returns, in chunks. Each chunk holds the model's inputs,
        and ``allowed``, ``starts`` and ``ends`` as ``span_losses`` takes them.
        """
        count = len(windows["order"])
        return mean_of_losses(self._losses, windows["chunks"], self, count)

    def _losses(self, features: Mapping[str, Any]) -> Tensor:
        output = self.model(**features["inputs"])
        places = (features[name] for name in ("allowed", "starts", "ends"))
        return span_losses(output.start_logits, output.end_logits, *places)


def span_losses(
    start_logits: Tensor, end_logits: Tensor, allowed: Tensor, starts: Tensor, ends: Tensor
) -> Tensor:
    """The mean of the cross-entropies of each answer's start and end (M9): ``(n,)`` float32, at least 0.

    The softmax is over the tokens of the text alone, as at inference (Q7). The heads of transformers also
    include the tokens of the question.

    Args:
        start_logits, end_logits: ``(n, tokens)`` of any floating dtype; finite where allowed.
        allowed: ``(n, tokens)`` bool, the tokens of the text.
        starts, ends: ``(n,)`` int64, the first and the last token of each answer; allowed ones.
    """
    of_starts, of_ends = (
        nn.functional.cross_entropy(
            logits.float().masked_fill(~allowed, -torch.inf), places, reduction="none"
        )
        for logits, places in ((start_logits, starts), (end_logits, ends))
    )
    return (of_starts + of_ends) / 2
