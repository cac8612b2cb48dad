"""The step ``train-reader``: a reader trained on about a hundred questions and on mined questions (M9)."""

from collections.abc import Iterable
from itertools import chain

from pairsmith.core.citations import MINING
from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import resolve_model
from pairsmith.data.squad import Question
from pairsmith.methods.mining.question_store import QuestionWithSpans
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.models.span_heads import heads_kind
from pairsmith.steps.training.card import HubModel
from pairsmith.steps.training.reading import (
    AnsweredQuestions,
    SeedData,
    read_question_seeds,
    read_validation_questions,
    without_repeats,
)
from pairsmith.steps.training.settings import TrainReaderSettings
from pairsmith.steps.training.step import Trained, TrainingContext, TrainingStep

_USE = """```python
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

model = AutoModelForQuestionAnswering.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
question, text = "Who wrote Hamlet?", "Hamlet is a play by Shakespeare."
inputs = tokenizer(question, text, return_tensors="pt")
outside = torch.tensor([part != 1 for part in inputs.sequence_ids(0)])  # answers stand in the text
with torch.inference_mode():
    output = model(**inputs)
start = int(output.start_logits[0].masked_fill(outside, -torch.inf).argmax())
end = start + int(output.end_logits[0].masked_fill(outside, -torch.inf)[start:].argmax())
print(text[inputs.token_to_chars(start).start : inputs.token_to_chars(end).end])
```"""


def _read(settings: TrainReaderSettings, _: int | None) -> SeedData[Question]:
    if heads_kind(resolve_model(settings.base)):
        raise ModelError(
            f"model {settings.base}: is already a teacher or a student; give the model "
            "that it was trained from as --base"
        )
    seeds = read_question_seeds(settings.seeds)
    validation, left_out = read_validation_questions(settings.validation)
    added, repeats, unanswered = added_questions(settings, [*seeds.examples, *validation])
    return SeedData(seeds, validation, added, left_out, repeats, unanswered)


def _train(data: SeedData[Question], settings: TrainReaderSettings, context: TrainingContext) -> Trained:
    data.report(context["progress"], settings.extra, "questions")
    questions = [*data.seeds.examples, *data.added]
    trained = train_reader_on(
        list(map(QuestionWithSpans.of, questions)), data.validation, settings, **context
    )
    facts = {
        **data.seeds.facts(),
        **data.added_facts("questions"),
        "questions left out: no window holds the answer": len(questions) - trained.questions,
        "validation examples": len(data.validation),
    }
    title = "A reader that marks the answer to a question in a text"
    hub = HubModel("transformers", "question-answering")
    return Trained.transformer(title, _USE, hub, trained, facts)


train_reader = TrainingStep("train-reader", ("seeds", "validation", "added"), _read, _train, MINING)
"""Trains a reader on seeds and added questions. ``AutoModelForQuestionAnswering`` opens the folder."""


def added_questions(
    settings: TrainReaderSettings, excluded: Iterable[Question]
) -> tuple[list[Question], int, int]:
    """The first ``extra`` questions of the sources in ``added``, in order; all if ``extra`` is None.

    A question that is also in ``excluded``, on the same passage, is left out: the answers of seeds are surer,
    and validation questions must not be trained on. The other results are the number of those left out, and
    the number of questions without an answer, which are left out, too.
    """
    answered = AnsweredQuestions()
    questions = chain.from_iterable(map(answered.read, settings.added))
    added, repeats = without_repeats(
        questions, lambda one: (one.question, one.context), excluded, settings.extra
    )
    return added, repeats, answered.unanswered
