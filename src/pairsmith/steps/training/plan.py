"""The cost of a training, extrapolated from some of its own steps and an evaluation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import ProgressTask, Silent
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.planning import beyond_samples, has_no_sample
from pairsmith.steps.shared import with_sources
from pairsmith.steps.training.reading import with_training_splits
from pairsmith.steps.training.settings import FitSettings, TrainingSettings
from pairsmith.training.best_step import SAVE_SECONDS, TRAIN

if TYPE_CHECKING:
    from pairsmith.steps.training.step import TrainingContext, TrainingStep

CALIBRATION_STEPS = 4
SAMPLE_ROWS = 2_000
"""Most rows of each source of questions that a plan reads in full; the others are counted."""

_UNTIMED_STEPS = 2
TRIED_STEPS = _UNTIMED_STEPS + CALIBRATION_STEPS
"""Steps of the longest trial."""

MOST_SECONDS = 10.0
"""Seconds; of a step that may take longer only a part is timed, and extrapolated."""

_PROBE_BATCH = 2
"""Examples in a step of the first trial; a bi-encoder needs two pairs to tell apart."""

BESIDE_WEIGHTS = 300_000
"""Approximate bytes of tokenizer, configuration, card and record."""
CHECKPOINTS_ON_DISK = 3
"""Most checkpoints on disk at one time: two, and the next one while it is being written."""


def plan_training(step: "TrainingStep[Any, Any]", settings: TrainingSettings, before: Before) -> Estimate:
    """Read the data as the step does, train for some steps, and extrapolate to all.

    Steps are timed, not slices of the rows: how many there are, and how many evaluations and checkpoints,
    follows from the settings. Hard negatives from a mined folder are left out; they do not change the cost.
    """
    pick_device(settings.device)  # one that is not here is refused before anything is read
    begun = time.monotonic()
    settings = _readable(step, settings, before)
    data = step.read(settings, SAMPLE_ROWS)
    reading = time.monotonic() - begun
    sources = step.sources_of(settings)
    trained_on = [sources[name] for name in sources if name.partition(" ")[0] in ("seeds", "added", "data")]
    unread = data.unread + beyond_samples(trained_on, before, "train")
    examples = data.examples + round(unread * data.examples / max(1, data.rows))
    steps, rates = settings.steps_of(examples), 1
    validation, validation_size = data.validation, len(data.validation)
    if isinstance(settings, FitSettings):
        rates = len(settings.learning_rate)
    elif settings.data in before:  # whose split ``validation`` is not in its sample
        validation_size = before[settings.data].rows.get("validation", 0)
        validation = data.training.slice(0, validation_size).to_pylist()

    def time_steps(count: int, batch: int, evaluated: int) -> _Trial:
        changes = {"eval_steps": count, "checkpoint_steps": count, "batch_size": batch}
        timer, begun = _Steps(), time.monotonic()
        short = settings.model_copy(update=changes).cut_to(count)
        context: TrainingContext = {"progress": timer, "checkpoints": None}
        trained = step.train(replace(data, validation=validation[:evaluated]), short, context)
        weights = sum(weight.nbytes for part in trained.parts for weight in part.state_dict().values())
        return _Trial([end - begun for end in timer.ends], timer.last - timer.ends[-1], weights)

    batch, evaluated, untimed = min(_PROBE_BATCH, settings.batch_size), min(_PROBE_BATCH, len(validation)), 1
    first = trial = time_steps(untimed + 1, batch, evaluated)
    share = min(1.0, MOST_SECONDS / max(first.step(untimed) * settings.batch_size / batch, 1e-9))
    if share * settings.batch_size >= batch:
        batch, evaluated = int(share * settings.batch_size), max(evaluated, int(share * len(validation)))
        untimed = _UNTIMED_STEPS
        trial = time_steps(untimed + CALIBRATION_STEPS, batch, evaluated)
    # The first trial also loads libraries, which are loaded already for later learning rates.
    loading = trial.loading(untimed)
    libraries = max(first.loading(1) - loading, 0.0)
    seconds = trial.step(untimed) * settings.batch_size / batch
    evaluation = trial.evaluation * validation_size / max(evaluated, 1)
    evaluations = 2 + steps // settings.eval_steps if validation_size else 0
    training = steps * seconds + evaluations * evaluation
    saved = saved_checkpoints(steps, settings.checkpoint_steps, training)
    checkpoints = (rates - 1) * min(CHECKPOINTS_ON_DISK - 1, saved) + min(CHECKPOINTS_ON_DISK, saved)
    in_checkpoint = 4 if validation_size else 3  # the weights, AdamW's two moments, and the best weights
    return Estimate(
        seconds=reading + libraries + rates * (training + loading),
        memory=peak_memory(),
        disk=trial.weights + BESIDE_WEIGHTS,
        rows={},
        scratch=(checkpoints * in_checkpoint + (rates if rates > 1 else 0)) * trial.weights,
    )


def saved_checkpoints(steps: int, between: int, seconds: float) -> int:
    """The number of checkpoints that a training saves in ``seconds``, the time of its evaluations included.

    One is saved every ``between`` steps and every ten minutes, and none at the last step.
    """
    return min(steps - 1, max(len(range(between, steps, between)), int(seconds / SAVE_SECONDS)))


def _readable(step: "TrainingStep[Any, Any]", settings: TrainingSettings, before: Before) -> TrainingSettings:
    """The settings with sources that can be read: without rows to add that nothing stands in for."""

    def with_a_sample(name: str, source: str) -> str | None:
        if not has_no_sample(source, before):
            return source
        if name == "added":  # the seeds cost as much
            return None
        raise SettingsError(f"{name} {source}: plan cannot estimate a step that reads this step's output")

    settings = with_sources(settings, step.sources, with_a_sample)
    if hasattr(settings, "mined"):
        settings = settings.model_copy(update={"mined": None, "encoder": None})  # the hard negatives
    return with_training_splits(settings)


class _Steps(Silent):
    """Records when each step of a training ended, and when its last evaluation did."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.last = 0.0

    def draw(self, bar: ProgressTask) -> None:
        """A step has ended, or an evaluation before or after one."""
        if bar.label == TRAIN:
            self.last = time.monotonic()
            if bar.done > len(self.ends):
                self.ends.append(self.last)


@dataclass(frozen=True, slots=True)
class _Trial:
    """The timing of a short training, with an evaluation before and after.

    Attributes:
        ends: when each step ended, in seconds after the training began.
        evaluation: seconds that an evaluation takes; 0 without validation data.
        weights: bytes of the weights.
    """

    ends: Sequence[float]
    evaluation: float
    weights: int

    def step(self, untimed: int) -> float:
        """Seconds that a step takes, without the first ``untimed`` steps, which are for warming up."""
        return (self.ends[-1] - self.ends[untimed - 1]) / (len(self.ends) - untimed)

    def loading(self, untimed: int) -> float:
        """Seconds before the first step, without the evaluation."""
        return max(self.ends[0] - self.step(untimed) - self.evaluation, 0.0)
