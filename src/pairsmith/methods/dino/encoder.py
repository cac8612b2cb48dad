"""Training a sentence encoder on scored pairs, with the paper's objective (D10) or others."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers
from transformers import PrinterCallback

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_dtype, quiet_loading
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.dino.objectives import IN_BATCH, loss_of, training_rows
from pairsmith.metrics.correlation import spearman
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import centre_vectors, load_sentence_encoder
from pairsmith.training.best_step import BestStepCallback, Measure, TrainingHistory, best_step_kept
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.dropout import set_attention_dropout
from pairsmith.training.encoder_settings import TrainEncoderSettings
from pairsmith.training.logs import steps_between
from pairsmith.training.processor import quick_training


def base_encoder(settings: TrainEncoderSettings) -> SentenceTransformer:
    """Load the base with the layers and the attention that the settings ask for.

    Errors as for ``load_sentence_encoder``.
    """
    return load_sentence_encoder(
        settings.base,
        pooling=settings.pooling,
        device=settings.device,
        max_length=settings.max_length,
        layers=settings.layers,
        bidirectional=settings.attention == "bidirectional",
    )


def train_encoder_on(
    encoder: SentenceTransformer,
    train: pa.Table,
    validation: pa.Table | None,
    settings: TrainEncoderSettings,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainingHistory:
    """Train ``encoder`` in place on scored pairs, and leave it with the weights of its best step (D10).

    By default the loss is the mean squared difference between cosine similarity and score; the module
    ``objectives`` has the other losses. The learning rate rises linearly over the warm-up and falls linearly
    to 0. Spearman's correlation on the validation pairs is measured every ``eval_steps`` steps and after the
    last one, and the weights of the best of these steps are kept, the earliest if several are equal. The
    untrained encoder is evaluated too, but its weights are never kept.

    Args:
        encoder: what to train.
        train: columns sentence1, sentence2, score.
        validation: the same columns; without it, or with scores that are all equal, the last step is kept.
        settings: ``base`` and ``data`` are not read here.
        progress: where progress is shown; nowhere if not given.
        checkpoints: where one is kept every ``checkpoint_steps``; the training resumes from the latest
            one there and ends with the same weights. None are kept if not given.
    """
    shown = progress or Silent()
    check_pairs(train, "the training pairs")
    choosable = _check_selectable(validation, shown)
    rows = training_rows(train, settings.objective, settings.hard_negatives)
    total = total_steps(rows.num_rows, settings)
    if settings.attention_dropout is not None:
        set_attention_dropout(encoder, settings.attention_dropout)
    if settings.centre:
        centre_vectors(encoder, train.column("sentence1").to_pylist() + train.column("sentence2").to_pylist())
    with quick_training(encoder, encoder.device.type) as as_usual:
        measure: Measure | None = None
        if choosable:
            look = partial(validation_spearman, encoder, validation, settings.eval_batch_size)
            measure = partial(as_usual, look)
        with best_step_kept(encoder, "spearman", measure, total, settings, shown, checkpoints) as watch:
            watch.run(lambda folder: _trainer(encoder, rows, settings, total, folder, watch))
    encoder.eval()
    return watch.training


def total_steps(rows: int, settings: TrainEncoderSettings) -> int:
    """The number of steps in ``epochs`` passes over ``rows`` pairs, or ``max_steps`` if that is fewer."""
    steps = max(1, math.ceil(settings.epochs * math.ceil(rows / settings.batch_size)))
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def save_encoder(encoder: SentenceTransformer, out: Path, card: str) -> None:
    """Save ``encoder`` and its model card in ``out``, so that ``SentenceTransformer(out)`` opens it."""
    with quiet_loading():
        encoder.save(str(out), create_model_card=False)
    (out / "README.md").write_text(card, encoding="utf-8")


class _Trainer(SentenceTransformerTrainer):
    """The library's trainer without its model card, which queries the Hub; ours is written on saving."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no callback."""


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
    watch: BestStepCallback,
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
        bf16=pick_dtype(settings.dtype, encoder.device.type) == "bfloat16",
        # A text that occurs twice in a batch would be its own negative.
        batch_sampler=(
            BatchSamplers.NO_DUPLICATES if settings.objective in IN_BATCH else BatchSamplers.BATCH_SAMPLER
        ),
        # Pinned memory speeds up copies to a CUDA device and only warns elsewhere.
        dataloader_pin_memory=encoder.device.type == "cuda",
        save_strategy="steps",
        save_steps=settings.checkpoint_steps,
        save_total_limit=2,
        eval_strategy="no",
        logging_strategy="steps" if settings.tensorboard else "no",
        logging_steps=steps_between(total),
        report_to="none",
        disable_tqdm=True,
    )
    # With several GPUs the library would give each of them a batch, which multiplies the batch size.
    arguments._n_gpu = min(1, arguments.n_gpu)
    trainer = _Trainer(
        model=encoder,
        args=arguments,
        train_dataset=Dataset(train),
        loss=loss_of(encoder, settings.objective, settings.scale),
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def check_pairs(pairs: pa.Table, where: str) -> None:
    """Refuse pairs that no cosine can be fitted to: none at all, blank texts, scores outside [-1, 1]."""
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
            f"{where}: scores range from {low:g} to {high:g}; cosines are fitted to them, "
            "so scale them to 0 … 1"
        )


def _check_selectable(validation: pa.Table | None, progress: Progress) -> bool:
    """Whether the best step can be chosen by the validation pairs; if not, say why."""
    if validation is None:
        progress.say("the data have no validation split to choose the best step by; the last step is kept")
        return False
    check_pairs(validation, "the validation pairs")
    scores = validation.column("score").to_numpy()
    if np.ptp(scores) > 0:
        return True
    progress.say(
        "the validation pairs all have the same score, so they cannot choose a step; the last one is kept"
    )
    return False
