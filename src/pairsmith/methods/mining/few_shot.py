"""The first steps that trainings share: pick splits, check sources, claim the folder, read seeds."""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from pairsmith.core.errors import InputError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.data.examples import FEW, Example, KindName, each_example
from pairsmith.data.splits import Say, to_measure_on, to_train_on
from pairsmith.data.squad import Question, read_questions
from pairsmith.runs import Run, hash_source, refuse_source, sources_of
from pairsmith.training.folder import ModelFolder
from pairsmith.training.logs import check_tensorboard
from pairsmith.training.settings import FitSettings

S = TypeVar("S", bound=FitSettings)
E = TypeVar("E")


def at_splits(settings: S, say: Say | None = None, *, later: Container[str] = ()) -> S:
    """The settings with a split named for each folder that has several: ``train``, or ``validation``.

    Args:
        settings: of a training; its corpora stay unchanged.
        say: called with a message about the splits that are not used, if any.
        later: sources that do not exist yet.

    Raises:
        InputError: a folder lacks the split that is needed, and no other is named.
    """

    def train(source: str) -> str:
        return source if source in later else to_train_on(source, "trained on", say)

    changes: dict[str, object] = {}
    for name in ("seeds", "added", "data"):
        value = getattr(settings, name, None)
        if isinstance(value, str):
            changes[name] = train(value)
        elif value:
            changes[name] = [train(each) for each in value]
    unseen = settings.validation
    if unseen and unseen not in later:
        changes["validation"] = to_measure_on(unseen, "measured on", say, split="validation")
    return settings.model_copy(update=changes)


def refuse_sources(run: Run, settings: FitSettings, sources: Mapping[str, str | None]) -> None:
    """Before anything is read, refuse an output folder that is a source, and logs without TensorBoard.

    Raises:
        MissingExtra: logs are wanted, and TensorBoard is not installed.
        FolderError: the run's folder is one of the sources, or the base model.
    """
    if settings.tensorboard:
        check_tensorboard()
    for name, source in {**sources, "base": settings.base}.items():
        if source:
            refuse_source(run, **{name.partition(" ")[0]: source})


def begin(
    run: Run,
    step: str,
    settings: FitSettings,
    *,
    sources: Mapping[str, str | None],
    elsewhere: Set[str] = frozenset(),
    inputs: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
    made_with: Sequence[str] = (),
) -> ModelFolder | None:
    """Claim the run's folder; None, with a message, if it holds the finished result of this training.

    Args:
        run: where to write.
        step: name of the step.
        settings: of the training.
        sources: what is read, by setting, numbered where a setting lists several; None is left out.
        elsewhere: other settings that do not identify the training: hashed otherwise, or without effect.
        inputs: hashes of other data that are read, by name.
        models: revisions of other models that are used, by name.
        made_with: other data that the card names.

    Raises:
        FolderError: the folder holds something else.
        InputError: a source does not exist.
        ModelError: a model does not exist.
        StorageError: it cannot be written.
    """
    read = {name: source for name, source in sources.items() if source}
    named = {name.partition(" ")[0] for name in sources}
    folder = ModelFolder.start(
        run,
        step=step,
        settings=settings.model_dump(
            mode="json",
            exclude={*named, *elsewhere, "validation", "device", "checkpoint_steps", "tensorboard"},
        ),
        inputs={name: hash_source(source) for name, source in read.items()} | dict(inputs or {}),
        models={"base": model_revision(settings.base), **(models or {})},
        sources=sources_of(models=[settings.base], data=[*read.values(), *made_with]),
    )
    if not folder.finished:
        return folder
    run.progress.say(f"{run.out}: trained before with these settings; nothing to do")
    return None


def numbered(name: str, sources: list[str]) -> dict[str, str]:
    """The sources that a setting lists, each by the setting's name and a number."""
    return {f"{name} {number}": source for number, source in enumerate(sources, start=1)}


@dataclass(frozen=True, slots=True)
class Seeds(Generic[E]):
    """Distinct seeds in their order; ``repeated`` is the number of duplicates that were left out."""

    each: list[E]
    repeated: int

    def tell(self, progress: Progress) -> None:
        """Say how many duplicates were left out, and warn if there are too few seeds to learn much."""
        count = len(self.each)
        if self.repeated:
            whole = count + self.repeated
            progress.say(f"{self.repeated:,} of {whole:,} seeds were there before; each counts once")
        if count < FEW:
            progress.say(f"only {count} seeds: some hundred are usual, and what {count} teach is little")

    def facts(self) -> dict[str, object]:
        """Facts about the seeds for the model card."""
        repeated = {"seeds left out, as they were there before": self.repeated} if self.repeated else {}
        return {"seeds": len(self.each), **repeated}


def read_seeds(source: str, kind: KindName) -> Seeds[Example]:
    """The seeds in a file, dataset folder or Hub data set.

    Raises:
        InputError: as for ``read_examples``.
    """
    return _once(each_example(source, kind), lambda example: example, source)


def read_asked_seeds(source: str) -> Seeds[Question]:
    """The seeds of a reader; duplicates have the same question, passage and answers.

    Raises:
        InputError: as for ``read_questions``.
    """
    return _once(read_questions(source), lambda each: (each.question, each.context, each.answers), source)


def _once(found: Iterable[E], key: Callable[[E], Hashable], source: str) -> Seeds[E]:
    every, distinct = list(found), dict[Hashable, E]()
    for each in every:
        distinct.setdefault(key(each), each)
    if not every:
        raise InputError(f"{source} holds no examples")
    return Seeds(list(distinct.values()), len(every) - len(distinct))
