"""Question answering: exact match and F1 of the answers of a reader or a student (M11, Q7)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pairsmith.core.errors import verb_for
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.squad import Question, read_questions
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.metrics.squad import exact_match, f1, squad_warning
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.storage import JSON, hash_json
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.figures import with_interval
from pairsmith.steps.evaluate.paired import Line, Paired, Resampled, resampled_means
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.planning import count_in_run
from pairsmith.steps.shared import load_options


def _read(settings: EvaluateQaSettings) -> list[Question]:
    return list(read_questions(settings.data, unanswered=True))


def _with_answers(questions: Sequence[Question]) -> list[Question]:
    """The questions that can be scored."""
    return [question for question in questions if question.answers]


def _hash(_: EvaluateQaSettings, read: Callable[[], Sequence[Question]]) -> dict[str, str]:
    rows: JSON = [
        [question.id, question.context, question.question, list(question.golds)]
        for question in _with_answers(read())
    ]
    return {"data": hash_json(rows)}


def _compute(settings: EvaluateQaSettings, questions: Sequence[Question], progress: Progress) -> Evaluated:
    scored = _with_answers(questions)
    if left_out := len(questions) - len(scored):
        progress.say(
            f"{left_out:,} of {len(questions):,} questions {verb_for(left_out, 'have')} no answer and "
            f"{verb_for(left_out, 'are')} left out: the figures are those of SQuAD 1.1, over the questions "
            "with answers"
        )
    if warning := squad_warning([question.golds for question in scored]):
        progress.say(warning)
    predictions = answerer(settings, progress)(scored)
    exact = [exact_match(text, one.golds) for one, text in zip(scored, predictions, strict=True)]
    overlap = [f1(text, one.golds) for one, text in zip(scored, predictions, strict=True)]
    figures = qa_figures(exact, overlap, bootstrap=settings.bootstrap, seed=settings.seed)
    return figures, [
        {
            "id": question.id,
            "question": question.question,
            "prediction": prediction,
            "answers": list(question.golds),
            "exact": is_exact,
            "f1": round(word_f1, 6),
        }
        for question, prediction, is_exact, word_f1 in zip(scored, predictions, exact, overlap, strict=True)
    ]


def answerer(
    settings: EvaluateQaSettings, progress: Progress, *, untrained: bool = False
) -> Callable[[Sequence[Question]], list[str]]:
    """Load the model, a reader or a student (Q7), and return a function that answers questions, in order.

    An ``untrained`` model gets the head of a reader, for plans; a student would be faster.
    """
    from pairsmith.models.question_answering import load_question_answerer

    answer_questions = load_question_answerer(
        settings.model, batch_size=settings.batch_size, fresh_head=untrained, **load_options(settings)
    )

    def answer_all(questions: Sequence[Question]) -> list[str]:
        with progress.task("answer", len(questions), "questions") as bar:
            predictions = answer_questions(
                [question.question for question in questions],
                [question.context for question in questions],
                max_answer_tokens=settings.max_answer_tokens,
                advance=bar.advance,
            )
        return [prediction.text for prediction in predictions]

    return answer_all


def qa_figures(
    exact: Sequence[bool], f1: Sequence[float], *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """The figures of ``results.json``: means over n >= 1 questions, ×100, with 95 % intervals.

    Each of the ``bootstrap`` resamples draws as many questions as there are, with replacement; both means are
    computed over the same resample.

    Args:
        exact: whether each prediction is one of the gold answers, after normalisation.
        f1: the largest word F1 of each prediction with a gold answer, in [0, 1].
        bootstrap: number of resamples behind each interval, 0 for none.
        seed: random seed of the resamples.
    """
    figures = {"exact": [100.0 * value for value in exact], "f1": [100.0 * value for value in f1]}
    means = {name: round(math.fsum(values) / len(values), 4) for name, values in figures.items()}
    limits = mean_intervals(figures, bootstrap=bootstrap, seed=seed)
    return {**means, **limits, "count": len(exact)}


def qa_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table of one line."""
    exact, overlap = (with_interval(results, name) for name in ("exact", "f1"))
    head = f"{'questions':>9}  {'exact match ×100 (95 %)':<25}F1 ×100 (95 %)"
    return f"{head}\n{results['count']:>9,}  {exact:<25}{overlap}"


def _plan(settings: EvaluateQaSettings, before: Before) -> Estimate:
    """Answer a sample of the questions."""
    questions = _with_answers(_read(settings))
    return extrapolated(
        partial(answerer, settings, Silent(), untrained=settings.model in before),
        questions,
        count_in_run(len(questions), [settings.data], before),
        lambda question: len(question.question) + len(question.context) // 8,
        most=128,
    )


def _rows(_: EvaluateQaSettings, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    for question in _with_answers(questions):
        yield {"id": question.id, "question": question.question, "answers": list(question.golds)}


def _resampled(settings: EvaluateQaSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    figures = {name: [100.0 * line[name] for line in lines] for name in ("exact", "f1")}
    return resampled_means(figures, bootstrap=settings.bootstrap, seed=settings.seed)


evaluate_qa = Evaluation(
    "evaluate qa",
    _read,
    _compute,
    qa_table,
    _plan,
    Paired("questions", _rows, _resampled),
    _hash,
)
"""Evaluates a reader or a student on questions.

``predictions.jsonl`` has a line for each question: the predicted and the gold answers, whether the prediction
is one of these after normalisation (``exact``), and its largest word F1 with one of them (``f1``, in [0, 1]).
``results.json`` has the exact match (``exact``) and ``f1``, ×100, each with its 95 % interval (``exact_ci``,
``f1_ci``), the number of questions (``count``) and, with ``against``, the differences of both figures from
the earlier ones.
"""
