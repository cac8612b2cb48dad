"""Validation figures that several trainings share."""

from collections.abc import Callable, Sequence

from pairsmith.core.errors import ModelError, counted
from pairsmith.data.squad import Question
from pairsmith.metrics.squad import mean_f1
from pairsmith.models.reader import Prediction


def cannot_choose(count: int, needed: str) -> str:
    """The message that ``count`` validation examples cannot choose a step; ``needed`` is the reason."""
    return (
        f"{counted(count, 'validation examples')} cannot choose the best step: {needed}; the last step is "
        "kept"
    )


def validation_f1(
    answer_all: Callable[[list[str], list[str]], Sequence[Prediction]], questions: Sequence[Question]
) -> float | None:
    """F1 of a model's answers to questions on texts, ×100; None if the model's scores are not finite."""
    try:
        predictions = answer_all(
            [question.question for question in questions], [question.context for question in questions]
        )
    except ModelError:  # the training diverged, which is reported at its end
        return None
    return mean_f1(
        [prediction.text for prediction in predictions], [question.golds for question in questions]
    )
