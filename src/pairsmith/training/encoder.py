"""Training a sentence encoder on scored pairs (D10)."""

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from transformers import PrinterCallback, TrainerCallback

from pairsmith.encoders.correlation import spearman
from pairsmith.encoders.sentence import encode_texts, load_sentence_encoder
from pairsmith.encoders.similarity import cosine_similarity_rows
from pairsmith.errors import InputError, ModelError, StorageError, first_line
from pairsmith.modelfiles import pick_device, quiet_loading
from pairsmith.modelnames import model_revision
from pairsmith.places import Place
from pairsmith.progress import Progress, Silent, Task
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source
from pairsmith.training.card import encoder_card
from pairsmith.training.checkpoints import Checkpoints, Found
from pairsmith.training.folder import ModelFolder
from pairsmith.training.settings import TrainEncoderSettings

STEP = "train-encoder"
_COLUMNS = ("sentence1", "sentence2", "score")
# The data count by their content. The rest says where and how fast, not what.
_NOT_IN_WEIGHTS = {"data", "device", "eval_batch_size", "checkpoint_steps"}


@dataclass(frozen=True, slots=True)
class EncoderTraining:
    """How a training went.

    Attributes:
        steps: steps made.
        best_step: the step whose weights were kept: that of the highest validation figure, or the last.
        validation: Spearman ×100 on the validation pairs at each step looked at, 0 being the untrained
            start; None where it is undefined (all similarities equal). Empty without validation pairs.
        seconds: time the training took, validation included, up to a stop the time until its checkpoint.
    """

    steps: int
    best_step: int
    validation: dict[int, float | None]
    seconds: float

    def __str__(self) -> str:
        """In words: the step that was kept, and its validation figure where there is one."""
        figure = self.validation.get(self.best_step)
        if figure is None:
            return f"the last of {self.steps:,} steps"
        return f"best step {self.best_step:,} of {self.steps:,}, validation Spearman {figure:.1f}"

    def to_json(self) -> dict[str, Any]:
        """The part of ``training.json`` that tells how the training went."""
        curve = [
            {"step": step, "spearman": None if figure is None else round(figure, 4)}
            for step, figure in self.validation.items()
        ]
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "validation": curve,
            "seconds": round(self.seconds, 2),
        }


def train_encoder(settings: TrainEncoderSettings, run: Run) -> Place:
    """Train an encoder on a dataset folder, and save it in the run's folder.

    The folder opens with ``SentenceTransformer(DIR)``; ``training.json`` in it, written last, says how
    the training went. A folder that holds the finished work of the same settings is left as it is.

    Returns:
        The run's folder.

    Raises:
        FolderError: the data is no dataset folder, or the run's folder holds something else.
        InputError: the data are no scored pairs, or their scores lie outside [-1, 1].
        ModelError: the base cannot be loaded, or the training diverged.
        SettingsError: there is no such device.
        StorageError: the model cannot be written.
    """
    pick_device(settings.device)
    refuse_source(run, data=settings.data, base=settings.base)
    data = DatasetFolder.open(settings.data)
    train = scored_pairs(data, "train")
    validation = scored_pairs(data, "validation") if "validation" in data.splits else None
    folder = ModelFolder.start(
        run,
        step=STEP,
        settings=settings.model_dump(mode="json", exclude=_NOT_IN_WEIGHTS),
        inputs={"data": hash_source(data.path)},
        models={"base": model_revision(settings.base)},
    )
    if folder.finished:
        run.progress.say(f"{run.out}: trained before with these settings; nothing to do")
        return run.out
    encoder = load_sentence_encoder(
        settings.base, pooling=settings.pooling, device=settings.device, max_length=settings.max_length
    )
    training = train_encoder_on(
        encoder, train, validation, settings, progress=run.progress, checkpoints=folder.checkpoints
    )
    card = encoder_card(settings, data, training.to_json())
    folder.finish(lambda out: save_encoder(encoder, out, card), training.to_json())
    run.progress.say(f"wrote {run.out}: {training}")
    return run.out


def train_encoder_on(
    encoder: SentenceTransformer,
    train: pa.Table,
    validation: pa.Table | None,
    settings: TrainEncoderSettings,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> EncoderTraining:
    """Train ``encoder`` in place on scored pairs, and leave it with the weights of its best step (D10).

    The mean squared difference of cosine similarity and score is minimised. The learning rate rises
    linearly over the warm-up and falls linearly to 0. Spearman's correlation on the validation pairs is
    taken every ``eval_steps`` steps and after the last one, and the best of these is kept, the earliest
    among equals; the untrained start is measured too, but it is no candidate.

    Args:
        encoder: what to train.
        train: columns sentence1, sentence2, score.
        validation: the same columns; without it, or with scores that are all equal, the last step is kept.
        settings: ``base`` and ``data`` are not looked at here.
        progress: where to show it; nowhere if not given.
        checkpoints: where one is kept every ``checkpoint_steps``; the training goes on from the last
            one there, to the same weights. Without it there are none.

    Raises:
        InputError: a table is not of that kind.
        ModelError: the training diverged.
        StorageError: a checkpoint cannot be written.
    """
    shown = progress or Silent()
    _check_pairs(train, "the training pairs")
    choosable = _check_selectable(validation, shown)
    total = total_steps(train.num_rows, settings)
    with shown.task("train", total, "steps") as bar:
        watch = _Watch(encoder, validation if choosable else None, settings, bar, checkpoints)
        with tempfile.TemporaryDirectory(prefix="pairsmith-") as scratch:
            start = checkpoints.latest(total) if checkpoints else None
            folder = checkpoints.folder if checkpoints else Path(scratch)
            trainer = _trainer(encoder, train, settings, total, folder, watch)
            if checkpoints is None:
                trainer.args.save_strategy = "no"
            if start:
                path, found = start
                watch.restore(found)
                bar.skip(int(path.name.partition("-")[2]))
                shown.say(f"going on from {path.name}")
            else:
                watch.look(0)
            with quiet_loading(), _checkpoint_errors(checkpoints):
                trainer.train(resume_from_checkpoint=str(start[0]) if start else None)
        watch.close(total)
    _check_finite(encoder)
    encoder.eval()
    return EncoderTraining(total, watch.best_step, watch.curve, watch.seconds)


@contextmanager
def _checkpoint_errors(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Turn what the trainer raises where a checkpoint cannot be written into a ``StorageError``."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        writing = isinstance(error, OSError | SafetensorError) or "PytorchStreamWriter" in str(error)
        if checkpoints is None or not writing:
            raise
        raise StorageError(
            f"cannot write a checkpoint to {checkpoints.folder}: {first_line(error)}; put that right and "
            "run the same command again, it goes on from the last one"
        ) from error


def total_steps(rows: int, settings: TrainEncoderSettings) -> int:
    """Steps that ``epochs`` times ``rows`` pairs make, or ``max_steps`` if that is fewer."""
    steps = max(1, math.ceil(settings.epochs * math.ceil(rows / settings.batch_size)))
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def scored_pairs(data: DatasetFolder, split: str) -> pa.Table:
    """The pairs of a split: columns sentence1, sentence2, score.

    Raises:
        InputError: the folder holds something other than scored pairs, or the split no rows.
    """
    table = data.table(split)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        found = ", ".join(table.column_names)
        hint = "; labels must be numbers to train on" if "label" in table.column_names else ""
        raise InputError(
            f"{data.path}: training an encoder needs the columns sentence1, sentence2, score; "
            f"found {found}{hint}"
        )
    pairs = table.select(list(_COLUMNS))
    _check_pairs(pairs, f"{data.path}, split {split}")
    return pairs


def save_encoder(encoder: SentenceTransformer, out: Path, card: str) -> None:
    """Save ``encoder`` and its model card in ``out``, so that ``SentenceTransformer(out)`` opens it."""
    with quiet_loading():
        encoder.save(str(out), create_model_card=False)
    (out / "README.md").write_text(card, encoding="utf-8")


class _Trainer(SentenceTransformerTrainer):
    """The library's trainer without its model card, which asks the Hub; ours is written on saving."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none."""


class _Watch(TrainerCallback):
    """Draws the progress, measures on the validation pairs, and remembers the best weights."""

    def __init__(
        self,
        encoder: SentenceTransformer,
        validation: pa.Table | None,
        settings: TrainEncoderSettings,
        bar: Task,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._checkpoints = checkpoints
        self.curve: dict[int, float | None] = {}
        self.best_step = 0
        self._encoder = encoder
        self._validation = validation
        self._settings = settings
        self._bar = bar
        self._best = float("-inf")
        self._best_weights: dict[str, torch.Tensor] = {}
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the training has taken, with what came before the checkpoint that it went on from."""
        return time.monotonic() - self._started

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's
        """After each step: count it, and look at the validation pairs when it is time."""
        self._bar.advance()
        if state.global_step >= state.max_steps:
            control.should_save = False  # nothing would go on from the last step
        if state.global_step % self._settings.eval_steps == 0:
            self.look(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the trainer's
        """After a checkpoint was written: add what was found so far."""
        best = None if math.isinf(self._best) else self._best
        if self._checkpoints is not None:
            found = Found(self.curve, self.best_step, best, self._best_weights, self.seconds)
            self._checkpoints.seal(state.global_step, found)

    def restore(self, found: Found) -> None:
        """Know again what had been found by a checkpoint."""
        self.curve, self.best_step = dict(found.curve), found.best_step
        self._best = float("-inf") if found.best is None else found.best
        self._started = time.monotonic() - found.seconds
        self._best_weights = dict(found.best_weights)

    def look(self, step: int) -> None:
        """Measure the weights as they are after ``step``, once; keep a copy of the best."""
        if self._validation is None or step in self.curve:
            return
        was_training = self._encoder.training
        figure = validation_spearman(self._encoder, self._validation, self._settings.eval_batch_size)
        self._encoder.train(was_training)
        self.curve[step] = figure
        if figure is not None:
            self._bar.note = f"validation {figure:.2f}"
        if step > 0 and figure is not None and figure > self._best:
            self._best, self.best_step = figure, step
            weights = self._encoder.state_dict()
            self._best_weights = {name: value.detach().cpu().clone() for name, value in weights.items()}

    def close(self, step: int) -> None:
        """After the last step: measure it too, and put the best weights back."""
        self.look(step)
        if self._best_weights and self.best_step != step:
            self._encoder.load_state_dict(self._best_weights)
        if not self._best_weights:
            self.best_step = step


def validation_spearman(encoder: SentenceTransformer, pairs: pa.Table, batch_size: int) -> float | None:
    """Spearman ×100 of cosine similarity and score; None where it is undefined, or a vector is not finite."""
    first, second = (pairs.column(name).to_pylist() for name in ("sentence1", "sentence2"))
    texts = sorted({*first, *second})
    rows = {text: row for row, text in enumerate(texts)}
    vectors = encode_texts(encoder, texts, batch_size=batch_size)
    if not np.isfinite(vectors).all():
        return None
    cosines = cosine_similarity_rows(
        vectors[[rows[text] for text in first]], vectors[[rows[text] for text in second]]
    )
    figure = spearman(cosines, pairs.column("score").to_numpy())
    return None if math.isnan(figure) else 100.0 * figure


def _trainer(
    encoder: SentenceTransformer,
    train: pa.Table,
    settings: TrainEncoderSettings,
    total: int,
    scratch: Path,
    watch: _Watch,
) -> Any:
    from datasets import Dataset

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(scratch),
        max_steps=total,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        lr_scheduler_type="linear",
        warmup_steps=math.ceil(settings.warmup * total),
        seed=settings.seed,
        use_cpu=encoder.device.type == "cpu",
        bf16=settings.dtype == "bfloat16",
        # Pinned memory speeds up copies to a CUDA device and only warns elsewhere.
        dataloader_pin_memory=encoder.device.type == "cuda",
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
        model=encoder,
        args=arguments,
        train_dataset=Dataset(train),
        loss=CosineSimilarityLoss(encoder),
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _check_pairs(pairs: pa.Table, where: str) -> None:
    if pairs.num_rows == 0:
        raise InputError(f"{where}: no rows to train on")
    for name in ("sentence1", "sentence2"):
        blank = sum(1 for text in pairs.column(name).to_pylist() if not (text or "").strip())
        if blank:
            raise InputError(
                f"{where}: {blank} of {pairs.num_rows} rows have a blank {name}; drop them first"
            )
    kind = pairs.schema.field("score").type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"{where}: scores must be numbers, the column holds {kind}")
    scores = pairs.column("score").to_numpy().astype(np.float64)
    if not np.isfinite(scores).all():
        raise InputError(
            f"{where}: {np.sum(~np.isfinite(scores))} of {len(scores)} rows have no finite score"
        )
    low, high = scores.min(), scores.max()
    if low < -1 or high > 1:
        raise InputError(
            f"{where}: scores lie in {low:g} … {high:g}; a cosine is regressed on them, "
            "so scale them to 0 … 1"
        )


def _check_selectable(validation: pa.Table | None, progress: Progress) -> bool:
    """Whether there are validation pairs that can tell one step from another; if not, say so."""
    if validation is None:
        progress.say(
            "the data have no validation split, so no step can be chosen by it; the last one is kept"
        )
        return False
    _check_pairs(validation, "the validation pairs")
    scores = validation.column("score").to_numpy()
    if np.ptp(scores) > 0:
        return True
    progress.say(
        "the validation pairs all have one score, so no step can be chosen by them; the last one is kept"
    )
    return False


def _check_finite(encoder: SentenceTransformer) -> None:
    if not all(torch.isfinite(weight).all() for weight in encoder.parameters()):
        raise ModelError("the training diverged: weights are no longer finite; try a lower learning rate")
