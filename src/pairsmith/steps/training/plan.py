"""The cost of a training, extrapolated from the time for some of its steps and an evaluation."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import ProgressTask, Silent
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.planning import count_in_run, has_no_sample
from pairsmith.steps.shared import with_sources
from pairsmith.steps.training.reading import with_training_splits
from pairsmith.steps.training.settings import FitSettings, TrainEncoderSettings
from pairsmith.training.best_step import SAVE_SECONDS, TRAIN

if TYPE_CHECKING:
    from pairsmith.steps.training.step import TrainingContext, TrainingStep

TRIED_STEPS = 6
"""Number of training steps that are tried; the first third warms up the libraries, and is not timed."""
SAMPLE_ROWS = 2_000
"""Largest number of rows of each source of questions that a plan reads; the other rows are counted."""
MOST_SECONDS = 10.0
"""Seconds; if a training step may take longer, a step with a smaller batch is timed and extrapolated."""
_PROBE_BATCH = 2
"""Batch size of the first trial; a bi-encoder needs two pairs, as one has no negatives."""

BESIDE_WEIGHTS = 300_000
"""Approximate size of tokenizer, configuration, card and record, in bytes."""
CHECKPOINTS_ON_DISK = 3
"""Largest number of checkpoints on disk at a time: two, and the next one while it is being written."""


def plan_training(
    step: "TrainingStep[Any, Any]", settings: FitSettings | TrainEncoderSettings, before: Before
) -> Estimate:
    """Read the data as the step does, train for some steps, and extrapolate to all steps.

    The numbers of training steps, evaluations and checkpoints follow from the settings and the number of
    examples; so single steps are timed, not trainings on parts of the rows. Hard negatives from a mined
    folder are left out, as they do not change the cost. Added examples without a sample are left out, too.
    """
    pick_device(settings.device)  # refuses a device that does not exist before anything is read
    # 1. Read the data, and count steps and evaluations.
    begun = time.monotonic()
    settings = with_sources(
        settings, ["added"], lambda _, added: None if has_no_sample(added, before) else added
    )
    if hasattr(settings, "mined"):
        settings = settings.model_copy(update={"mined": None, "encoder": None})
    settings = with_training_splits(settings)
    data = step.read(settings, SAMPLE_ROWS)
    reading = time.monotonic() - begun
    sources = step.sources_of(settings)
    trained_on = [sources[name] for name in sources if name.partition(" ")[0] in ("seeds", "added", "data")]
    rows = count_in_run(data.rows + data.unread, trained_on, before, "train")
    steps = settings.steps_of(round(data.examples * rows / max(1, data.rows)))
    rates, one_rate = 1, dict[str, object]()
    validation, validation_size = data.validation, len(data.validation)
    if isinstance(settings, FitSettings):
        rates, one_rate = len(settings.learning_rate), {"learning_rate": settings.learning_rate[:1]}
        if (source := settings.validation) and source in before:
            split = "validation" if "validation" in before[source].rows else None
            validation_size = count_in_run(len(validation), [source], before, split)
    elif settings.data in before:  # the sample has no split ``validation``
        validation_size = before[settings.data].rows.get("validation", 0)
        validation = data.training.slice(0, validation_size).to_pylist()

    def run_trial(count: int, batch: int, evaluated: int) -> _Trial:
        """Train for ``count`` steps of ``batch`` examples, and measure on ``evaluated`` examples."""
        names = {"steps", "max_steps", "eval_steps", "checkpoint_steps"} & type(settings).model_fields.keys()
        epochs = {"epochs": float(count * batch)} if "epochs" in type(settings).model_fields else {}
        changes = {**dict.fromkeys(names, count), **epochs, **one_rate, "batch_size": batch}
        timer, begun = _Timer(), time.monotonic()
        context: TrainingContext = {"progress": timer, "checkpoints": None}
        few = replace(data, validation=validation[:evaluated])
        trained = step.train(few, settings.model_copy(update=changes), context)
        untimed = max(1, count // 3)
        seconds = (timer.ends[-1] - timer.ends[untimed - 1]) / (count - untimed)
        evaluation = timer.last - timer.ends[-1]
        loading = max(timer.ends[0] - begun - seconds - evaluation, 0.0)
        weights = sum(weight.nbytes for part in trained.parts for weight in part.state_dict().values())
        return _Trial(seconds, evaluation, loading, weights)

    # 2. Time a step of few examples, and then as many examples as take ``MOST_SECONDS``.
    batch, evaluated = min(_PROBE_BATCH, settings.batch_size), min(_PROBE_BATCH, len(validation))
    first = trial = run_trial(2, batch, evaluated)
    share = min(1.0, MOST_SECONDS / max(first.step * settings.batch_size / batch, 1e-9))
    if share * settings.batch_size >= batch:
        batch, evaluated = int(share * settings.batch_size), max(evaluated, int(share * len(validation)))
        trial = run_trial(TRIED_STEPS, batch, evaluated)
    # 3. Extrapolate. The first trial also loads libraries, which later learning rates find loaded.
    libraries = max(first.loading - trial.loading, 0.0)
    evaluations = 2 + steps // settings.eval_steps if validation_size else 0
    evaluation = trial.evaluation * validation_size / max(evaluated, 1)
    training = steps * trial.step * settings.batch_size / batch + evaluations * evaluation
    saved = saved_checkpoints(steps, settings.checkpoint_steps, training)
    checkpoints = (rates - 1) * min(CHECKPOINTS_ON_DISK - 1, saved) + min(CHECKPOINTS_ON_DISK, saved)
    # A checkpoint has the weights, AdamW's two moments and, with validation examples, the best weights.
    weights_per_checkpoint = 4 if validation_size else 3
    return Estimate(
        seconds=reading + libraries + rates * (training + trial.loading),
        disk=trial.weights + BESIDE_WEIGHTS,
        scratch=(checkpoints * weights_per_checkpoint + (rates if rates > 1 else 0)) * trial.weights,
    )


def saved_checkpoints(steps: int, between: int, seconds: float) -> int:
    """The number of checkpoints that a training saves.

    A checkpoint is saved every ``between`` of the ``steps`` steps, and every ten minutes, but not at the last
    step. ``seconds`` is the duration of the training, including its evaluations.
    """
    return min(steps - 1, max(len(range(between, steps, between)), int(seconds / SAVE_SECONDS)))


class _Timer(Silent):
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


class _Trial(NamedTuple):
    """The timing of a short training, with an evaluation before and after it."""

    step: float  # the duration of a step in seconds
    evaluation: float  # the duration of an evaluation in seconds; 0 without validation data
    loading: float  # the seconds before the first step, without the evaluation
    weights: int  # the size of the weights in bytes
