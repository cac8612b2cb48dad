"""What the few-shot trainings will cost: some steps and a look at validation data, carried over to all."""

import time
from collections.abc import Callable
from typing import TypeVar

from torch import nn

from pairsmith.modelfiles import pick_device
from pairsmith.records import read_examples, read_questions
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.training.biencoder import Surroundings, train_biencoder_on
from pairsmith.training.crossencoder import train_crossencoder_on
from pairsmith.training.examples import in_window
from pairsmith.training.reader import train_reader_on
from pairsmith.training.settings import (
    FitSettings,
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)
from pairsmith.training.summarizer import seeds_and_unseen, train_summarizer_on

CALIBRATION_STEPS = 4
_WAKING = 2
PATIENCE = 10.0
"""Seconds a step: of one that takes longer a part is tried, and carried over."""

_SOME = 2
"""Examples of that part; a bi-encoder tells one pair from another."""

_BESIDE_WEIGHTS = 300_000
"""About what a tokenizer, configuration, card and record take."""
_KEPT = 3
"""Checkpoints that lie on the disk at one time at most: two, and the next one until it is whole."""

S = TypeVar("S", bound=FitSettings)
Train = Callable[[S, int], int]
"""Trains with these settings and so many validation examples; gives the bytes of the weights."""


def plan_train_biencoder(settings: TrainBiencoderSettings, before: Before) -> Estimate:  # noqa: ARG001 - every plan's
    """Train a bi-encoder for some steps.

    Raises:
        UserError: as for ``train_biencoder``.
    """
    device = pick_device(settings.device)
    seeds = read_examples(settings.seeds, settings.kind)
    unseen = read_examples(settings.validation, settings.kind) if settings.validation else []
    begun = time.monotonic()
    around = Surroundings.of(settings)
    reading = time.monotonic() - begun

    def train(some: TrainBiencoderSettings, looks: int) -> int:
        model, _, _ = train_biencoder_on(seeds, unseen[:looks], around, some, device)
        return size_of_weights(model)

    return planned(settings, train, len(seeds), len(unseen), reading)


def plan_train_crossencoder(settings: TrainCrossencoderSettings, before: Before) -> Estimate:  # noqa: ARG001 - every plan's
    """Train a cross-encoder for some steps, with outputs of other seeds for those that a search would find.

    Raises:
        UserError: as for ``train_crossencoder``.
    """
    device = pick_device(settings.device)
    seeds = [in_window(each, settings.window) for each in read_examples(settings.seeds, settings.kind)]
    unseen = read_examples(settings.validation, settings.kind) if settings.validation else []

    def train(some: TrainCrossencoderSettings, looks: int) -> int:
        cross, _, _ = train_crossencoder_on(seeds, unseen[:looks], None, some, device)
        return size_of_weights(cross.model)

    return planned(settings, train, len(seeds), len(unseen))


def plan_train_reader(settings: TrainReaderSettings, before: Before) -> Estimate:  # noqa: ARG001 - every plan's
    """Train a reader for some steps, on the seeds.

    Raises:
        UserError: as for ``train_reader``.
    """
    device = pick_device(settings.device)
    seeds = list(read_questions(settings.seeds))
    unseen = list(read_questions(settings.validation)) if settings.validation else []

    def train(some: TrainReaderSettings, looks: int) -> int:
        return size_of_weights(train_reader_on(seeds, unseen[:looks], some, device).reader.model)

    return planned(settings, train, len(seeds), len(unseen))


def plan_train_summarizer(settings: TrainSummarizerSettings, before: Before) -> Estimate:  # noqa: ARG001 - every plan's
    """Train a summariser for some steps, on the seeds.

    Raises:
        UserError: as for ``train_summarizer``.
    """
    device = pick_device(settings.device)
    seeds, unseen = seeds_and_unseen(settings)

    def train(some: TrainSummarizerSettings, looks: int) -> int:
        found = train_summarizer_on(seeds, [], unseen[:looks], some, device)
        return size_of_weights(found[0].model)

    return planned(settings, train, len(seeds), len(unseen))


def planned(settings: S, train: Train[S], seeds: int, unseen: int, reading: float = 0.0) -> Estimate:
    """Time some steps, and a training with looks at validation data before and after.

    Args:
        settings: of the training.
        train: trains for ``settings.steps_of`` steps.
        seeds: examples that are trained on.
        unseen: validation examples.
        reading: seconds that reading took.
    """
    rate, whole = settings.learning_rate[:1], settings.steps_of(seeds)

    def timed(steps: int, examples: int, looks: int = 0) -> tuple[float, int]:
        changes = {
            "eval_steps": steps,
            "checkpoint_steps": steps,
            "learning_rate": rate,
            "batch_size": examples,
        }
        begun = time.monotonic()
        size = train(settings.model_copy(update=changes).cut_to(steps), looks)
        return time.monotonic() - begun, size

    examples, looked, before = min(_SOME, settings.batch_size), min(_SOME, unseen), 1
    first, weights = timed(before, examples)
    # The first loads libraries, too, which is little beside steps as long as these.
    short = first if first > 10 * PATIENCE else timed(before, examples)[0]
    step = (timed(before + 1, examples)[0] - short) * settings.batch_size / examples
    if step < PATIENCE:
        examples, looked, before = settings.batch_size, unseen, _WAKING
        short, _ = timed(before, examples)
        step = (timed(before + CALIBRATION_STEPS, examples)[0] - short) / CALIBRATION_STEPS
    step = max(step, 0.0)
    loading = max(short - before * step * examples / settings.batch_size, 0.0)
    look = max(timed(before, examples, looked)[0] - short, 0.0) / 2 * unseen / looked if unseen else 0.0
    looks = 2 + whole // settings.eval_steps if unseen else 0
    rates = len(settings.learning_rate)
    checkpoints = min(_KEPT, whole // settings.checkpoint_steps)
    return Estimate(
        seconds=reading + first + rates * (whole * step + looks * look + loading),
        memory=peak_memory(),
        disk=weights + _BESIDE_WEIGHTS,
        rows={},
        scratch=checkpoints * 3 * weights + (rates if rates > 1 else 0) * weights,  # 3: AdamW's two moments
    )


def size_of_weights(model: nn.Module) -> int:
    """Bytes of a model's weights."""
    return sum(each.numel() * each.element_size() for each in model.state_dict().values())
