"""The step ``train-teacher``: a cross-encoder that answers questions, which ``infuse`` distils (Q3).

questions with answers -> windows that contain an answer -> two perceptrons classify start and end -> teacher
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pairsmith.core.citations import QUIP
from pairsmith.data.questions import GeneratedQuestion, read_generated_questions
from pairsmith.methods.mining.question_store import QuestionWithSpans, StoredQuestions
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.methods.quip.distillation import likeliest
from pairsmith.models.reader import Reader
from pairsmith.models.span_heads import PerceptronReader, save_heads
from pairsmith.steps.training.card import ANSWERING_ENCODER
from pairsmith.steps.training.reading import (
    AnsweredQuestions,
    TrainingData,
    items_of,
    read_validation_questions,
)
from pairsmith.steps.training.settings import TrainTeacherSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep
from pairsmith.training.folder import save_transformer

_USE = """```sh
pairsmith relabel --data questions --model path/to/this/folder --out relabelled
pairsmith evaluate qa --model path/to/this/folder --data questions.json --out results
```"""


def _read(settings: TrainTeacherSettings, most: int | None) -> TrainingData[StoredQuestions]:
    answered = AnsweredQuestions()

    def read_source(source: str) -> Iterator[QuestionWithSpans]:
        if settings.labels == "hard":
            return map(_with_likeliest_span, read_generated_questions(source))
        return map(QuestionWithSpans.of, answered.read(source))

    items, unread = items_of(settings.data, read_source, most)
    questions = StoredQuestions(items)
    validation, left_out = read_validation_questions(settings.validation)
    return TrainingData(questions, len(questions), unread, validation, answered.unanswered, left_out)


def _with_likeliest_span(question: GeneratedQuestion) -> QuestionWithSpans:
    """The question with a span from the likeliest start to the likeliest end, each chosen separately (Q6)."""
    starts, ends = (likeliest(distribution).positions for distribution in question.distributions())
    spans = ((starts[0], ends[0] - 1),) if starts and ends else ()
    return QuestionWithSpans(question.question, question.context, spans)


def _train(
    data: TrainingData[StoredQuestions], settings: TrainTeacherSettings, context: TrainingContext
) -> Trained:
    data.report(context["progress"])
    trained = train_reader_on(data.training, data.validation, settings, perceptrons=True, **context)
    facts = {
        "questions": trained.questions,
        "questions left out: no window holds the answer": data.examples - trained.questions,
        "validation examples": len(data.validation),
        "learning rate": trained.learning_rate,
    }
    teacher = trained.model
    return Trained(
        "A teacher that finds answers in texts",
        _USE,
        ANSWERING_ENCODER,
        (teacher.model,),
        partial(save_teacher, teacher),
        facts,
        trained.history,
    )


train_teacher = TrainingStep("train-teacher", ("data", "validation"), _read, _train, QUIP)
"""Trains a teacher on questions with answers. ``AutoModel`` opens its encoder; the perceptrons are saved in
the same folder."""


def save_teacher(teacher: Reader, card: str, out: Path) -> None:
    """Save the encoder as a transformers model, and the perceptrons in the same folder."""
    assert isinstance(teacher.model, PerceptronReader)
    save_transformer(teacher.model.encoder, teacher.tokenizer, card, out)
    save_heads(teacher.model.heads, out)
