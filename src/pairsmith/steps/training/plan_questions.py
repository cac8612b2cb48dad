"""The cost of the trainings on questions, extrapolated from some steps on a sample."""

from collections.abc import Iterator, Sequence
from itertools import islice

from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress
from pairsmith.data.questions import AskedQuestion, asked_in, read_asked
from pairsmith.data.squad import Answer, Question, read_questions
from pairsmith.methods.mining.few_shot import at_splits
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.methods.quip.generator_training import asker_examples, check_examples, train_asker_on
from pairsmith.methods.quip.student import infuse_on, passages
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.training.plan_few_shot import planned, samples_of, size_of_weights
from pairsmith.training.question_settings import (
    InfuseSettings,
    TrainAskerSettings,
    TrainTeacherSettings,
)
from pairsmith.training.settings import FitSettings

SOME = 2_000
"""Questions in the sample of a source."""


def some_asked(sources: Sequence[str], before: Before) -> tuple[list[AskedQuestion], int]:
    """A sample of the questions of all sources, existing or from earlier steps, and the number of all.

    Raises:
        InputError: a source cannot be read.
    """
    found: list[AskedQuestion] = []
    count = 0
    for source in sources:
        earlier = before.get(source)
        if earlier is not None and earlier.sample is not None:
            rows = ((source, row) for row in earlier.sample.to_pylist())
            found += islice(asked_in(rows), SOME)
            count += sum(earlier.rows.values())
        else:
            every: Iterator[AskedQuestion] = read_asked(source)
            some = list(islice(every, SOME))
            found += some
            count += len(some) + sum(1 for _ in every)
    return found, count


def plan_train_asker(settings: TrainAskerSettings, before: Before) -> Estimate:
    """Train a question generator for some steps.

    Raises:
        UserError: as for ``train_asker``.
    """
    device = pick_device(settings.device)
    found, count = some_asked(at_splits(settings, later=before).data, before)
    examples = list(asker_examples(_with_answers(found), settings))
    unseen = list(asker_examples(_unseen(settings, before), settings))
    check_examples(examples, unseen, settings)

    def train(some: TrainAskerSettings, looks: int, progress: Progress) -> int:
        return size_of_weights(train_asker_on(examples, unseen[:looks], some, device, progress=progress)[0])

    return planned(settings, train, count, len(unseen))


def plan_train_teacher(settings: TrainTeacherSettings, before: Before) -> Estimate:
    """Train a teacher for some steps.

    Raises:
        UserError: as for ``train_teacher``.
    """
    device = pick_device(settings.device)
    found, count = some_asked(at_splits(settings, later=before).data, before)
    questions = _with_answers(found)
    unseen = _unseen(settings, before)

    def train(some: TrainTeacherSettings, looks: int, progress: Progress) -> int:
        trained = train_reader_on(
            questions, unseen[:looks], some, device, perceptrons=True, progress=progress
        )
        return size_of_weights(trained.reader.model)

    return planned(settings, train, count, len(unseen))


def plan_infuse(settings: InfuseSettings, before: Before) -> Estimate:
    """Train a student for some steps.

    Raises:
        UserError: as for ``infuse``.
    """
    device = pick_device(settings.device)
    found, count = some_asked(at_splits(settings, later=before).data, before)
    lessons = passages(found, settings)
    unseen = _unseen(settings, before)

    def train(some: InfuseSettings, looks: int, progress: Progress) -> int:
        student = infuse_on(lessons, unseen[:looks], some, device, progress=progress).student
        return size_of_weights(student.tokens.model) + size_of_weights(student.heads)

    return planned(settings, train, round(count * len(lessons) / len(found)), len(unseen))


def _unseen(settings: FitSettings, before: Before) -> list[Question]:
    """The validation questions, or a sample of those that an earlier step will make."""
    with samples_of(settings, before) as there:
        return list(read_questions(there.validation)) if there.validation else []


def _with_answers(asked: Sequence[AskedQuestion]) -> list[Question]:
    """The questions whose answer occurs in the passage."""
    return [
        Question(each.id, "", each.context, each.question, (Answer(each.context[slice(*place)], place[0]),))
        for each in asked
        if (place := each.answer)
    ]
