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

from pairsmith.core.errors import InputError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.dino.objectives import IN_BATCH, loss_of, training_rows
from pairsmith.methods.dino.options import EncoderOptions
from pairsmith.metrics.correlation import spearman
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import centre_vectors, save_sentence_encoder
from pairsmith.models.trained_on import fingerprint_of, read_trained_on, write_trained_on
from pairsmith.training.best_step import TrainerSetup, TrainingHistory, train_to_best_step
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.exclusive import exclusive_training
from pairsmith.training.quick import set_attention_dropout
from pairsmith.training.validation import cannot_choose


def train_encoder_on(
    encoder: SentenceTransformer,
    train: pa.Table,
    validation: pa.Table | None,
    options: EncoderOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainingHistory:
    """Train ``encoder`` in place on scored pairs, and leave it with the weights of its best step (D10).

    By default the loss is the mean squared difference between cosine similarity and score; the module
    ``objectives`` has the other losses. The best step is the one with the highest Spearman correlation on the
    validation pairs (see ``train_to_best_step``). The last step is kept if there are no validation pairs or
    if their scores are all equal. Both tables have the columns sentence1, sentence2 and score.
    """
    from datasets import Dataset

    shown = progress or Silent()
    check_pairs(train, "the training pairs")
    choosable = _check_selectable(validation, shown)
    rows = training_rows(train, options.objective, options.hard_negatives)
    if options.attention_dropout is not None:
        set_attention_dropout(encoder, options.attention_dropout)
    if options.centre:
        centre_vectors(encoder, train.column("sentence1").to_pylist() + train.column("sentence2").to_pylist())
    measure = partial(validation_spearman, encoder, validation, options.eval_batch_size)
    # A text that occurs twice in a batch would be its own negative.
    distinct = options.objective in IN_BATCH
    sampler = BatchSamplers.NO_DUPLICATES if distinct else BatchSamplers.BATCH_SAMPLER
    loss = loss_of(encoder, options.objective, options.scale)
    setup = TrainerSetup(
        steps=options.steps_of(rows.num_rows),
        rate=options.learning_rate,
        metric="spearman",
        measure=measure if choosable else None,
        make_arguments=partial(SentenceTransformerTrainingArguments, batch_sampler=sampler),
        make_trainer=partial(_Trainer, train_dataset=Dataset(rows), loss=loss),
    )
    with exclusive_training(str(encoder.device)):
        return train_to_best_step(encoder, options, setup, encoder.device.type, shown, checkpoints)


def save_encoder(
    encoder: SentenceTransformer, out: Path, card: str, pairs: pa.Table | None = None, base: str = ""
) -> None:
    """Save ``encoder`` and its model card in ``out``, so that ``SentenceTransformer(out)`` opens it.

    The fingerprints of the training ``pairs``, and the fingerprints that were saved with the model named
    ``base``, are written to ``trained-on.txt``.
    """
    save_sentence_encoder(encoder, out)
    (out / "README.md").write_text(card, encoding="utf-8")
    if pairs is not None:
        sides = (pairs[name].to_pylist() for name in ("sentence1", "sentence2"))
        learned = {fingerprint_of(*pair) for pair in zip(*sides, strict=True)}
        write_trained_on(out, learned | read_trained_on(base))


class _Trainer(SentenceTransformerTrainer):
    """The library's trainer without its model card, which queries the Hub; ours is written on saving."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no callback."""


def validation_spearman(encoder: SentenceTransformer, pairs: pa.Table, batch_size: int) -> float | None:
    """Spearman ×100 of cosine similarity and score (D10), -100 to 100.

    None where it is undefined, or a vector is not finite. ``pairs`` has the columns sentence1, sentence2 and
    score.
    """
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


def check_pairs(pairs: pa.Table, where: str) -> None:
    """Refuse pairs that no cosine can be fitted to: none at all, blank texts, scores outside [-1, 1]."""
    if pairs.num_rows == 0:
        raise InputError(f"{where}: no rows to train on")
    for name in ("sentence1", "sentence2"):
        kind = pairs.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(f"{where}: {name} must be text, the column holds {kind}")
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
            f"{where}: scores range from {low:g} to {high:g}; cosines are fitted to "
            "scores, so scale the scores to 0 … 1"
        )


def _check_selectable(validation: pa.Table | None, progress: Progress) -> bool:
    """Whether the validation pairs can choose the best step; if not, the progress says why."""
    if validation is None:
        progress.say("the data have no validation split to choose the best step by; the last step is kept")
        return False
    check_pairs(validation, "the validation pairs")
    scores = validation.column("score").to_numpy()
    if np.ptp(scores) > 0:
        return True
    progress.say(cannot_choose(len(scores), "Spearman needs two or more with different scores"))
    return False
