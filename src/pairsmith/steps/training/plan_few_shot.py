"""The cost of the few-shot trainings, extrapolated from some steps and an evaluation."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pyarrow.parquet as pq
from torch import nn

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent, Task
from pairsmith.data.examples import read_examples
from pairsmith.data.squad import read_questions
from pairsmith.methods.mining.biencoder import Surroundings, train_biencoder_on
from pairsmith.methods.mining.crossencoder import train_crossencoder_on
from pairsmith.methods.mining.examples import in_window
from pairsmith.methods.mining.few_shot import at_splits, read_asked_seeds, read_seeds
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.methods.mining.summarizer import train_summarizer_on, turned, validation_examples
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.training.settings import (
    FitSettings,
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)
from pairsmith.training.watch import TRAIN

CALIBRATION_STEPS = 4
_WAKING = 2
PATIENCE = 10.0
"""Seconds; of a step that takes longer only a part is timed, and extrapolated."""

_SOME = 2
"""Examples in that part; a bi-encoder needs two pairs to tell apart."""

_BESIDE_WEIGHTS = 300_000
"""Approximate bytes of tokenizer, configuration, card and record."""
_KEPT = 3
"""Most checkpoints on disk at one time: two, and the next one while it is being written."""

S = TypeVar("S", bound=FitSettings)
Train = Callable[[S, int, Progress], int]
"""Trains with these settings and this many validation examples, reports steps, returns weights' bytes."""


def plan_train_biencoder(settings: TrainBiencoderSettings, before: Before) -> Estimate:
    """Train a bi-encoder for some steps.

    Raises:
        UserError: as for ``train_biencoder``.
    """
    device = pick_device(settings.device)
    with samples_of(settings, before) as there:
        seeds = read_seeds(there.seeds, settings.kind).each
        unseen = read_examples(there.validation, settings.kind) if there.validation else []
        begun = time.monotonic()
        around = Surroundings.of(there)
        reading = time.monotonic() - begun

    def train(some: TrainBiencoderSettings, looks: int, progress: Progress) -> int:
        model, _, _ = train_biencoder_on(seeds, unseen[:looks], around, some, device, progress=progress)
        return size_of_weights(model)

    return planned(settings, train, len(seeds), len(unseen), reading)


def plan_train_crossencoder(settings: TrainCrossencoderSettings, before: Before) -> Estimate:
    """Train a cross-encoder for some steps, with other seeds' outputs in place of hard negatives.

    Raises:
        UserError: as for ``train_crossencoder``.
    """
    device = pick_device(settings.device)
    with samples_of(settings, before) as there:
        given = read_seeds(there.seeds, settings.kind).each
        seeds = [in_window(each, settings.window) for each in given]
        unseen = read_examples(there.validation, settings.kind) if there.validation else []

    def train(some: TrainCrossencoderSettings, looks: int, progress: Progress) -> int:
        cross, _, _ = train_crossencoder_on(seeds, unseen[:looks], None, some, device, progress=progress)
        return size_of_weights(cross.model)

    return planned(settings, train, len(seeds), len(unseen))


def plan_train_reader(settings: TrainReaderSettings, before: Before) -> Estimate:
    """Train a reader for some steps, on the seeds.

    Raises:
        UserError: as for ``train_reader``.
    """
    device = pick_device(settings.device)
    with samples_of(settings, before) as there:
        seeds = read_asked_seeds(there.seeds).each
        unseen = list(read_questions(there.validation)) if there.validation else []

    def train(some: TrainReaderSettings, looks: int, progress: Progress) -> int:
        trained = train_reader_on(seeds, unseen[:looks], some, device, progress=progress)
        return size_of_weights(trained.reader.model)

    return planned(settings, train, len(seeds), len(unseen))


def plan_train_summarizer(settings: TrainSummarizerSettings, before: Before) -> Estimate:
    """Train a summariser for some steps, on the seeds.

    Raises:
        UserError: as for ``train_summarizer``.
    """
    device = pick_device(settings.device)
    with samples_of(settings, before) as there:
        seeds = [turned(each, settings.kind) for each in read_seeds(there.seeds, settings.kind).each]
        unseen = validation_examples(there)

    def train(some: TrainSummarizerSettings, looks: int, progress: Progress) -> int:
        found = train_summarizer_on(seeds, [], unseen[:looks], some, device, progress=progress)
        return size_of_weights(found[0].model)

    return planned(settings, train, len(seeds), len(unseen))


@contextmanager
def samples_of(settings: S, before: Before) -> Iterator[S]:
    """The settings, with sources that earlier steps will make replaced by files with a sample of them.

    Raises:
        SettingsError: an earlier step has no sample of what it will make.
    """
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:

        def there(name: str, source: str) -> str:
            if source not in before:
                return source
            sample = before[source].sample
            if sample is None:
                raise SettingsError(f"{name} {source}: nothing can be planned with what this step makes")
            file = Path(folder) / f"{source.removeprefix('@')}.parquet"
            pq.write_table(sample, file)
            return str(file)

        changes: dict[str, object] = {}
        for name in ("seeds", "validation", "inputs", "outputs"):
            value = getattr(settings, name, None)
            if isinstance(value, str):
                changes[name] = there(name, value)
            elif value:
                changes[name] = [there(name, each) for each in value]
        yield at_splits(settings.model_copy(update=changes), later=before)


def planned(settings: S, train: Train[S], seeds: int, unseen: int, reading: float = 0.0) -> Estimate:
    """Estimate the cost of a training from the steps and the evaluation of a short one.

    Args:
        settings: of the training.
        train: trains for ``settings.steps_of`` steps.
        seeds: number of training examples.
        unseen: number of validation examples.
        reading: seconds that reading the data took.
    """
    whole, rates = settings.steps_of(seeds), len(settings.learning_rate)

    def tried(steps: int, examples: int, looks: int) -> _Trial:
        changes = {
            "eval_steps": steps,
            "checkpoint_steps": steps,
            "learning_rate": settings.learning_rate[:1],
            "batch_size": examples,
        }
        watch, begun = _Steps(), time.monotonic()
        weights = train(settings.model_copy(update=changes).cut_to(steps), looks, watch)
        return _Trial([end - begun for end in watch.ends], watch.looked - watch.ends[-1], weights)

    examples, looked, waking = min(_SOME, settings.batch_size), min(_SOME, unseen), 1
    first = trial = tried(waking + 1, examples, looked)
    if first.step(waking) * settings.batch_size / examples < PATIENCE:
        examples, looked, waking = settings.batch_size, unseen, _WAKING
        trial = tried(waking + CALIBRATION_STEPS, examples, looked)
    # The first trial also loads libraries, which are loaded already for later learning rates.
    loading = trial.loading(waking)
    libraries = max(first.loading(1) - loading, 0.0)
    step = trial.step(waking) * settings.batch_size / examples
    look = trial.look * unseen / max(looked, 1)
    looks = 2 + whole // settings.eval_steps if unseen else 0
    checkpoints = min(_KEPT, whole // settings.checkpoint_steps)
    return Estimate(
        seconds=reading + libraries + rates * (whole * step + looks * look + loading),
        memory=peak_memory(),
        disk=trial.weights + _BESIDE_WEIGHTS,
        rows={},
        # 3: the weights and AdamW's two moments
        scratch=checkpoints * 3 * trial.weights + (rates if rates > 1 else 0) * trial.weights,
    )


class _Steps(Silent):
    """Records when each step of a training ended, and when its last evaluation did."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.looked = 0.0

    def draw(self, bar: Task) -> None:
        """A step has ended, or an evaluation before or after one."""
        if bar.label == TRAIN:
            self.looked = time.monotonic()
            if bar.done > len(self.ends):
                self.ends.append(self.looked)


@dataclass(frozen=True, slots=True)
class _Trial:
    """The timing of a short training, with an evaluation before and after.

    Attributes:
        ends: when each step ended, in seconds after the training began.
        look: seconds that an evaluation takes; 0 without validation data.
        weights: bytes of the weights.
    """

    ends: Sequence[float]
    look: float
    weights: int

    def step(self, waking: int) -> float:
        """Seconds that a step takes, without the first ``waking`` steps, which are for warming up."""
        return (self.ends[-1] - self.ends[waking - 1]) / (len(self.ends) - waking)

    def loading(self, waking: int) -> float:
        """Seconds before the first step, without the evaluation."""
        return max(self.ends[0] - self.step(waking) - self.look, 0.0)


def size_of_weights(model: nn.Module) -> int:
    """Bytes of a model's weights."""
    return sum(each.numel() * each.element_size() for each in model.state_dict().values())
