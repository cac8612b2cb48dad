"""Question answering: exact match and F1 of a reader's answers (M11, Q7)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pairsmith.core.model_names import model_revision, resolve_model
from pairsmith.core.progress import Progress
from pairsmith.data.squad import Question, read_questions
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.metrics.squad import exact_match, f1
from pairsmith.runs import Run, resolve_dtype
from pairsmith.runs.storage import JSON
from pairsmith.steps.evaluate.results import (
    Evaluated,
    evaluate_once,
    hash_rows,
    with_evaluation_splits,
    with_interval,
)
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from pairsmith.models.reader import Prediction


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with a reader's answer and its scores; ``f1`` is within [0, 1]."""

    id: str
    question: str
    prediction: str
    answers: Sequence[str]
    exact: bool
    f1: float

    @classmethod
    def of(cls, question: Question, prediction: str) -> "Answered":
        """Score ``prediction`` against all answers of ``question``."""
        worth = exact_match(prediction, question.golds), f1(prediction, question.golds)
        return cls(question.id, question.question, prediction, question.golds, *worth)

    def to_json(self) -> dict[str, JSON]:
        """A line of ``predictions.jsonl``."""
        return {
            "id": self.id,
            "question": self.question,
            "prediction": self.prediction,
            "answers": list(self.answers),
            "exact": self.exact,
            "f1": round(self.f1, 6),
        }


def evaluate_qa(settings: EvaluateQaSettings, run: Run) -> dict[str, Any]:
    """Evaluate a reader, write its results and answers into the run's folder, and show a table.

    ``predictions.jsonl`` has a line for each question (see ``Answered``), and ``results.json``, which is
    returned, ``exact`` and ``f1``, ×100, each with its 95 % interval (``exact_ci``), and the ``count`` of
    questions.
    """
    settings = with_evaluation_splits(resolve_dtype(settings, run), run.progress.say)
    questions = list(read_questions(settings.data))

    def compute() -> Evaluated:
        answered = answer_all(settings, questions, run.progress)
        figures = qa_figures(answered, bootstrap=settings.bootstrap, seed=settings.seed)
        return figures, [answer.to_json() for answer in answered]

    rows: JSON = [
        [question.id, question.context, question.question, list(question.golds)] for question in questions
    ]
    return evaluate_once(
        run,
        "evaluate qa",
        settings,
        inputs={"data": hash_rows(rows)},
        models={"model": model_revision(settings.model)},
        compute=compute,
        table=qa_table,
    )


def answer_all(
    settings: EvaluateQaSettings, questions: Sequence[Question], progress: Progress
) -> list[Answered]:
    """Answer all questions, in order, with the model of ``settings``, a reader or a student (Q7)."""
    answers = answerer(settings)
    with progress.task("answer", len(questions), "questions") as bar:
        predictions = answers(
            [question.question for question in questions],
            [question.context for question in questions],
            max_answer_tokens=settings.max_answer_tokens,
            advance=bar.advance,
        )
    return [
        Answered.of(question, prediction.text)
        for question, prediction in zip(questions, predictions, strict=True)
    ]


def answerer(settings: EvaluateQaSettings) -> "Callable[..., list[Prediction]]":
    """A function that answers questions as ``answer`` does, with a reader or a student."""
    from pairsmith.models.reader import answer, load_reader
    from pairsmith.models.span_answers import answer_with_span_encoder
    from pairsmith.models.span_encoder import load_span_encoder
    from pairsmith.models.span_heads import heads_kind

    how = load_options(settings)
    if heads_kind(resolve_model(settings.model)) == "questions":
        return partial(answer_with_span_encoder, load_span_encoder(settings.model, **how))
    return partial(answer, load_reader(settings.model, **how), batch_size=settings.batch_size)


def qa_figures(answered: Sequence[Answered], *, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Means over one or more questions, ×100, with 95 % intervals: the figures of ``results.json``.

    Each of the ``bootstrap`` resamples draws as many questions as there are, with replacement, for both
    means.
    """
    figures = {
        "exact": [100.0 * answer.exact for answer in answered],
        "f1": [100.0 * answer.f1 for answer in answered],
    }
    means = {name: round(math.fsum(worth) / len(worth), 4) for name, worth in figures.items()}
    limits = mean_intervals(figures, bootstrap=bootstrap, seed=seed)
    return {**means, **limits, "count": len(answered)}


def qa_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a plain table of one line."""
    exact, overlap = (with_interval(results, name) for name in ("exact", "f1"))
    head = f"{'questions':>9}  {'exact match ×100 (95 %)':<25}F1 ×100 (95 %)"
    return f"{head}\n{results['count']:>9,}  {exact:<25}{overlap}"
