"""The cost of ``train-encoder``, extrapolated from some steps and one evaluation."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pairsmith.methods.dino.encoder import total_steps, train_encoder_on, validation_spearman
from pairsmith.models.sentence_encoder import centre_vectors
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.training.encoder import base_encoder, scored_pairs
from pairsmith.steps.training.encoder_settings import TrainEncoderSettings
from pairsmith.steps.training.plan import BESIDE_WEIGHTS, CHECKPOINTS_ON_DISK, bytes_of, saved_checkpoints

CALIBRATION_STEPS = 12
_UNTIMED_STEPS = 3
_LENGTHS = 12


def plan_train_encoder(settings: TrainEncoderSettings, before: Before) -> Estimate:
    """Train for some of the steps that the settings call for; sentence-transformers runs them."""
    started = time.monotonic()
    encoder = base_encoder(settings)
    loading = time.monotonic() - started
    pairs, rows = _pairs(settings, before)
    if settings.centre:  # once, not in each of the trials
        centre_vectors(encoder, pairs["sentence1"].to_pylist() + pairs["sentence2"].to_pylist())
        settings = settings.model_copy(update={"centre": False})
    steps = total_steps(rows["train"], settings)

    def timed(count: int, trained_on: pa.Table = pairs) -> float:
        begun = time.monotonic()
        short_run = settings.model_copy(update={"max_steps": count, "epochs": float(count)})
        train_encoder_on(encoder, trained_on, None, short_run)
        return time.monotonic() - begun

    short = timed(_UNTIMED_STEPS)
    for batch in _of_many_lengths(pairs, settings.batch_size):
        timed(1, batch)  # memory grows with each new text length
    step = max(timed(_UNTIMED_STEPS + CALIBRATION_STEPS) - timed(_UNTIMED_STEPS), 0.0) / CALIBRATION_STEPS
    evaluations = 2 + steps // settings.eval_steps if rows.get("validation") else 0
    seconds = loading + short + steps * step
    if evaluations:
        sample = pairs.slice(0, min(rows["validation"], pairs.num_rows))
        begun = time.monotonic()
        validation_spearman(encoder, sample, settings.eval_batch_size)
        seconds += evaluations * (time.monotonic() - begun) * rows["validation"] / sample.num_rows
    weights = bytes_of(encoder.state_dict().values())
    trained = bytes_of(parameter for parameter in encoder.parameters() if parameter.requires_grad)
    saved = min(CHECKPOINTS_ON_DISK, saved_checkpoints(steps, settings.checkpoint_steps, seconds))
    best = saved * weights if evaluations and steps > settings.eval_steps else 0
    return Estimate(
        seconds=seconds,
        memory=peak_memory(),
        disk=weights + BESIDE_WEIGHTS,
        rows={},
        scratch=saved * (weights + 2 * trained + BESIDE_WEIGHTS) + best,  # 2: the moments of AdamW
    )


def _of_many_lengths(pairs: pa.Table, batch_size: int) -> Iterator[pa.Table]:
    """Batches of the longest pairs, of the shortest, and of some lengths in between."""
    lengths = pc.add(pc.utf8_length(pairs["sentence1"]), pc.utf8_length(pairs["sentence2"]))
    ordered = pairs.take(pc.sort_indices(pc.negate(lengths)))
    last = max(0, ordered.num_rows - batch_size)
    for number in range(_LENGTHS):
        yield ordered.slice(number * last // (_LENGTHS - 1), batch_size)


def _pairs(settings: TrainEncoderSettings, before: Before) -> tuple[pa.Table, dict[str, int]]:
    """Pairs for the trial, and how many pairs each split will have."""
    pairs = scored_pairs(settings.data)
    if settings.data in before:
        return pairs["train"], dict(before[settings.data].rows)
    return pairs["train"], {split: table.num_rows for split, table in pairs.items()}
