"""The step ``train-asker``: a question generator, which writes an answer and then its question (Q2)."""

from itertools import count

from pairsmith.core.citations import QUIP
from pairsmith.methods.quip.example_store import GeneratorExamples
from pairsmith.methods.quip.generator_training import (
    check_generator_examples,
    generator_examples,
    train_question_generator_on,
)
from pairsmith.steps.training.card import HubModel
from pairsmith.steps.training.reading import (
    AnsweredQuestions,
    TrainingData,
    items_of,
    read_validation_questions,
)
from pairsmith.steps.training.settings import TrainQuestionGeneratorSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep
from pairsmith.training.generators import refuse_both_ways

_USE = """```sh
pairsmith ask --inputs texts.jsonl --model path/to/this/folder --out questions
```"""


def _read(settings: TrainQuestionGeneratorSettings, most: int | None) -> TrainingData[GeneratorExamples]:
    refuse_both_ways(settings.base)
    answered = AnsweredQuestions()
    items, unread = items_of(settings.data, answered.read, most)
    read = count()
    questions = (question for question, _ in zip(items, read, strict=False))
    examples = GeneratorExamples(generator_examples(questions, settings))
    validation_questions, left_out = read_validation_questions(settings.validation)
    validation = GeneratorExamples(generator_examples(validation_questions, settings))
    check_generator_examples(examples, validation if settings.validation else None, settings)
    rows = next(read)  # the next number is that of all read
    return TrainingData(examples, rows, unread, validation, answered.unanswered, left_out)


def _train(
    data: TrainingData[GeneratorExamples], settings: TrainQuestionGeneratorSettings, context: TrainingContext
) -> Trained:
    data.report(context["progress"])
    trained = train_question_generator_on(data.training, data.validation, settings, **context)
    facts = {
        "questions": data.examples,
        "questions left out: no passage holds the answer, or it contains the end mark": data.rows
        - data.examples,
    }
    hub = HubModel("transformers", "text-generation", ("question-generation",))
    return Trained.transformer("A model that generates questions about passages", _USE, hub, trained, facts)


train_question_generator = TrainingStep("train-asker", ("data", "validation"), _read, _train, QUIP)
"""Trains a question generator on questions with answers. ``AutoModelForSeq2SeqLM`` opens the folder, or
``AutoModelForCausalLM`` if the base is a causal language model."""
