"""The cost of a training, extrapolated from the time for some of its steps and an evaluation."""

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
"""Number of training steps that are timed."""
SAMPLE_ROWS = 2_000
"""Largest number of rows of each source of questions that a plan reads; the other rows are counted."""

_UNTIMED_STEPS = 2
"""Number of steps before these, which warm up the libraries."""
TRIED_STEPS = _UNTIMED_STEPS + CALIBRATION_STEPS
"""Number of steps of the longest trial."""

MOST_SECONDS = 10.0
"""Seconds; if a training step may take longer, a step with a smaller batch is timed and extrapolated."""

_PROBE_BATCH = 2
"""Batch size of the first trial; a bi-encoder needs two pairs, as one has no negatives."""

BESIDE_WEIGHTS = 300_000
"""Approximate size of tokenizer, configuration, card and record, in bytes."""
CHECKPOINTS_ON_DISK = 3
"""Largest number of checkpoints on disk at a time: two, and the next one while it is being written."""


def plan_training(step: "TrainingStep[Any, Any]", settings: TrainingSettings, before: Before) -> Estimate:
    """Read the data as the step does, train for some steps, and extrapolate to all steps.

    The numbers of training steps, evaluations and checkpoints follow from the settings and the number of
    examples; so single steps are timed, not trainings on parts of the rows. Hard negatives from a mined
    folder are left out, as they do not change the cost.
    """
    pick_device(settings.device)  # refuses a device that does not exist before anything is read
    # 1. Read the data, and count steps and evaluations.
    begun = time.monotonic()
    settings = _with_existing_sources(step, settings, before)
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
    elif settings.data in before:  # the sample has no split ``validation``
        validation_size = before[settings.data].rows.get("validation", 0)
        validation = data.training.slice(0, validation_size).to_pylist()

    def time_steps(untimed: int, timed: int, batch: int, evaluated: int) -> _Trial:
        """Train for some steps of ``batch`` examples, and measure the model on ``evaluated`` examples."""
        count = untimed + timed
        changes = {"eval_steps": count, "checkpoint_steps": count, "batch_size": batch}
        timer, begun = _Steps(), time.monotonic()
        short = settings.model_copy(update=changes).cut_to(count)
        context: TrainingContext = {"progress": timer, "checkpoints": None}
        trained = step.train(replace(data, validation=validation[:evaluated]), short, context)
        weights = sum(weight.nbytes for part in trained.parts for weight in part.state_dict().values())
        ends = [end - begun for end in timer.ends]
        return _Trial(ends, untimed, timer.last - timer.ends[-1], weights)

    # 2. Time a step of few examples, and then as many examples as take ``MOST_SECONDS``.
    batch, evaluated = min(_PROBE_BATCH, settings.batch_size), min(_PROBE_BATCH, len(validation))
    first = trial = time_steps(1, 1, batch, evaluated)
    share = min(1.0, MOST_SECONDS / max(first.step * settings.batch_size / batch, 1e-9))
    if share * settings.batch_size >= batch:
        batch, evaluated = int(share * settings.batch_size), max(evaluated, int(share * len(validation)))
        trial = time_steps(_UNTIMED_STEPS, CALIBRATION_STEPS, batch, evaluated)
    # 3. Extrapolate. The first trial also loads libraries, which later learning rates find loaded.
    libraries = max(first.loading - trial.loading, 0.0)
    seconds = trial.step * settings.batch_size / batch
    evaluation = trial.evaluation * validation_size / max(evaluated, 1)
    evaluations = 2 + steps // settings.eval_steps if validation_size else 0
    training = steps * seconds + evaluations * evaluation
    saved = saved_checkpoints(steps, settings.checkpoint_steps, training)
    checkpoints = (rates - 1) * min(CHECKPOINTS_ON_DISK - 1, saved) + min(CHECKPOINTS_ON_DISK, saved)
    # A checkpoint has the weights, AdamW's two moments and, with validation examples, the best weights.
    weights_per_checkpoint = 4 if validation_size else 3
    return Estimate(
        seconds=reading + libraries + rates * (training + trial.loading),
        memory=peak_memory(),
        disk=trial.weights + BESIDE_WEIGHTS,
        rows={},
        scratch=(checkpoints * weights_per_checkpoint + (rates if rates > 1 else 0)) * trial.weights,
    )


def saved_checkpoints(steps: int, between: int, seconds: float) -> int:
    """The number of checkpoints that a training saves.

    A checkpoint is saved every ``between`` of the ``steps`` steps, and every ten minutes, but not at the last
    step. ``seconds`` is the duration of the training, including its evaluations.
    """
    return min(steps - 1, max(len(range(between, steps, between)), int(seconds / SAVE_SECONDS)))


def _with_existing_sources(
    step: "TrainingStep[Any, Any]", settings: TrainingSettings, before: Before
) -> TrainingSettings:
    """The settings with sources that can be read now; sources in ``added`` without a sample are left out.

    Raises:
        SettingsError: an earlier step will make another source, and its estimate has no sample of the rows.
    """

    def with_a_sample(name: str, source: str) -> str | None:
        if not has_no_sample(source, before):
            return source
        if name == "added":  # a training on the seeds alone takes as much time per step
            return None
        raise SettingsError(f"{name} {source}: plan cannot estimate a step that reads this step's output")

    settings = with_sources(settings, step.sources, with_a_sample)
    if hasattr(settings, "mined"):
        settings = settings.model_copy(update={"mined": None, "encoder": None})  # no hard negatives
    return with_training_splits(settings)


class _Steps(Silent):
    """Records the end of each step of a training, and of its last evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.last = 0.0

    def draw(self, bar: ProgressTask) -> None:
        """Called when a step ends, and when an evaluation before or after a step ends."""
        if bar.label == TRAIN:
            self.last = time.monotonic()
            if bar.done > len(self.ends):
                self.ends.append(self.last)


@dataclass(frozen=True, slots=True)
class _Trial:
    """The timing of a short training, with an evaluation before and after it.

    Attributes:
        ends: the end of each step, in seconds after the training began.
        untimed: the number of steps that do not count, for warming up.
        evaluation: the duration of an evaluation in seconds; 0 without validation data.
        weights: the size of the weights in bytes.
    """

    ends: Sequence[float]
    untimed: int
    evaluation: float
    weights: int

    @property
    def step(self) -> float:
        """The duration of a step in seconds."""
        return (self.ends[-1] - self.ends[self.untimed - 1]) / (len(self.ends) - self.untimed)

    @property
    def loading(self) -> float:
        """The seconds before the first step, without the evaluation."""
        return max(self.ends[0] - self.step - self.evaluation, 0.0)
