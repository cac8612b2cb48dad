"""Cost estimates of ``generate`` and ``postprocess``: some of the real work is timed and extrapolated."""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import torch

from pairsmith.data.schemas import REJECT, to_table
from pairsmith.data.tasks import Decoding, load_task
from pairsmith.methods.dino.method import GeneratedRows, write
from pairsmith.methods.dino.request_queue import Hooks
from pairsmith.methods.dino.training_set import make_training_set
from pairsmith.models.language.remote import RemoteModel, Used
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory
from pairsmith.runs.executors import cores
from pairsmith.runs.storage import encode_table
from pairsmith.steps.generate.checks import check_settings
from pairsmith.steps.generate.postprocess import read_input
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings
from pairsmith.steps.generate.shards import Shard, distinct_inputs
from pairsmith.steps.generate.until import least_work
from pairsmith.steps.generate.worker import SCHEMAS, model_of
from pairsmith.steps.planning import counted, has_no_sample, sharded

CALIBRATION_SECONDS = 15.0
"""Seconds for which a language model generates texts to measure its speed."""


def plan_generate(settings: GenerateSettings, before: Before) -> Estimate:
    """Have the model write for ``CALIBRATION_SECONDS``, or some 200 inputs' texts, and extrapolate.

    It is stopped by the clock, not by a number of rows, and a server's tokens are counted. The texts are
    written in shards of the run's size: at the end of each the model computes fewer and fewer at once.
    """
    started = time.monotonic()
    settings = least_work(settings)
    task = load_task(settings.task).writing(settings.labels)
    decoding = settings.decoding(task.decoding)
    check_settings(task, settings)
    main = peak_memory()  # memory of the process that only commits, with several workers
    if settings.workers > 1 and settings.executor == "local":
        torch.set_num_threads(max(1, cores() // settings.workers))
    model = model_of(task, settings)
    loading = time.monotonic() - started
    items, texts = _inputs(settings, decoding, before)
    if not texts:
        return Estimate(loading, peak_memory(), 0, {"train": 0})
    labels = len(task.written_names)
    request_count = items * labels
    size = settings.shard_size or settings.shard_bounds.pick(items)
    starts = range(0, len(texts), size)
    shards = [Shard(i, texts[first : first + size], (), (), "") for i, first in enumerate(starts)]
    # The first few warm up the libraries, and are not timed.
    few = itertools.islice(shards[0].requests(task, decoding), labels)
    write(task, model, few, decoding, settings.seed, settings.rows)
    used = model.used if isinstance(model, RemoteModel) else Used()
    used.read = used.written = 0  # what warmed it up does not count
    ends: list[float] = []
    begun = time.monotonic()
    hooks = Hooks(
        on_done=lambda _: ends.append(time.monotonic()),
        # At least one of each label.
        enough=lambda number: number >= labels and time.monotonic() >= begun + CALIBRATION_SECONDS,
    )
    timed: list[GeneratedRows] = []
    for shard in shards:
        if not timed or time.monotonic() < begun + CALIBRATION_SECONDS:
            requests = shard.requests(task, decoding)
            timed.append(write(task, model, requests, decoding, settings.seed, settings.rows, hooks))
    written = sum(of_shard.requests for of_shard in timed)
    seconds = (ends[-1] - begun) / written
    sample = to_table([row for of_shard in timed for row in of_shard.rows], SCHEMAS[task.schema_kind])
    rejects = to_table([reject for of_shard in timed for reject in of_shard.rejects], REJECT)
    share = request_count / written
    text = sample["sentence2" if "sentence2" in sample.column_names else "text"].to_pylist()
    per_text = sum(len(model.encode(string)) + 1 for string in text) / max(len(text), 1)
    tokens = (len(text) * per_text + rejects.num_rows * decoding.max_tokens) * share
    disk = len(encode_table(sample)) + len(encode_table(rejects))
    shard_count = -(-items // size)
    workers = min(settings.workers, shard_count)
    alone = sharded(
        loading=loading,
        shared=request_count * seconds,
        size=round(disk * share),
        rows=round(sample.num_rows * share),
        shards=shard_count,
        tokens=round(tokens),
        sample=sample,
    )
    alone = replace(alone, bought=(round(used.read * share), round(used.written * share)))
    memory = alone.memory if workers == 1 else main + workers * alone.memory
    return replace(alone, seconds=alone.seconds_with(workers), workers=workers, memory=memory)


def plan_postprocess(settings: PostprocessSettings, before: Before) -> Estimate:
    """Process the rows and extrapolate; a sample has no task, so its labels are the scores that occur."""
    generated = read_input(settings)
    schema, rows = generated.schema, generated.rows
    total = counted(settings.data, before, len(rows), "train")  # validation rows are not processed
    begun = time.monotonic()
    training_set = make_training_set(rows, generated.task, settings.options)
    train, validation = to_table(training_set.train, schema), to_table(training_set.validation, schema)
    size = len(encode_table(train)) + len(encode_table(validation))
    seconds = time.monotonic() - begun
    share = total / max(len(rows), 1)
    return Estimate(
        seconds=seconds * share,
        memory=peak_memory(),
        disk=round(size * share) + FOLDER_BYTES + SHARD_BYTES,
        rows={"train": round(train.num_rows * share), "validation": round(validation.num_rows * share)},
        sample=pa.concat_tables([train, validation]),
    )


def _inputs(
    settings: GenerateSettings, decoding: Decoding, before: Before
) -> tuple[int, Sequence[str] | range]:
    """The number of items there will be, and some of them to calibrate on."""
    if not settings.inputs:
        return decoding.per_input, range(decoding.per_input)
    size = settings.shard_size or settings.shard_bounds.most
    by_source: list[tuple[int, list[str]]] = []
    remaining = math.inf if settings.limit is None else settings.limit
    for source in settings.inputs:
        if has_no_sample(source, before):
            continue
        texts = list(distinct_inputs(settings.model_copy(update={"inputs": [source]})))
        number = counted(source, before, len(texts))
        share = int(min(number, remaining))
        remaining -= share
        by_source.append((share, texts[: max(1, len(texts) * share // max(number, 1))]))
    count = sum(share for share, _ in by_source)
    sample: list[str] = []
    for share, texts in by_source:
        # Each source in proportion, from all over it: a file may begin with its shortest lines.
        wanted = max(1, -(-size * share // max(count, 1)))
        sample += texts[:: max(1, -(-len(texts) // wanted))]
    return count, sample
