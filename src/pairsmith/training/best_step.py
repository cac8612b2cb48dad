"""The training loop of all trainings: the trainer's arguments, evaluations, best weights and checkpoints."""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PrinterCallback, TrainerCallback

from pairsmith.core.errors import ModelError, StorageError, counted, first_line
from pairsmith.core.model_files import pick_dtype, quiet_loading, return_freed_memory, without_log_messages
from pairsmith.core.progress import Progress, ProgressTask
from pairsmith.core.stop_signals import stop_signals
from pairsmith.training.checkpoints import BestSoFar, Checkpoints
from pairsmith.training.logs import Logs, steps_between
from pairsmith.training.options import FEW_STEPS, TrainingOptions
from pairsmith.training.processes import Processes
from pairsmith.training.quick import quick_training

_MEMORY_STEPS = 10
"""Steps between two calls of ``return_freed_memory``; a call takes some hundredths of a second."""

SAVE_SECONDS = 600.0
"""A checkpoint is also saved when the last one is older than this many seconds, as steps may be long."""

_NOTE_SECONDS = 60.0
"""Least number of seconds between two records of the step that a training has reached."""

_STOPPING = "stopping after this step, which is kept; a second Ctrl-C stops at once"

TRAIN = "train"
"""Label of a training's progress bar."""

ValidationMeasure = Callable[[], float | None]
"""Computes the validation figure of the model's current weights; higher is better, None if undefined."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """How a training went.

    Attributes:
        steps: number of steps.
        best_step: the step whose weights were kept: the one with the highest validation figure, or the last.
        metric: name of the validation metric.
        validation: the metric, ×100, at each evaluated step, None if it is undefined; step 0 is the untrained
            base. Empty without validation data.
        seconds: duration of the training with its evaluations. Of a run that was stopped, the time up to its
            last checkpoint counts.
        rates: if several learning rates were tried, the validation figures at each of them.
    """

    steps: int
    best_step: int
    metric: str
    validation: dict[int, float | None]
    seconds: float
    rates: dict[float, dict[int, float | None]] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        """The validation figure of the step that was kept; None without one."""
        return self.validation.get(self.best_step)

    def __str__(self) -> str:
        """One sentence: the step that was kept, and its validation figure if there is one.

        If the figure of the base, which is step 0, is higher, the sentence says so. Figures are compared as
        they are shown, with one decimal place. With ``keep_base`` the base is never better than what is kept.
        """
        if self.best is None:
            return f"the last of {counted(self.steps, 'steps')}"
        if self.best_step == 0:
            return f"the base, as no step was better: validation {self.metric} {self.best:.1f}"
        kept = f"best step {self.best_step:,} of {self.steps:,}, validation {self.metric} {self.best:.1f}"
        before = self.validation.get(0)
        if before is None or round(before, 1) <= round(self.best, 1):
            return kept
        return f"{kept}; the base was better before training: {before:.1f} (keep_base would have kept it)"

    def to_json(self) -> dict[str, Any]:
        """The part of ``training.json`` that says how the training went."""
        record = {
            "steps": self.steps,
            "best_step": self.best_step,
            "validation": self._curve(self.validation),
            "seconds": round(self.seconds, 2),
        }
        if self.rates:
            record["rates"] = [
                {"learning_rate": rate, "validation": self._curve(curve)}
                for rate, curve in self.rates.items()
            ]
        return record

    def _curve(self, figures: Mapping[int, float | None]) -> list[dict[str, float | None]]:
        return [
            {"step": step, self.metric: None if figure is None else round(figure, 4)}
            for step, figure in figures.items()
        ]


@dataclass(eq=False)
class BestStepCallback(TrainerCallback):
    """The trainer's callback that shows progress, evaluates, and keeps a copy of the best weights."""

    model: nn.Module
    metric: str
    measure: ValidationMeasure | None
    total: int
    options: TrainingOptions
    progress: Progress
    bar: ProgressTask
    checkpoints: Checkpoints | None
    so_far: BestSoFar = field(default_factory=BestSoFar)
    logs: Logs | None = None
    started: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    noted: float = -math.inf
    processes: Processes = field(default_factory=Processes.current)
    stopped_by: list[int] = field(default_factory=list)

    @property
    def training(self) -> TrainingHistory:
        """How the training went so far; ``seconds`` includes the time before a resumed checkpoint."""
        so_far, seconds = self.so_far, time.monotonic() - self.started
        return TrainingHistory(self.total, so_far.best_step, self.metric, so_far.curve, seconds)

    def run(self, make_trainer: Callable[[Path], Any], keep_end: bool) -> None:
        """Train, from the latest checkpoint if there is one.

        ``make_trainer`` is called with the folder for the trainer's checkpoints. With ``keep_end``, the end
        of the training is kept as a checkpoint of the last step, with the best weights; if there is one
        already, nothing is trained.
        """
        kept = self.checkpoints
        if kept and keep_end and (final := kept.final(self.total)):
            self._restore(final)
            self.bar.skip(self.total)
            self.model.load_state_dict(final.best_weights)
            return
        try:
            with tempfile.TemporaryDirectory(prefix="pairsmith-") as scratch:
                self._train(make_trainer, Path(scratch))
            self._keep_best()
        finally:
            if self.logs:
                self.logs.close()
                self.logs = None
        if kept and keep_end:
            self._seal(kept, self.total, replace(self.so_far, best_weights=_copy_of_weights(self.model)))

    def _train(self, make_trainer: Callable[[Path], Any], scratch: Path) -> None:
        """Make the steps after the latest checkpoint; the trainer works in ``scratch`` if none are kept."""
        kept = self.checkpoints
        start = kept.latest(self.total, self.progress.say) if kept else None
        trainer = make_trainer(kept.folder if kept else scratch)
        step = -1
        if start:
            path, so_far = start
            self._restore(so_far)
            step = int(path.name.partition("-")[2])
            self.bar.skip(step)
            self.progress.say(f"resuming from {path.name}")
        if kept and kept.logs and self.options.tensorboard and self.processes.writes:
            self.logs = Logs(kept.logs, self.metric, step, self.so_far.curve)
        self._note(max(step, 0))
        if not start:
            self.evaluate(0)
        # The trainer warns of equal file times and of another number of processes, neither of which matters.
        unneeded = without_log_messages(
            "transformers.trainer_utils", "mtime may not be", "do not match the ones in the"
        )
        with quiet_loading(), unneeded, warnings.catch_warnings(), _checkpoint_errors(kept):
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            with stop_signals(deferred=self._saves_at_any_step, message=_STOPPING) as self.stopped_by:
                trainer.train(resume_from_checkpoint=str(start[0]) if start else None)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """After each step: count it, and evaluate when it is time."""
        self.bar.advance()
        self._note(state.global_step)
        if state.global_step % _MEMORY_STEPS == 0:
            return_freed_memory()
        if state.global_step % self.options.eval_steps == 0:
            self.evaluate(state.global_step)
        control.should_training_stop |= bool(self.stopped_by)
        due = self.stopped_by or time.monotonic() - self.saved >= SAVE_SECONDS
        if due and self._saves_at_any_step:
            control.should_save = True
        if state.global_step >= state.max_steps:
            control.should_save = False  # nothing would resume from the last step
        if control.should_save and self.checkpoints is not None and self.processes.writes:
            self.checkpoints.check()  # before the trainer writes, which would make a moved folder again

    def _note(self, step: int) -> None:
        """Record the step for ``pairsmith status``, unless a step was recorded less than a minute ago."""
        now = time.monotonic()
        if self.checkpoints and self.processes.writes and now - self.noted >= _NOTE_SECONDS:
            self.checkpoints.note(step, self.total)
            self.noted = now

    @property
    def _saves_at_any_step(self) -> bool:
        """Whether a checkpoint may be saved after any step; several processes could not agree on the step."""
        return self.processes.size == 1 and self.checkpoints is not None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """After the trainer wrote a checkpoint: add the validation results so far."""
        if self.logs:
            self.logs.flush()
        self.processes.wait()  # until each process has saved its random state
        if self.checkpoints is not None:
            self._seal(self.checkpoints, state.global_step, self.so_far)
        self.saved = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's signature
        """When the trainer reports its loss and learning rate: write them to the logs, if there are any."""
        if self.logs and logs:
            self.logs.train(logs, state.global_step)

    def evaluate(self, step: int) -> None:
        """Evaluate the weights after ``step``, unless that was done before; copy them if they are best."""
        so_far = self.so_far
        if self.measure is None or step in so_far.curve:
            return
        was_training = self.model.training
        self.model.eval()
        figure = self.measure()
        self.model.train(was_training)
        so_far.curve[step] = figure
        if self.logs:
            self.logs.validation(figure, step)
        self.bar.advance(0, None if figure is None else f"validation {figure:.2f}")
        may_be_kept = step > 0 or self.options.keep_base
        best = -math.inf if so_far.best is None else so_far.best
        if may_be_kept and figure is not None and figure > best:
            so_far.best, so_far.best_step = figure, step
            so_far.best_weights = _copy_of_weights(self.model)

    def _seal(self, checkpoints: Checkpoints, step: int, so_far: BestSoFar) -> None:
        """Add the best step so far to the checkpoint of ``step``."""
        if self.processes.writes:
            checkpoints.seal(step, replace(so_far, seconds=time.monotonic() - self.started))

    def _restore(self, so_far: BestSoFar) -> None:
        """Continue with the best step and the time that a checkpoint recorded."""
        self.so_far = so_far
        self.started = time.monotonic() - so_far.seconds

    def _keep_best(self) -> None:
        """After the last step: evaluate it, and restore the best weights."""
        self.evaluate(self.total)
        if self.so_far.best_weights and self.so_far.best_step != self.total:
            self.model.load_state_dict(self.so_far.best_weights)
        if not self.so_far.best_weights:
            self.so_far.best_step = self.total
        if not all(torch.isfinite(weight).all() for weight in self.model.parameters()):
            raise ModelError("the training diverged: weights are no longer finite; try a lower learning rate")


def _copy_of_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSetup:
    """How the library's trainer is made for one training.

    Attributes:
        steps: number of steps.
        rate: the highest learning rate, reached after the warm-up.
        metric: name of the validation figure that chooses the best step.
        measure: computes this figure; with None, the last step is kept.
        make_arguments: makes the trainer's arguments: the library's class, with arguments of this training.
        make_trainer: makes the trainer: the library's class, with arguments of this training.
        workers: number of additional processes that prepare batches.
        keep_end: whether the result stays in a checkpoint of the last step.
    """

    steps: int
    rate: float
    metric: str
    measure: ValidationMeasure | None
    make_arguments: Callable[..., Any]
    make_trainer: Callable[..., Any]
    workers: int = 0
    keep_end: bool = False


def train_to_best_step(
    model: nn.Module,
    options: TrainingOptions,
    setup: TrainerSetup,
    device: str,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> TrainingHistory:
    """Train ``model`` in place, and leave it with the weights of its best step, in evaluation mode.

    The learning rate rises linearly over the warm-up and falls linearly to 0. The model is evaluated every
    ``eval_steps`` steps and after the last step. The step with the highest figure is kept, of several such
    steps the earliest; without figures the last step is kept. The untrained model is evaluated too, but kept
    only with ``keep_base``. A training that was stopped resumes from its latest checkpoint, and ends with the
    same weights. If torchrun started several processes, each computes its part of every batch.
    """
    steps = setup.steps
    if steps < FEW_STEPS and not options.steps_are_chosen(steps):  # else they are few on purpose
        progress.say(
            f"only {counted(steps, 'steps')} of {counted(options.batch_size, 'rows')}, too few to learn "
            "much: give more rows, a smaller batch size or more epochs"
        )
    with quick_training(model, device) as as_usual, progress.task(TRAIN, steps, "steps") as bar:
        evaluate = partial(as_usual, setup.measure) if setup.measure else None
        callback = BestStepCallback(model, setup.metric, evaluate, steps, options, progress, bar, checkpoints)

        def make(folder: Path) -> Any:
            saving = {"output_dir": str(folder), "save_strategy": "steps" if checkpoints else "no"}
            arguments = setup.make_arguments(
                **saving, **_trainer_arguments(options, setup, device, callback.processes)
            )
            # With several GPUs the library would give each a batch, which multiplies the batch size.
            arguments._n_gpu = min(1, arguments.n_gpu)
            trainer = setup.make_trainer(model=model, args=arguments, callbacks=[callback])
            trainer.remove_callback(PrinterCallback)
            return trainer

        callback.run(make, setup.keep_end)
    model.eval()
    return callback.training


def _trainer_arguments(
    options: TrainingOptions, setup: TrainerSetup, device: str, processes: Processes
) -> dict[str, Any]:
    """The arguments of the library's trainer, besides where it saves checkpoints."""
    return {
        "max_steps": setup.steps,
        "per_device_train_batch_size": processes.part_of(options.batch_size),
        **processes.arguments(device),
        "learning_rate": setup.rate,
        "weight_decay": options.weight_decay,
        "lr_scheduler_type": "linear",
        # The first step of a warm-up has the learning rate 0, so a training's only step must not be a
        # warm-up.
        "warmup_steps": min(math.ceil(options.warmup * setup.steps), setup.steps - 1),
        "seed": options.seed,
        "use_cpu": device == "cpu",
        "bf16": pick_dtype(options.dtype, device) == "bfloat16",
        # Pinned memory speeds up copies to a CUDA device and only warns elsewhere.
        "dataloader_pin_memory": device == "cuda",
        "dataloader_num_workers": setup.workers,
        # Forked processes share the examples in memory, which need not be sent to them.
        "dataloader_multiprocessing_context": "fork" if setup.workers else None,
        "save_steps": options.checkpoint_steps,
        "save_total_limit": 2,
        "eval_strategy": "no",
        "logging_strategy": "steps" if options.tensorboard else "no",
        "logging_steps": steps_between(setup.steps),
        "report_to": "none",
        "disable_tqdm": True,
    }


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
