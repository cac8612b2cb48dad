"""Reads the data of trainings: the splits to read, seeds, validation examples, and questions."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from pairsmith.core.errors import InputError, counted, verb_for
from pairsmith.core.progress import Progress, Say
from pairsmith.data.examples import (
    FEW,
    Example,
    ExampleKind,
    all_examples,
    all_questions,
    read_examples,
)
from pairsmith.data.splits import to_measure_on, to_train_on
from pairsmith.data.squad import Question, read_questions
from pairsmith.steps.planning import read_first
from pairsmith.steps.shared import with_sources
from pairsmith.steps.training.settings import TrainEncoderSettings, TrainingSettings

S = TypeVar("S", bound=TrainingSettings)
E = TypeVar("E")
C = TypeVar("C", bound=Sized)


def with_training_splits(settings: S, say: Say | None = None) -> S:
    """The settings with one split of each folder: ``validation`` of validation data, ``train`` of the others.

    A split that the settings name stays, and corpora stay unchanged. ``say`` is called with a message about
    splits that are not used.
    """
    if isinstance(settings, TrainEncoderSettings):  # reads both splits of its data
        return settings

    def at_split(name: str, source: str) -> str:
        if name == "validation":
            return to_measure_on(source, "measured on", say, split="validation")
        return to_train_on(source, "trained on", say)

    return with_sources(settings, ("seeds", "added", "data", "validation"), at_split)


def duplicates_left_out(count: int, total: int, what: str) -> str:
    """The message that ``count`` of ``total`` examples, named ``what``, are duplicates."""
    verb = "is a duplicate and is" if count == 1 else "are duplicates and are"
    return f"{count:,} of {total:,} {what} {verb} left out"


def _left_out(count: int, total: int, what: str, predicate: str) -> str:
    """A message such as "3 of 90 questions have no answer and are left out"; empty if ``count`` is 0.

    ``predicate`` says why; it begins with a verb in the plural, such as "have no answer".
    """
    verb, _, why = predicate.partition(" ")
    left_out = f"{verb_for(count, verb)} {why} and {verb_for(count, 'are')} left out"
    return f"{count:,} of {total:,} {what} {left_out}" if count else ""


@dataclass(frozen=True, slots=True)
class Seeds(Generic[E]):
    """Distinct seeds in their order, and the numbers of rows that were left out."""

    examples: list[E]
    repeated: int  # duplicates
    unmatched: int = 0  # pairs whose score is too low for a positive
    unanswered: int = 0  # questions without an answer

    def report(self, progress: Progress) -> None:
        """Report how many seeds were left out and why, and warn if there are fewer than ``FEW``."""
        count = len(self.examples)
        rows = count + self.repeated
        positives = "it is not a positive" if self.unmatched == 1 else "they are not positives"
        low = f"have a score below --least-score, so {positives}"
        for message in (
            _left_out(self.unmatched, rows + self.unmatched, "pairs", low),
            _left_out(self.unanswered, rows + self.unanswered, "seeds", "have no answer"),
        ):
            if message:
                progress.say(message)
        if self.repeated:
            progress.say(duplicates_left_out(self.repeated, rows, "seeds"))
        if count < FEW:
            progress.say(
                f"only {counted(count, 'seeds')}; about a hundred are usual, and a model learns little from "
                f"{count}"
            )

    def facts(self) -> dict[str, object]:
        """The numbers of seeds that were used and left out, for the model card."""
        left_out = {
            "duplicate seeds left out": self.repeated,
            "pairs below the least score left out": self.unmatched,
            "seeds without an answer left out": self.unanswered,
        }
        return {"seeds": len(self.examples), **{name: count for name, count in left_out.items() if count}}


@dataclass(frozen=True, slots=True)
class SeedData(Generic[E]):
    """The data of a training on seeds."""

    seeds: Seeds[E]
    validation: Sequence[E]
    added: Sequence[E] = ()  # training examples besides the seeds, such as mined ones
    left_out: str = ""  # how many validation examples were left out, and why, to be reported
    repeats: int = 0  # examples that were not added, as they repeat one that is already used
    unanswered: int = 0  # questions that were not added, as they have no answer
    blank: int = 0  # documents that were not added, as they or their summaries are blank or missing

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return len(self.seeds.examples) + len(self.added)

    # As in ``TrainingData``, for plans: the data are few, so that a plan reads all of them.
    rows = examples
    unread = 0

    def report(self, progress: Progress, extra: int | None = None, what: str = "") -> None:
        """Report problems with the seeds, and which examples, named ``what``, were not added.

        ``extra`` is the number of examples to add, None for all.
        """
        self.seeds.report(progress)
        if self.left_out:
            progress.say(self.left_out)
        read = len(self.added) + self.repeats
        for count, total, why in (
            (self.unanswered, read + self.unanswered, "have no answer"),
            (self.blank, read + self.blank, "are blank or have no summary"),
            (self.repeats, read, "repeat other examples"),
        ):
            if count:
                progress.say(_left_out(count, total, f"added {what}", why))
        if extra and len(self.added) < extra:
            progress.say(
                f"--added has {len(self.added):,} new {what}, fewer than --extra {extra:,}; all are used"
            )

    def added_facts(self, what: str) -> dict[str, object]:
        """The numbers of examples, named ``what``, that were added and left out, for the model card."""
        left_out = {
            f"added {what} left out as repeats": self.repeats,
            f"added {what} without an answer left out": self.unanswered,
            f"added {what} without a text or summary left out": self.blank,
        }
        return {
            f"added {what}": len(self.added),
            **{name: count for name, count in left_out.items() if count},
        }


@dataclass(frozen=True, slots=True)
class TrainingData(Generic[C]):
    """The data of a training without seeds.

    Attributes:
        training: the training examples.
        rows: the number of rows from which the training examples were made.
        unread: the number of rows that were only counted, because a plan reads a limited number.
        validation: the validation examples; may be empty.
        unanswered: the number of questions without an answer; ``infuse`` alone trains on them.
        left_out: how many validation examples were left out, and why, to be reported.
    """

    training: C
    rows: int
    unread: int
    validation: Sequence[Any]
    unanswered: int = 0
    left_out: str = ""

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return len(self.training)

    def report(self, progress: Progress) -> None:
        """Report how many questions without an answer were left out."""
        if self.unanswered:
            read = self.rows + self.unanswered
            progress.say(_left_out(self.unanswered, read, "questions", "have no answer"))
        if self.left_out:
            progress.say(self.left_out)


@dataclass(slots=True)
class AnsweredQuestions:
    """Reads the questions that have an answer, and counts the others."""

    unanswered: int = 0

    def read(self, source: str) -> Iterator[Question]:
        """The questions of a source that have an answer, in order."""
        for question in read_questions(source, unanswered=True):
            if question.answers:
                yield question
            else:
                self.unanswered += 1


def read_validation_questions(source: str | None) -> tuple[list[Question], str]:
    """The validation questions that have an answer, and a message on the others; empty without a source."""
    if not source:
        return [], ""
    questions = all_questions(source, unanswered=True)
    answered = [question for question in questions if question.answers]
    unanswered = len(questions) - len(answered)
    return answered, _left_out(unanswered, len(questions), "validation questions", "have no answer")


def read_seeds(source: str, kind: ExampleKind, least: float = 0.0) -> Seeds[Example]:
    """The distinct seeds in a source; for kind ``pairs``, those with a score of ``least`` or more."""
    examples = all_examples(source, kind)
    positives = positives_of(examples, kind, least, source)
    seeds = _distinct(positives, lambda example: example, source)
    if kind == "reading":
        return replace(seeds, unanswered=_unanswered(source))
    return replace(seeds, unmatched=len(examples) - len(positives))


def positives_of(examples: Sequence[Example], kind: ExampleKind, least: float, source: str) -> list[Example]:
    """The examples that are positives; for kind ``pairs``, those with a score of ``least`` or more.

    ``source`` names the examples in error messages.
    """
    if kind != "pairs":
        return list(examples)
    positives = [replace(example, score=1.0) for example in examples if example.score >= least]
    if examples and not positives:
        raise InputError(
            f"{source}: none of the {len(examples):,} pairs has a score of {least:g} or more, so there "
            "are no positives; give pairs that belong together, or a lower --least-score"
        )
    return positives


def read_validation(source: str | None, kind: ExampleKind, least: float = 0.0) -> tuple[list[Example], str]:
    """The validation examples, and a message on those that were left out; empty without a source.

    Pairs with a score below ``least`` are left out, as among the seeds; so are unanswered questions.
    """
    if not source:
        return [], ""
    examples = read_examples(source, kind)
    kept = positives_of(examples, kind, least, source)
    if kind == "reading":
        questions = list(read_questions(source, unanswered=True))
        unanswered = sum(not question.answers for question in questions)
        return kept, _left_out(unanswered, len(questions), "validation questions", "have no answer")
    low = len(examples) - len(kept)
    return kept, _left_out(low, len(examples), "validation pairs", "have a score below --least-score")


def read_question_seeds(source: str) -> Seeds[Question]:
    """The distinct seeds of a reader; duplicates have the same question, passage and answers."""
    seeds = _distinct(
        all_questions(source),
        lambda question: (question.question, question.context, question.answers),
        source,
    )
    return replace(seeds, unanswered=_unanswered(source))


def _unanswered(source: str) -> int:
    """The number of questions without an answer."""
    return sum(not question.answers for question in read_questions(source, unanswered=True))


def _distinct(examples: Iterable[E], key: Callable[[E], Hashable], source: str) -> Seeds[E]:
    """The first of the examples with each ``key``; an ``InputError`` if there are no examples."""
    count, distinct = 0, dict[Hashable, E]()
    for example in examples:
        count += 1
        distinct.setdefault(key(example), example)
    if not count:
        raise InputError(f"{source} holds no examples")
    return Seeds(list(distinct.values()), count - len(distinct))


def items_of(
    sources: Iterable[str], read: Callable[[str], Iterable[E]], most: int | None
) -> tuple[Iterable[E], int]:
    """The first ``most`` items of each source, and the number of the other items.

    With ``most`` None, all items are streamed, as there may be more than fit into memory.
    """
    if most is None:
        return chain.from_iterable(map(read, sources)), 0
    items, count = read_first(sources, read, {}, most)
    return items, count - len(items)


def without_repeats(
    examples: Iterable[E],
    key: Callable[[E], Hashable],
    used: Iterable[E],
    most: int | None,
    *,
    once: bool = False,
) -> tuple[list[E], int]:
    """The first ``most`` examples, all with None, that repeat none of ``used``, and how many were left out.

    Examples with the same ``key`` repeat each other. With ``once``, those that repeat an earlier one of the
    examples are left out, too.
    """
    keys, repeats = {key(example) for example in used}, 0

    def new() -> Iterator[E]:
        nonlocal repeats
        for example in examples:
            if key(example) in keys:
                repeats += 1
                continue
            if once:
                keys.add(key(example))
            yield example

    return list(islice(new(), most)), repeats
