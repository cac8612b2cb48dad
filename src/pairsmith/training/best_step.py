"""What all trainings have in common: progress, evaluations, the best weights, checkpoints."""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import TrainerCallback

from pairsmith.core.errors import ModelError, StorageError, first_line
from pairsmith.core.model_files import quiet_loading, trim, unsaid
from pairsmith.core.paths import Place
from pairsmith.core.progress import Progress, Task
from pairsmith.training.checkpoints import Checkpoints, Found
from pairsmith.training.logs import Logs

_TRIMMED = 10
"""Steps between two calls of ``trim``, each of which takes some hundredths of a second."""

TRAIN = "train"
"""Label of a training's progress bar."""

Measure = Callable[[], float | None]
"""Computes a figure for the model's current weights, the higher the better; None if it is undefined."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """How a training went.

    Attributes:
        steps: steps made.
        best_step: the step whose weights were kept: that of the highest validation figure, or the last.
        metric: name of the validation metric.
        validation: that metric, ×100, at each evaluated step, 0 being the untrained start; None where it
            is undefined. Empty without validation data.
        seconds: time the training took, evaluations included; of a stopped run, up to its last checkpoint.
        rates: if several learning rates were tried, the validation figures of each, the kept one
            included.
    """

    steps: int
    best_step: int
    metric: str
    validation: dict[int, float | None]
    seconds: float
    rates: dict[float, dict[int, float | None]] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        """The figure of the step that was kept."""
        return self.validation.get(self.best_step)

    def __str__(self) -> str:
        """In words: the step that was kept, its validation figure if any, and the base's if it was better.

        The base is mentioned only if it is better at the one decimal place that is shown.
        """
        if self.best is None:
            return f"the last of {self.steps:,} steps"
        kept = f"best step {self.best_step:,} of {self.steps:,}, validation {self.metric} {self.best:.1f}"
        before = self.validation.get(0)
        if before is None or round(before, 1) <= round(self.best, 1):
            return kept
        return f"{kept}; the base was better before training: {before:.1f}"

    def to_json(self) -> dict[str, Any]:
        """The part of ``training.json`` that says how the training went."""
        found = {
            "steps": self.steps,
            "best_step": self.best_step,
            "validation": self._curve(self.validation),
            "seconds": round(self.seconds, 2),
        }
        if self.rates:
            found["rates"] = [
                {"learning_rate": rate, "validation": self._curve(each)} for rate, each in self.rates.items()
            ]
        return found

    def _curve(self, figures: Mapping[int, float | None]) -> list[dict[str, float | None]]:
        return [
            {"step": step, self.metric: None if figure is None else round(figure, 4)}
            for step, figure in figures.items()
        ]


class EvaluationSchedule(Protocol):
    """The settings that say how often a training is evaluated, and whether it is logged."""

    @property
    def eval_steps(self) -> int:
        """Steps between two evaluations on the validation data."""
        ...

    @property
    def tensorboard(self) -> bool:
        """Whether to write TensorBoard logs, where there is a place for them."""
        ...


class BestStepCallback(TrainerCallback):
    """Shows progress, evaluates on the validation data, and keeps the best weights."""

    def __init__(
        self,
        model: nn.Module,
        metric: str,
        measure: Measure | None,
        total: int,
        settings: EvaluationSchedule,
        progress: Progress,
        bar: Task,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._model = model
        self._metric = metric
        self._measure = measure
        self._total = total
        self._settings = settings
        self._progress = progress
        self._bar = bar
        self._checkpoints = checkpoints
        self._curve: dict[int, float | None] = {}
        self._best_step = 0
        self._best = float("-inf")
        self._best_weights: dict[str, torch.Tensor] = {}
        self._logs: Logs | None = None
        self._started = time.monotonic()

    @property
    def training(self) -> TrainingHistory:
        """How the training went so far; its time includes that before the checkpoint it resumed from."""
        seconds = time.monotonic() - self._started
        return TrainingHistory(self._total, self._best_step, self._metric, self._curve, seconds)

    def run(self, make_trainer: Callable[[Path], Any], *, keep_end: bool = False) -> None:
        """Train, from the last checkpoint if there is one.

        Args:
            make_trainer: makes the trainer, given the folder for its checkpoints.
            keep_end: whether to keep a checkpoint of the last step too, and to use it if it exists.
        """
        kept = self._checkpoints
        end = kept.end(self._total) if kept and keep_end else None
        if end:
            self._restore(end)
            self._bar.skip(self._total)
            self._model.load_state_dict(self._best_weights)
            return
        try:
            with tempfile.TemporaryDirectory(prefix="pairsmith-") as scratch:
                self._train(make_trainer, Path(scratch))
            self._close()
        finally:
            if self._logs:
                self._logs.close()
                self._logs = None
        if kept and keep_end:
            weights = {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}
            kept.seal(self._total, replace(self._found(), best_weights=weights))

    def _train(self, make_trainer: Callable[[Path], Any], scratch: Path) -> None:
        """Make the steps after the latest checkpoint; if none are kept, the trainer works in ``scratch``."""
        kept = self._checkpoints
        start = kept.latest(self._total) if kept else None
        trainer = make_trainer(kept.folder if kept else scratch)
        if kept is None:
            trainer.args.save_strategy = "no"
        step = -1
        if start:
            path, found = start
            self._restore(found)
            step = int(path.name.partition("-")[2])
            self._bar.skip(step)
            self._progress.say(f"resuming from {path.name}")
        if kept and kept.logs and self._settings.tensorboard:
            self._open_logs(kept.logs, step)
        if not start:
            self.look(0)
        # Checkpoints are ordered by number if their times are alike, so the warning is needless.
        times = unsaid("transformers.trainer_utils", "mtime may not be reliable")
        with quiet_loading(), times, _checkpoint_errors(kept):
            trainer.train(resume_from_checkpoint=str(start[0]) if start else None)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """After each step: count it, and evaluate when it is time."""
        self._bar.advance()
        if state.global_step >= state.max_steps:
            control.should_save = False  # nothing would resume from the last step
        if state.global_step % _TRIMMED == 0:
            trim()
        if state.global_step % self._settings.eval_steps == 0:
            self.look(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """After a checkpoint was written: add the validation results so far."""
        if self._logs:
            self._logs.flush()
        if self._checkpoints is not None:
            self._checkpoints.seal(state.global_step, self._found())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """When the trainer reports its loss and learning rate: log them, if wanted."""
        if self._logs and logs:
            self._logs.train(logs, state.global_step)

    def _open_logs(self, where: Place, step: int) -> None:
        self._logs = Logs(where, self._metric, step)
        if self._logs.new:  # there were no logs before the stop, but the validation figures are known
            for looked_at, figure in self._curve.items():
                self._logs.validation(figure, looked_at)

    def _found(self) -> Found:
        best = None if math.isinf(self._best) else self._best
        seconds = time.monotonic() - self._started
        return Found(self._curve, self._best_step, best, self._best_weights, seconds)

    def look(self, step: int) -> None:
        """Evaluate the weights after ``step``, unless that was done before; keep a copy of the best."""
        if self._measure is None or step in self._curve:
            return
        was_training = self._model.training
        self._model.eval()
        figure = self._measure()
        self._model.train(was_training)
        self._curve[step] = figure
        if self._logs:
            self._logs.validation(figure, step)
        self._bar.advance(0, None if figure is None else f"validation {figure:.2f}")
        if step > 0 and figure is not None and figure > self._best:
            self._best, self._best_step = figure, step
            weights = self._model.state_dict()
            self._best_weights = {name: value.detach().cpu().clone() for name, value in weights.items()}

    def _restore(self, found: Found) -> None:
        """Restore the validation results and best weights of a checkpoint."""
        self._curve, self._best_step = dict(found.curve), found.best_step
        self._best = float("-inf") if found.best is None else found.best
        self._started = time.monotonic() - found.seconds
        self._best_weights = dict(found.best_weights)

    def _close(self) -> None:
        """After the last step: evaluate it too, and restore the best weights."""
        self.look(self._total)
        if self._best_weights and self._best_step != self._total:
            self._model.load_state_dict(self._best_weights)
        if not self._best_weights:
            self._best_step = self._total
        if not all(torch.isfinite(weight).all() for weight in self._model.parameters()):
            raise ModelError("the training diverged: weights are no longer finite; try a lower learning rate")


@contextmanager
def best_step_kept(
    model: nn.Module,
    metric: str,
    measure: Measure | None,
    total: int,
    settings: EvaluationSchedule,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Iterator[BestStepCallback]:
    """A ``BestStepCallback`` over ``total`` steps, with a progress bar of its own.

    Args:
        model: the model to train; its best weights are restored at the end.
        metric: name of what ``measure`` computes.
        measure: computes the figure by which the best step is chosen; None: the last step is kept.
        total: number of steps.
        settings: say how often to evaluate.
        progress: where progress is shown.
        checkpoints: where they are kept; the training resumes from the latest one, to the same weights.
    """
    with progress.task(TRAIN, total, "steps") as bar:
        yield BestStepCallback(model, metric, measure, total, settings, progress, bar, checkpoints)


@contextmanager
def _checkpoint_errors(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Turn the trainer's errors in writing a checkpoint into a ``StorageError``."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        writing = isinstance(error, OSError | SafetensorError) or "PytorchStreamWriter" in str(error)
        if checkpoints is None or not writing:
            raise
        raise StorageError(
            f"cannot write a checkpoint to {checkpoints.folder}: {first_line(error)}; fix the cause and "
            "run the same command again; it resumes from the last checkpoint"
        ) from error
