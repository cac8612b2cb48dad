"""Cost estimates of ``generate`` and ``postprocess``: a part of the work is timed and extrapolated."""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import torch

from pairsmith.data.schemas import REJECT, to_table
from pairsmith.data.tasks import Decoding, TaskSpec, load_task
from pairsmith.methods.dino.method import GeneratedRows, Hooks, write
from pairsmith.methods.dino.training_set import make_training_set
from pairsmith.models.language.protocols import SteerableModel
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
"""Number of seconds for which a language model generates texts to measure its speed."""


def plan_generate(settings: GenerateSettings, before: Before) -> Estimate:
    """Generate for ``CALIBRATION_SECONDS``, or for about 200 inputs if that is shorter, and extrapolate.

    The time decides when to stop, as the time per text differs widely between models. With a server, the
    tokens that it reads and writes are counted. The timed shards are as large as those of the run, because
    towards the end of a shard the model processes fewer and fewer texts at once.
    """
    started = time.monotonic()
    settings = least_work(settings)
    task = load_task(settings.task).writing(settings.labels)
    decoding = settings.decoding(task.decoding)
    check_settings(task, settings)
    main_memory = peak_memory()  # with several workers, the main process only commits and loads no model
    if settings.workers > 1 and settings.executor == "local":
        torch.set_num_threads(max(1, cores() // settings.workers))
    model = model_of(task, settings)
    loading = time.monotonic() - started
    items, sample_items = _inputs(settings, decoding, before)
    if not sample_items:
        return Estimate(loading, peak_memory(), 0, {"train": 0})
    request_count = items * len(task.written_names)
    size = settings.shard_size or settings.shard_bounds.pick(items)
    starts = range(0, len(sample_items), size)
    shards = [Shard(i, sample_items[start : start + size], (), (), "") for i, start in enumerate(starts)]
    generated, seconds = _timed(shards, task, decoding, model, settings)
    used = model.used if isinstance(model, RemoteModel) else Used()
    sample = to_table(generated.rows, SCHEMAS[task.schema_kind])
    rejects = to_table(generated.rejects, REJECT)
    factor = request_count / generated.requests  # from the timed requests to those of the run
    texts = sample["sentence2" if "sentence2" in sample.column_names else "text"].to_pylist()
    text_tokens = sum(len(model.encode(text)) + 1 for text in texts)  # each with an end token
    tokens = (text_tokens + rejects.num_rows * decoding.max_tokens) * factor
    disk = len(encode_table(sample)) + len(encode_table(rejects))
    shard_count = -(-items // size)
    workers = min(settings.workers, shard_count)
    alone = sharded(
        loading=loading,
        shared=request_count * seconds,
        size=round(disk * factor),
        rows=round(sample.num_rows * factor),
        shards=shard_count,
        tokens=round(tokens),
        sample=sample,
    )
    alone = replace(alone, bought=(round(used.read * factor), round(used.written * factor)))
    memory = alone.memory if workers == 1 else main_memory + workers * alone.memory
    return replace(alone, seconds=alone.seconds_with(workers), workers=workers, memory=memory)


def _timed(
    shards: Sequence[Shard],
    task: TaskSpec,
    decoding: Decoding,
    model: SteerableModel | RemoteModel,
    settings: GenerateSettings,
) -> tuple[GeneratedRows, float]:
    """Generate for ``CALIBRATION_SECONDS``; returns what was generated, and the seconds for each request."""
    # The first requests warm up the libraries, and are not timed.
    labels = len(task.written_names)
    warm_up = itertools.islice(shards[0].requests(task, decoding), labels)
    write(task, model, warm_up, decoding, settings.seed, settings.rows)
    if isinstance(model, RemoteModel):
        model.used.read = model.used.written = 0  # the tokens of the warm-up are not counted
    ends: list[float] = []
    begun = time.monotonic()
    hooks = Hooks(
        on_done=lambda _: ends.append(time.monotonic()),
        # At least one request of each label is finished.
        enough=lambda number: number >= labels and time.monotonic() >= begun + CALIBRATION_SECONDS,
    )
    timed: list[GeneratedRows] = []
    for shard in shards:
        if not timed or time.monotonic() < begun + CALIBRATION_SECONDS:
            requests = shard.requests(task, decoding)
            timed.append(write(task, model, requests, decoding, settings.seed, settings.rows, hooks))
    count = sum(generated.requests for generated in timed)
    rows = [row for generated in timed for row in generated.rows]
    rejects = [reject for generated in timed for reject in generated.rejects]
    complete = sum(generated.complete for generated in timed)
    return GeneratedRows(rows, rejects, count, complete), (ends[-1] - begun) / count


def plan_postprocess(settings: PostprocessSettings, before: Before) -> Estimate:
    """Process the rows and extrapolate.

    Rows that an earlier step will make are represented by its sample. A sample does not say what its task is,
    so the label set is the set of scores in it.
    """
    generated = read_input(settings)
    schema, rows = generated.schema, generated.rows
    total = counted(settings.data, before, len(rows), "train")  # validation rows are not processed
    begun = time.monotonic()
    training_set = make_training_set(rows, generated.task, settings.options)
    train, validation = to_table(training_set.train, schema), to_table(training_set.validation, schema)
    size = len(encode_table(train)) + len(encode_table(validation))
    seconds = time.monotonic() - begun
    factor = total / max(len(rows), 1)
    return Estimate(
        seconds=seconds * factor,
        memory=peak_memory(),
        disk=round(size * factor) + FOLDER_BYTES + SHARD_BYTES,
        rows={"train": round(train.num_rows * factor), "validation": round(validation.num_rows * factor)},
        sample=pa.concat_tables([train, validation]),
    )


def _inputs(
    settings: GenerateSettings, decoding: Decoding, before: Before
) -> tuple[int, Sequence[str] | range]:
    """The number of items of the run, and a sample of the items to calibrate on."""
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
        used = int(min(number, remaining))
        remaining -= used
        by_source.append((used, texts[: max(1, len(texts) * used // max(number, 1))]))
    count = sum(used for used, _ in by_source)
    sample: list[str] = []
    for used, texts in by_source:
        # A sample of each source in proportion, evenly spaced, as a file may begin with its shortest lines.
        wanted = max(1, -(-size * used // max(count, 1)))
        sample += texts[:: max(1, -(-len(texts) // wanted))]
    return count, sample
