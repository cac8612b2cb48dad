"""The step ``infuse``: distils a teacher into a bi-encoder whose token vectors predict answers (Q4)."""

from collections.abc import Iterator
from functools import partial

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError, verb_for
from pairsmith.data.questions import GeneratedQuestion, read_generated_questions, say_left_out
from pairsmith.methods.quip.passage_store import PassageStore
from pairsmith.methods.quip.student import grouped_by_passage, train_student_on
from pairsmith.steps.training.card import ANSWERING_ENCODER
from pairsmith.steps.training.reading import TrainingData, items_of, read_validation_questions
from pairsmith.steps.training.settings import InfuseSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep, save_with_card

_USE = """```python
import pairsmith

model = pairsmith.load_student("path/to/this/folder")  # encoder and heads; AutoModel opens the encoder alone
text = "Hamlet is a play by Shakespeare."
print(pairsmith.answer_with_student(model, ["Who wrote Hamlet?"], [text])[0].text)
```"""


def _read(settings: InfuseSettings, most: int | None) -> TrainingData[PassageStore]:
    read_source = partial(read_generated_questions, with_answers=settings.labels == "answers")
    questions, unread = items_of(settings.data, read_source, most)
    unanswered = 0

    def counted() -> Iterator[GeneratedQuestion]:
        nonlocal unanswered
        for question in questions:
            unanswered += settings.labels == "answers" and question.generated_span is None
            yield question

    passages = grouped_by_passage(counted(), settings.labels)
    if not passages:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to train on")
    validation, left_out = read_validation_questions(settings.validation)
    return TrainingData(passages, passages.questions, unread, validation, unanswered, left_out)


def _train(data: TrainingData[PassageStore], settings: InfuseSettings, context: TrainingContext) -> Trained:
    say_left_out(settings.data, context["progress"].say)
    if data.unanswered:
        context["progress"].say(
            f"{data.unanswered:,} of {data.rows:,} questions {verb_for(data.unanswered, 'have')} no answer "
            "in the passage; there the student learns the first token"
        )
    if data.left_out:
        context["progress"].say(data.left_out)
    trained = train_student_on(data.training, data.validation, settings, **context)
    facts = {
        "passages": trained.passages,
        "questions": trained.questions,
        "questions left out: the answer is beyond the tokens that are read": data.rows - trained.questions,
        "labels": settings.labels,
        "validation examples": len(data.validation),
        "learning rate": trained.learning_rate,
    }
    student = trained.model
    return Trained(
        "An encoder whose token vectors answer questions",
        _USE,
        ANSWERING_ENCODER,
        (student.tokens.model, student.heads),
        partial(save_with_card, student),
        facts,
        trained.history,
    )


infuse = TrainingStep("infuse", ("data", "validation"), _read, _train, QUIP)
"""Trains a student on questions. ``AutoModel`` opens the encoder in the folder, ``pairsmith.load_student``
the encoder with its heads."""
