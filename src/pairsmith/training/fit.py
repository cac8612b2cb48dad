"""Training of a model that computes its own loss, on batches drawn anew in each pass over the examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from safetensors.torch import load_model, save_model
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainingArguments

from pairsmith.progress import Progress
from pairsmith.runs.seeds import generator
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.settings import FitSettings
from pairsmith.training.watch import Measure, Training, watched

T = TypeVar("T")
Draw = Callable[[int, np.random.Generator], T]
"""Makes a row of example number i, with chance from a generator of its own, such as its negatives."""
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
        return self._draw(example, generator(self._seed, "row", number, example))


class _Trainer(Trainer):
    """The library's trainer for any module, tied weights included, which takes the rows in their order."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset or self.train_dataset)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_model(model or self.model, str(Path(resume_from_checkpoint) / _WEIGHTS))


def fit(
    model: nn.Module,
    examples: int,
    draw: Draw[T],
    collate: Collate[T],
    settings: FitSettings,
    *,
    metric: str,
    measure: Measure | None,
    learning_rate: float,
    device: str,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    keep_end: bool = False,
) -> Training:
    """Train ``model`` in place for ``settings.steps`` steps and leave it with the weights of its best step.

    The learning rate rises linearly over the warm-up and falls linearly to 0.

    Args:
        model: called with what ``collate`` makes, by name; gives a mapping with ``loss``.
        examples: how many there are; at least 1.
        draw: makes an example's row, anew in each pass.
        collate: makes a batch of rows.
        settings: of the training.
        metric: what ``measure`` measures, in a word.
        measure: the figure by which the best step is chosen; without it the last is kept.
        learning_rate: the highest.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: where to show it.
        checkpoints: where one is kept every ``checkpoint_steps``; the training goes on from the last one
            there, to the same weights.
        keep_end: keep one of the end too, as more trainings follow before the model is saved.

    Raises:
        ModelError: the training diverged.
        StorageError: a checkpoint cannot be written.
    """
    rows = Passes(examples, settings.steps * settings.batch_size, draw, settings.seed)

    def make(folder: Path) -> Trainer:
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=learning_rate,
            weight_decay=settings.weight_decay,
            lr_scheduler_type="linear",
            warmup_steps=math.ceil(settings.warmup * settings.steps),
            seed=settings.seed,
            use_cpu=device == "cpu",
            bf16=settings.dtype == "bfloat16",
            dataloader_pin_memory=device == "cuda",
            remove_unused_columns=False,
            save_strategy="steps",
            save_steps=settings.checkpoint_steps,
            save_total_limit=2,
            eval_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        # With several GPUs the library would give each of them a batch, which is another batch size.
        arguments._n_gpu = min(1, arguments.n_gpu)
        trainer = _Trainer(
            model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=[watch]
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    with watched(model, metric, measure, settings.steps, settings, progress, checkpoints) as watch:
        watch.run(make, keep_end=keep_end)
    model.eval()
    return watch.training


M = TypeVar("M", bound=nn.Module)


def best_of_rates(
    make: Callable[[], M],
    train: Callable[[M, float, Checkpoints | None], Training],
    rates: Sequence[float],
    checkpoints: Checkpoints | None,
    progress: Progress,
) -> tuple[M, float, Training]:
    """Train once for each learning rate, and keep the model with the highest validation figure (M9).

    Returns:
        the model, its learning rate and how its training went; the first among equals.
    """

    def figure(training: Training) -> float:
        return -math.inf if training.best is None else training.best

    best: tuple[M, float, Training] | None = None
    for number, rate in enumerate(rates):
        model = make()
        training = train(model, rate, checkpoints.part(f"rate-{number}") if checkpoints else None)
        if len(rates) > 1:
            progress.say(f"learning rate {rate:g}: {training}")
        if best is None or figure(training) > figure(best[2]):
            best = (model, rate, training)
    assert best is not None  # there is at least one rate
    if len(rates) > 1 and best[2].best is None:
        progress.say(f"nothing tells the learning rates apart; {best[1]:g}, the first, is kept")
    return best
