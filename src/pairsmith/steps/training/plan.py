"""The cost of a training, extrapolated from some of its own steps and an evaluation."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.parquet as pq
from torch import Tensor

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Silent, Task
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.shared import with_sources
from pairsmith.steps.training.reading import at_splits
from pairsmith.steps.training.settings import FitSettings
from pairsmith.training.best_step import SAVE_SECONDS, TRAIN

if TYPE_CHECKING:
    from pairsmith.steps.training.step import TrainingContext, TrainingStep

CALIBRATION_STEPS = 4
SAMPLE_ROWS = 2_000
"""Most rows of each source of questions that a plan reads in full; the others are counted."""

_UNTIMED_STEPS = 2
MOST_SECONDS = 10.0
"""Seconds; of a step that takes longer only a part is timed, and extrapolated."""

_PROBE_BATCH = 2
"""Examples in that part; a bi-encoder needs two pairs to tell apart."""

BESIDE_WEIGHTS = 300_000
"""Approximate bytes of tokenizer, configuration, card and record."""
KEPT = 3
"""Most checkpoints on disk at one time: two, and the next one while it is being written."""

S = TypeVar("S", bound=FitSettings)


def plan_training(step: "TrainingStep[S, Any]", settings: S, before: Before) -> Estimate:
    """Read the data as the step does, train for some steps, and extrapolate to all.

    What earlier steps will make is replaced by the samples in their estimates; hard negatives from a mined
    folder are left out, as they do not change the cost.
    """
    pick_device(settings.device)  # one that is not here is refused before anything is read
    begun = time.monotonic()
    with samples_of(step, settings, before) as there:
        data = step.read(there, SAMPLE_ROWS)
    reading = time.monotonic() - begun
    unread = data.unread
    for name, source in step.sources_of(settings).items():
        if name.partition(" ")[0] in ("seeds", "added", "data") and source in before:
            sample = before[source].sample
            unread += sum(before[source].rows.values()) - (0 if sample is None else sample.num_rows)
    examples = data.examples + round(unread * data.examples / max(1, data.rows))
    whole, rates = settings.steps_of(examples), len(settings.learning_rate)
    validation_size = len(data.validation)

    def time_steps(steps: int, batch: int, evaluated: int) -> _Trial:
        changes = {
            "eval_steps": steps,
            "checkpoint_steps": steps,
            "learning_rate": settings.learning_rate[:1],
            "batch_size": batch,
        }
        timer, begun = _Steps(), time.monotonic()
        some = there.model_copy(update=changes).cut_to(steps)
        context: TrainingContext = {"progress": timer, "checkpoints": None}
        trained = step.train(replace(data, validation=data.validation[:evaluated]), some, context)
        weights = bytes_of(chain.from_iterable(part.state_dict().values() for part in trained.parts))
        return _Trial([end - begun for end in timer.ends], timer.last - timer.ends[-1], weights)

    batch, evaluated, untimed = min(_PROBE_BATCH, settings.batch_size), min(_PROBE_BATCH, validation_size), 1
    first = trial = time_steps(untimed + 1, batch, evaluated)
    if first.step(untimed) * settings.batch_size / batch < MOST_SECONDS:
        batch, evaluated, untimed = settings.batch_size, validation_size, _UNTIMED_STEPS
        trial = time_steps(untimed + CALIBRATION_STEPS, batch, evaluated)
    # The first trial also loads libraries, which are loaded already for later learning rates.
    loading = trial.loading(untimed)
    libraries = max(first.loading(1) - loading, 0.0)
    seconds = trial.step(untimed) * settings.batch_size / batch
    evaluation = trial.evaluation * validation_size / max(evaluated, 1)
    evaluations = 2 + whole // settings.eval_steps if validation_size else 0
    training = whole * seconds + evaluations * evaluation
    saved = saved_checkpoints(whole, settings.checkpoint_steps, training)
    checkpoints = (rates - 1) * min(KEPT - 1, saved) + min(KEPT, saved)
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


@contextmanager
def samples_of(step: "TrainingStep[S, Any]", settings: S, before: Before) -> Iterator[S]:
    """The settings, with sources that earlier steps will make replaced by files with a sample of them."""
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:

        def there(name: str, source: str) -> str | None:
            if source not in before:
                return source
            sample = before[source].sample
            if sample is None:
                if name == "added":  # the seeds cost as much
                    return None
                raise SettingsError(
                    f"{name} {source}: plan cannot estimate a step that reads this step's output"
                )
            file = Path(folder) / f"{source.removeprefix('@')}.parquet"
            pq.write_table(sample, file)
            return str(file)

        some = with_sources(settings, step.sources, there)
        if hasattr(settings, "mined"):
            some = some.model_copy(update={"mined": None, "encoder": None})  # the hard negatives
        yield at_splits(some, later=before)


class _Steps(Silent):
    """Records when each step of a training ended, and when its last evaluation did."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.last = 0.0

    def draw(self, bar: Task) -> None:
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


def bytes_of(weights: Iterable[Tensor]) -> int:
    """Bytes of some weights."""
    return sum(weight.numel() * weight.element_size() for weight in weights)
