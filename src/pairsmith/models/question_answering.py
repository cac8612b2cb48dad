"""Question answering by a reader, such as a teacher, or by a student of ``infuse`` (Q7)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, Unpack

from pairsmith.core.model_names import resolve_model
from pairsmith.models.heads import Loading, require_reader
from pairsmith.models.reader import Prediction, answer, load_reader
from pairsmith.models.span_answers import answer_with_span_encoder
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_heads import heads_kind


class QuestionAnswerer(Protocol):
    """A function that answers questions with a model, as ``answer`` does with a reader."""

    def __call__(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        *,
        max_answer_tokens: int,
        advance: Callable[[int], None],
    ) -> list[Prediction]:
        """The answer to each question, in order; for the arguments see ``answer``."""
        ...


def load_question_answerer(
    model: str, *, batch_size: int, fresh_head: bool = False, **how: Unpack[Loading]
) -> QuestionAnswerer:
    """Load a reader, or a student that ``infuse`` wrote, and return the function that answers questions.

    Args:
        model: a folder that ``infuse`` wrote, or a model as for ``load_reader``.
        batch_size: the number of windows that a reader reads at once; it has no effect on a student.
        fresh_head: whether the model is loaded as a reader, with a random head if it has none.
        how: as for ``load_reader`` and ``load_span_encoder``.
    """
    if not fresh_head:
        require_question_answerer(model)
        if heads_kind(resolve_model(model)) == "questions":
            return partial(answer_with_span_encoder, load_span_encoder(model, **how))
    return partial(answer, load_reader(model, fresh_head=fresh_head, **how), batch_size=batch_size)


def require_question_answerer(model: str) -> None:
    """Refuse a model that can answer no questions by its files, before its weights are read."""
    if heads_kind(resolve_model(model)) != "questions":
        require_reader(model, "train-teacher, train-reader or infuse")
