"""Training of a model that computes its own loss, on rows that are made anew in each epoch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_model, save_model
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs.seeds import generator
from pairsmith.training.best_step import TrainerSetup, TrainingHistory, ValidationMeasure, train_to_best_step
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.exclusive import exclusive_training
from pairsmith.training.options import FitOptions
from pairsmith.training.quick import set_attention_dropout

T = TypeVar("T")
MakeRow = Callable[[int, int, np.random.Generator], T]
"""Makes the row of an example in an epoch, both counted from 0, with a random generator for its draws."""
Order = Callable[[int], NDArray[np.int64]]
"""Returns the order of the examples in an epoch, which is counted from 0."""
Collate = Callable[[Sequence[T]], Mapping[str, Any]]
"""Turns a batch of rows into the keyword arguments of the model."""

_WEIGHTS = "model.safetensors"


def same_rows(rows: Sequence[T]) -> MakeRow[T]:
    """The function that returns the same row of an example in every epoch."""
    return lambda example, epoch, rng: rows[example]  # noqa: ARG005 - the signature of MakeRow


@dataclass(eq=False)
class EpochRows(Dataset[T], Generic[T]):
    """The rows of a training: all examples, epoch after epoch, each epoch in another order.

    A row depends only on the seed, the epoch and the example. A training that resumes from a checkpoint thus
    sees the same rows as one that was never stopped.
    """

    examples: int
    rows: int
    make_row: MakeRow[T]
    order: Order
    seed: int
    orders: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """The order of the current epoch, by the number of the epoch."""

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> T:
        epoch, position = divmod(index, self.examples)
        if epoch not in self.orders:
            self.orders = {epoch: self.order(epoch)}
        example = int(self.orders[epoch][position])
        return self.make_row(example, epoch, generator(self.seed, "row", epoch, example))


class _Trainer(Trainer):
    """The library's trainer, which takes the rows in their order and saves any module, also tied weights."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset or self.train_dataset)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002 - the trainer's signature
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_model(model or self.model, str(Path(resume_from_checkpoint) / _WEIGHTS))


@dataclass(frozen=True, slots=True)
class TrainingTask(Generic[T]):
    """What a model is trained on, and how its best step is chosen.

    Attributes:
        examples: number of examples, at least 1.
        make_row: makes the training row of an example.
        collate: makes the model's arguments of a batch of rows.
        measure: computes the validation figure that chooses the best step; None: the last step is kept.
        metric: name of this figure.
        order: the order of the examples in an epoch; None: a random one.
    """

    examples: int
    make_row: MakeRow[T]
    collate: Collate[T]
    measure: ValidationMeasure | None
    metric: str
    order: Order | None = None


M = TypeVar("M", bound=nn.Module)
Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class TrainedModel(Generic[Model]):
    """A model with the weights of its best step at the best learning rate.

    ``history`` says how the training went at that rate, and has the validation figures of all rates.
    """

    model: Model
    learning_rate: float
    history: TrainingHistory


def train_at_each_rate(
    make: Callable[[], tuple[M, TrainingTask[T]]],
    options: FitOptions,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel[M]:
    """Train a model at each learning rate, and keep the one with the highest validation figure (M9).

    ``make`` makes an untrained model and its task. The model is called with the keyword arguments that
    ``collate`` returns, and returns a mapping with ``loss``. Of several equally good rates, the first one is
    kept.
    """

    def figure(history: TrainingHistory) -> float:
        return -math.inf if history.best is None else history.best

    shown, rates = progress or Silent(), options.learning_rate
    best: TrainedModel[M] | None = None
    curves: dict[float, dict[int, float | None]] = {}
    measured = True
    with exclusive_training(pick_device(options.device)):
        for number, rate in enumerate(rates):
            model, task = make()
            measured = task.measure is not None
            if number == 0 and len(rates) > 1 and not measured:
                shown.say(
                    f"without validation examples the first of the {len(rates)} learning rates is kept, "
                    "however well the others do"
                )
            if options.attention_dropout is not None:
                set_attention_dropout(model, options.attention_dropout)
            kept = checkpoints.part(f"rate-{number}", f"lr-{rate:g}") if checkpoints else None
            history = _fit(model, task, options, rate, shown, kept)
            del task  # frees its rows: memory may not hold the rows of two rates
            if len(rates) > 1:
                shown.say(f"learning rate {rate:g}: {history}")
                curves[rate] = history.validation
            if best is None or figure(history) > figure(best.history):
                best = TrainedModel(model, rate, history)
    assert best is not None  # there is at least one rate
    if len(rates) > 1 and measured and best.history.best is None:
        shown.say(
            "no validation figure to choose a learning rate by; the first one, "
            f"{best.learning_rate:g}, is kept"
        )
    return replace(best, history=replace(best.history, rates=curves))


def _fit(
    model: nn.Module,
    task: TrainingTask[T],
    options: FitOptions,
    rate: float,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> TrainingHistory:
    """Train ``model`` in place at one learning rate."""
    steps = options.steps_of(task.examples)

    def shuffled(epoch: int) -> NDArray[np.int64]:
        return generator(options.seed, "order", epoch).permutation(task.examples)

    count = steps * options.batch_size
    rows = EpochRows(task.examples, count, task.make_row, task.order or shuffled, options.seed)
    setup = TrainerSetup(
        steps=steps,
        rate=rate,
        metric=task.metric,
        measure=task.measure,
        make_arguments=partial(TrainingArguments, remove_unused_columns=False),
        make_trainer=partial(_Trainer, train_dataset=rows, data_collator=task.collate),
        workers=options.loader_workers,
        # With several learning rates the result of each is kept until the best one is saved.
        keep_end=len(options.learning_rate) > 1,
    )
    return train_to_best_step(model, options, setup, pick_device(options.device), progress, checkpoints)
