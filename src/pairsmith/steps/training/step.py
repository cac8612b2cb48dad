"""What every training step does: read the data, claim the folder, train, write the card, save the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar

from torch import nn

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import Place
from pairsmith.core.progress import Progress
from pairsmith.methods.dino.classifier import ClassifierTraining
from pairsmith.runs import Run, hash_source, resolve_dtype, sources_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import say_loading
from pairsmith.steps.shared import refuse_sources
from pairsmith.steps.training.card import HubModel, training_card
from pairsmith.steps.training.plan import plan_training
from pairsmith.steps.training.reading import with_training_splits
from pairsmith.steps.training.settings import TrainClassifierSettings, TrainingSettings
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.fit import TrainedModel
from pairsmith.training.folder import ModelFolder, save_transformer
from pairsmith.training.logs import check_tensorboard
from pairsmith.training.options import TrainingOptions
from pairsmith.training.processes import Processes

Save = Callable[[Path], None]
"""A function that writes a model into an empty folder."""


class TrainingContext(TypedDict):
    """Keyword arguments of the methods' training functions, besides data and settings."""

    progress: Progress
    checkpoints: Checkpoints | None


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model that has not been saved.

    Attributes:
        title: the card's title, which says what the model is.
        use: how to use the model, in Markdown.
        hub: what the Hub is told about the model.
        parts: the networks that are saved.
        save: writes the model and the given card into an empty folder.
        facts: facts about the training data for the card, by name.
        history: the course of the training.
    """

    title: str
    use: str
    hub: HubModel
    parts: tuple[nn.Module, ...]
    save: Callable[[str, Path], None]
    facts: Mapping[str, object]
    history: TrainingHistory

    @classmethod
    def transformer(
        cls, title: str, use: str, hub: HubModel, trained: TrainedModel[Any], facts: Mapping[str, object]
    ) -> Self:
        """A model of transformers, saved with its tokenizer; the learning rate becomes the last fact."""
        model, tokenizer = trained.model.model, trained.model.tokenizer
        facts = {**facts, "learning rate": trained.learning_rate}
        save = partial(save_transformer, model, tokenizer)
        return cls(title, use, hub, (model,), save, facts, trained.history)


@dataclass(frozen=True, slots=True)
class TrainingIdentity:
    """What identifies a training, besides its settings, its base and the ``sources`` of the step.

    Attributes:
        inputs: the hashes of other data that are read, by name.
        models: the revisions of other models that are used, by name.
        made_with: other data that the card attributes.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    made_with: tuple[str, ...] = ()


S = TypeVar("S", bound=TrainingSettings)
D = TypeVar("D")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep(Generic[S, D]):
    """A step that trains a model; a call with settings and a run returns the run's folder.

    Attributes:
        name: the name of the step.
        sources: the names of the settings that name data to read.
        read: reads the data: ``read(settings, most)``. If ``most`` is given, for plans, it may read only this
            number of rows of each source.
        train: trains a model on these data.
        paper: the paper whose method it is, for the card.
        identity: returns what decides the weights besides settings, base and sources.
        alone: the reason why several processes cannot share the training; empty if they can.
        planner: estimates the cost of the step from the step itself, its settings, and the estimates of
            earlier steps.
    """

    name: str
    sources: tuple[str, ...]
    read: Callable[[S, int | None], D]
    train: Callable[[D, S, TrainingContext], Trained]
    paper: str
    identity: Callable[[S], TrainingIdentity] = lambda _: TrainingIdentity()
    alone: str = ""
    planner: Callable[["TrainingStep[Any, Any]", Any, Before], Estimate] = plan_training

    def __call__(self, settings: S, run: Run) -> Place:
        """Read the data, train a model, and save it in the run's folder."""
        processes = Processes.current()
        if processes.size > 1 and self.alone:
            raise SettingsError(f"{self.name} runs in one process: {self.alone}")
        run = processes.quiet_unless_writing(run)
        settings = with_training_splits(resolve_dtype(settings, run), run.progress.say)
        device = pick_device(settings.device)
        processes.part_of(settings.batch_size)
        sources = self.sources_of(settings)
        if isinstance(settings, TrainingOptions) and settings.tensorboard:
            check_tensorboard()
        refuse_sources(run, **{name: getattr(settings, name) for name in (*self.sources, "base")})
        data = self.read(settings, None)
        processes.join(device)

        def train(folder: ModelFolder) -> tuple[Save, TrainingHistory]:
            context = TrainingContext(progress=run.progress, checkpoints=folder.checkpoints)
            trained = self.train(data, settings, context)
            return partial(trained.save, training_card(trained, settings, folder)), trained.history

        identity = partial(self.identity, settings)
        return train_once(self.name, self.paper, settings, sources, run, train, identity)

    def plan(self, settings: S, before: Before) -> Estimate:
        """Estimate the cost of the step; raises the same errors as the step."""
        return self.planner(self, settings, before)

    def sources_of(self, settings: S) -> dict[str, str]:
        """The sources of data by the name of their setting, numbered from 1 if the setting is a list."""
        sources: dict[str, str] = {}
        for name in self.sources:
            value = getattr(settings, name)
            if isinstance(value, list):
                sources |= {f"{name} {number}": source for number, source in enumerate(value, start=1)}
            elif value:
                sources[name] = value
        return sources


def train_once(
    step: str,
    paper: str,
    settings: TrainingSettings | TrainClassifierSettings,
    sources: Mapping[str, str],
    run: Run,
    train: Callable[[ModelFolder], tuple[Save, TrainingHistory | ClassifierTraining]],
    identity: Callable[[], TrainingIdentity] = TrainingIdentity,
) -> Place:
    """Claim the run's folder, train a model and save it there; a finished folder is left as it is.

    Of the processes that share the training, one claims the folder and writes; the others join the folder.

    Args:
        step: the name of the step.
        paper: the paper whose method it is, for the card.
        settings: the settings of the step.
        sources: the sources of data by the name of their setting.
        run: the run; its folder is returned.
        train: returns a function that saves the model, and the course of the training.
        identity: returns what else decides the weights. Only the process that writes calls it.
    """
    processes = Processes.current()
    folder = None
    if processes.writes:
        folder = _claimed_folder(step, paper, settings, sources, identity(), run)
    processes.wait()
    folder = folder or ModelFolder.joined(run)
    if folder.finished:
        run.progress.say(f"{run.out}: already trained with these settings; nothing to do")
        processes.leave()
        return run.out
    say_loading(run, settings.base)
    save, history = train(folder)
    if processes.writes:
        folder.finish(save, history.to_json())
    processes.leave()
    run.progress.say(f"wrote {run.out}: {history}")
    return run.out


def _claimed_folder(
    step: str,
    paper: str,
    settings: TrainingSettings | TrainClassifierSettings,
    sources: Mapping[str, str],
    other: TrainingIdentity,
    run: Run,
) -> ModelFolder:
    """Claim the run's folder, which has to be new, unfinished, or of a training with the same identity."""
    hashes = {name: hash_source(source) for name, source in sources.items()} | dict(other.inputs)
    warn_of_equal_data(sources, hashes, run.progress.say)
    models = {"base": model_revision(settings.base), **other.models}
    identity = Identity.of(step, settings.deciding(), hashes, models)
    attribution = sources_of(
        models=[settings.base], data=[*sources.values(), *other.made_with], papers=[paper]
    )
    return ModelFolder.start(run, identity, attribution)


def warn_of_equal_data(
    sources: Mapping[str, str], hashes: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Say so if a model is measured on the data that it learns from; sources and hashes are by setting."""
    for name, source in sources.items():
        if name != "validation" and hashes[name] == hashes.get("validation"):
            say(
                f"--validation {sources['validation']} holds the same data as --{name.partition(' ')[0]} "
                f"{source}: the validation figure tells nothing about other data; give other examples"
            )


class _Saved(Protocol):
    """A model that writes itself into a folder."""

    def save(self, folder: Path) -> None: ...


def save_with_card(model: _Saved, card: str, out: Path) -> None:
    """Save a model and its card in an empty folder."""
    model.save(out)
    (out / "README.md").write_text(card, encoding="utf-8")
