"""Training of a model that computes its own loss, on batches drawn anew in each pass over the examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from safetensors.torch import load_model, save_model
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainingArguments

from pairsmith.modelfiles import pick_dtype
from pairsmith.progress import Progress, Silent
from pairsmith.runs.seeds import generator
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.dropout import set_attention_dropout
from pairsmith.training.logs import steps_between
from pairsmith.training.processor import quick_training
from pairsmith.training.settings import FitSettings
from pairsmith.training.watch import Measure, Training, watched

T = TypeVar("T")
Draw = Callable[[int, int, np.random.Generator], T]
"""Makes a row of example number i in pass n, from 0, with chance from a generator, such as its negatives."""
Collate = Callable[[Sequence[T]], Mapping[str, Any]]
"""Makes what the model is called with out of a batch's rows."""

_WEIGHTS = "model.safetensors"


class Passes(Dataset[T], Generic[T]):
    """The rows of a training in their order: all examples shuffled, then all shuffled otherwise, and so on.

    A row depends on the seed, the pass and the example alone, so a training that goes on from a
    checkpoint sees the rows that it would have seen.
    """

    def __init__(self, examples: int, rows: int, draw: Draw[T], seed: int) -> None:
        self._examples = examples
        self._rows = rows
        self._draw = draw
        self._seed = seed
        self._order: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, place: int) -> T:
        number, place = divmod(place, self._examples)
        if number not in self._order:
            self._order = {
                number: generator(self._seed, "order", number).permutation(self._examples).tolist()
            }
        example = self._order[number][place]
        return self._draw(example, number, generator(self._seed, "row", number, example))


class _Trainer(Trainer):
    """The library's trainer for any module, tied weights included, which takes the rows in their order."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset or self.train_dataset)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002 - the trainer's
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_model(model or self.model, str(Path(resume_from_checkpoint) / _WEIGHTS))


@dataclass(frozen=True, slots=True)
class Lesson(Generic[T]):
    """What a model is trained on.

    Attributes:
        examples: how many there are; at least 1.
        draw: makes an example's row, anew in each pass.
        collate: makes a batch of rows.
        measure: the figure by which the best step is chosen; without it the last is kept.
    """

    examples: int
    draw: Draw[T]
    collate: Collate[T]
    measure: Measure | None


M = TypeVar("M", bound=nn.Module)


def fit_each_rate(
    make: Callable[[], M],
    lesson: Callable[[M], Lesson[T]],
    settings: FitSettings,
    *,
    metric: str,
    device: str,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[M, float, Training]:
    """Train a model for each learning rate, and keep the one with the highest validation figure (M9).

    Args:
        make: makes a model, to be called with what ``collate`` makes, by name; it gives a mapping with
            ``loss``.
        lesson: what a model is trained on.
        settings: of the training.
        metric: what is measured, in a word.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: where to show it; nowhere if not given.
        checkpoints: where one is kept every ``checkpoint_steps``; the training goes on from the last one
            there, to the same weights.

    Returns:
        the model with the weights of its best step, its learning rate and how its training went, with the
        curves of all rates; the first among equals.

    Raises:
        ModelError: a training diverged.
        SettingsError: the model has no such dropout as the settings set.
        StorageError: a checkpoint cannot be written.
    """

    def figure(training: Training) -> float:
        return -math.inf if training.best is None else training.best

    shown, rates = progress or Silent(), settings.learning_rate
    best: tuple[M, float, Training] | None = None
    curves: dict[float, dict[int, float | None]] = {}
    for number, rate in enumerate(rates):
        model = make()
        if settings.attention_dropout is not None:
            set_attention_dropout(model, settings.attention_dropout)
        kept = checkpoints.part(f"rate-{number}", f"lr-{rate:g}") if checkpoints else None
        training = _fit(model, lesson(model), settings, metric, rate, device, shown, kept)
        if len(rates) > 1:
            shown.say(f"learning rate {rate:g}: {training}")
            curves[rate] = training.validation
        if best is None or figure(training) > figure(best[2]):
            best = (model, rate, training)
    assert best is not None  # there is at least one rate
    model, rate, training = best
    if len(rates) > 1 and training.best is None:
        shown.say(f"nothing tells the learning rates apart; {rate:g}, the first, is kept")
    return model, rate, replace(training, rates=curves)


def _fit(
    model: nn.Module,
    lesson: Lesson[T],
    settings: FitSettings,
    metric: str,
    learning_rate: float,
    device: str,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Training:
    """Train ``model`` in place, and leave it with the weights of its best step.

    The learning rate rises linearly over the warm-up and falls linearly to 0.
    """
    steps = settings.steps_of(lesson.examples)
    rows = Passes(lesson.examples, steps * settings.batch_size, lesson.draw, settings.seed)

    def make(folder: Path) -> Trainer:
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=learning_rate,
            weight_decay=settings.weight_decay,
            lr_scheduler_type="linear",
            warmup_steps=math.ceil(settings.warmup * steps),
            seed=settings.seed,
            use_cpu=device == "cpu",
            bf16=pick_dtype(settings.dtype, device) == "bfloat16",
            dataloader_pin_memory=device == "cuda",
            remove_unused_columns=False,
            save_strategy="steps",
            save_steps=settings.checkpoint_steps,
            save_total_limit=2,
            eval_strategy="no",
            logging_strategy="steps" if settings.tensorboard else "no",
            logging_steps=steps_between(steps),
            report_to="none",
            disable_tqdm=True,
        )
        # With several GPUs the library would give each of them a batch, which is another batch size.
        arguments._n_gpu = min(1, arguments.n_gpu)
        trainer = _Trainer(
            model=model, args=arguments, train_dataset=rows, data_collator=lesson.collate, callbacks=[watch]
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    with (
        quick_training(model, device) as as_usual,
        watched(
            model,
            metric,
            partial(as_usual, lesson.measure) if lesson.measure else None,
            steps,
            settings,
            progress,
            checkpoints,
        ) as watch,
    ):
        # Of several trainings each is kept until the best of them is saved.
        watch.run(make, keep_end=len(settings.learning_rate) > 1)
    model.eval()
    return watch.training
