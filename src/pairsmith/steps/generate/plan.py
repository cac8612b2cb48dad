"""The cost estimate of ``generate``, extrapolated from texts that are written for some seconds."""

import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import torch

from pairsmith.data.schemas import REJECT, to_table
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.method import GeneratedRows, Hooks, write
from pairsmith.models.language.remote import RemoteModel, Used
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.runs.executors import cores
from pairsmith.runs.storage import encode_table
from pairsmith.steps.generate.checks import check_settings
from pairsmith.steps.generate.route import least_work
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.generate.shards import Items, Shard, distinct_inputs
from pairsmith.steps.generate.worker import SCHEMAS, model_of
from pairsmith.steps.planning import evenly_spaced, read_first, sharded_estimate

CALIBRATION_SECONDS = 15.0
"""Number of seconds for which a language model generates texts to measure its speed."""


def plan_generate(settings: GenerateSettings, before: Before) -> Estimate:
    """Generate for ``CALIBRATION_SECONDS``, or for about 200 inputs if that is shorter, and extrapolate.

    The time decides when to stop, as the time per text differs widely between models. With a server, the
    tokens that it reads and writes are counted. The timed shards are as large as the shards of the run,
    because towards the end of a shard the model processes fewer and fewer texts at once.
    """
    started = time.monotonic()
    settings = least_work(settings)
    task = settings.resolved_task()
    check_settings(task, settings)
    main_memory = peak_memory()  # with several workers, the main process only commits and loads no model
    if settings.workers > 1 and settings.executor == "local":
        torch.set_num_threads(max(1, cores() // settings.workers))
    model = model_of(task, settings)
    loading = time.monotonic() - started
    items, sample_items = _inputs(settings, task, before)
    if not sample_items:
        return Estimate(loading, rows={"train": 0})
    size = settings.shard_size or settings.shard_bounds.pick(items)
    labels = len(task.written_names)

    def write_texts(items: Items, hooks: Hooks) -> GeneratedRows:
        requests = Shard(0, items, (), (), "").requests(task)
        return write(task, model, requests, task.decoding, settings.seed, settings.rows, hooks)

    # 1. Write texts. The texts of the first item warm up the libraries, and are not timed.
    write_texts(sample_items[:1], Hooks())
    used = model.used if isinstance(model, RemoteModel) else Used()
    used.read = used.written = 0
    ends, written = list[float](), list[GeneratedRows]()
    begun = time.monotonic()
    hooks = Hooks(
        on_done=lambda _: ends.append(time.monotonic()),
        # At least one request of each label is finished.
        enough=lambda number: number >= labels and time.monotonic() >= begun + CALIBRATION_SECONDS,
    )
    for start in range(0, len(sample_items), size):
        if not written or time.monotonic() < begun + CALIBRATION_SECONDS:
            written.append(write_texts(sample_items[start : start + size], hooks))
    # 2. Extrapolate from the timed requests to all requests of the run.
    factor = items * labels / sum(part.requests for part in written)
    sample = to_table([row for part in written for row in part.rows], SCHEMAS[task.schema_kind])
    rejects = to_table([reject for part in written for reject in part.rejects], REJECT)
    texts = sample["sentence2" if "sentence2" in sample.column_names else "text"].to_pylist()
    text_tokens = sum(len(model.encode(text)) + 1 for text in texts)  # each with an end token
    shards = -(-items // size)
    by_one_worker = sharded_estimate(
        sample,
        round(sample.num_rows * factor),
        shards,
        loading=loading,
        shared=(ends[-1] - begun) * factor,
        size=round((len(encode_table(sample)) + len(encode_table(rejects))) * factor),
        tokens=round((text_tokens + rejects.num_rows * task.decoding.max_tokens) * factor),
    )
    workers = min(settings.workers, shards)
    return replace(
        by_one_worker,
        seconds=by_one_worker.seconds_with(workers),
        memory=by_one_worker.memory if workers == 1 else main_memory + workers * by_one_worker.memory,
        workers=workers,
        bought=(round(used.read * factor), round(used.written * factor)),
    )


def _inputs(settings: GenerateSettings, task: TaskSpec, before: Before) -> tuple[int, Items]:
    """The number of items of the run, and a sample of the items to calibrate on."""
    if not settings.inputs:
        return task.decoding.per_input, range(task.decoding.per_input)

    def read(source: str) -> Iterable[str]:
        return distinct_inputs(settings.model_copy(update={"inputs": [source]}))

    count, by_source = 0, list[tuple[int, list[str]]]()
    for source in settings.inputs:
        texts, number = read_first([source], read, before, sys.maxsize)
        used = number if settings.limit is None else min(number, settings.limit - count)
        count += used
        by_source.append((used, texts[: max(1, len(texts) * used // max(number, 1))]))
    # A sample of each source in proportion, evenly spaced, as a file may begin with its shortest lines.
    size = settings.shard_size or settings.shard_bounds.most
    return count, [
        text
        for used, texts in by_source
        for text in evenly_spaced(texts, max(1, size * used // max(count, 1)))
    ]
