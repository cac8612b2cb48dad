"""The step ``generate``: DINO from instructions to a dataset folder.

inputs -> prompts (D1, D2) -> tries (D4) of the steered decoder (D3) -> rows and rejects, shard by shard
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import FolderError, SettingsError, WorkerError, counted
from pairsmith.core.model_names import model_revision, resolve_model
from pairsmith.core.paths import is_url
from pairsmith.data.tasks import TaskSpec
from pairsmith.data.text import with_full_stop
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.remote import is_remote, remote_revision
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.begun import shard_size_of
from pairsmith.runs.executors import ExecutorChoice, execute
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import read_manifest
from pairsmith.runs.mapped import finished, nothing_to_do, say_loading
from pairsmith.runs.status import label_counts
from pairsmith.runs.work import LostItem
from pairsmith.steps.generate.checks import check_settings, remarks, steering_of
from pairsmith.steps.generate.messages import ExamplePrinter, closing_lines, preview
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.generate.shards import Shard, distinct_inputs, growth, input_records, shards_of
from pairsmith.steps.generate.worker import SCHEMAS, load_worker, remote_model
from pairsmith.steps.shared import hashes, refuse_sources

ANSWERS_CACHE = "answers.sqlite"
"""Name of the file in the run's folder that caches the responses of a server."""
MOST_TIMES = 5
"""With ``until``, a run requests at most this many times the texts that would do if all were accepted."""


def generate(settings: GenerateSettings, run: Run) -> DatasetFolder | None:
    """Generate a data set from a task's instructions; with ``preview``, show examples and return None."""
    settings = resolve_dtype(settings, run)
    for remark in remarks(settings.resolved_task()):
        run.progress.say(remark)
    if settings.until and not settings.preview:
        return _generate_until(settings, run)
    return _generate_round(settings, run)


def _generate_until(settings: GenerateSettings, run: Run) -> DatasetFolder:
    """Generate in rounds, each with more inputs or texts, until each label has ``until`` rows.

    A run that grows keeps its finished rows, so each round generates only the additional ones. The size of a
    round, its number of inputs or, in a text task, of texts, follows from the rows of the round before; so a
    run that is stopped and started again ends with the same bytes.
    """
    target = settings.until or 0
    if settings.executor == "array" or settings.rank is not None:
        raise SettingsError(
            "--until has to count the rows of all workers, so array jobs do not support it; leave it out"
        )
    task = settings.resolved_task()
    if task.kind == "text" and settings.per_input is not None:
        raise SettingsError("--until says how many texts each label gets; leave --per-input out")
    per_item = _rows_per_item(task)
    first = math.ceil(target / per_item)
    most = MOST_TIMES * first
    if task.kind == "pair":
        most = min(most, sum(1 for _ in input_records(settings)))
    size = max(min(first, most), 0 if run.fresh else _earlier_size(run, task))
    while True:
        folder = _generate_round(_with_size(settings, task, size), run)
        assert folder is not None
        counts = label_counts(folder)
        label, fewest = min(((name, counts[name]) for name in task.written_names), key=lambda pair: pair[1])
        if fewest >= target:
            return folder
        if size >= most:
            unit = "inputs" if task.kind == "pair" else "texts"
            run.progress.say(
                f"label {label} has {fewest:,} of {counted(target, 'rows')} after {size:,} {unit}, the most "
                "that --until may use; raise --tries, give more inputs, or write a plainer instruction for it"
            )
            return folder
        # 5 % more than the acceptance rate so far suggests, so that few rounds are needed.
        size = min(most, math.ceil(1.05 * size * target / max(fewest, size * per_item / MOST_TIMES)) + 1)
        run.progress.say(f"label {label} has {fewest:,} of {counted(target, 'rows')}; another round follows")
        run = replace(run, fresh=False)


def least_work(settings: GenerateSettings) -> GenerateSettings:
    """The settings for plans of ``until``: the smallest run, in which every text is accepted."""
    if not settings.until:
        return settings
    task = settings.resolved_task()
    size = math.ceil(settings.until / _rows_per_item(task))
    return _with_size(settings, task, size if settings.limit is None else min(size, settings.limit))


def _rows_per_item(task: TaskSpec) -> int:
    """The largest number of rows of a label from one input or, in a text task, from one text."""
    return task.decoding.per_input if task.kind == "pair" else 1


def _with_size(settings: GenerateSettings, task: TaskSpec, size: int) -> GenerateSettings:
    """The settings of a round of this size."""
    return settings.model_copy(update={_size_setting(task): size})


def _earlier_size(run: Run, task: TaskSpec) -> int:
    """The size of the last round of an earlier run, from the folder's manifest; 0 if there is none."""
    try:
        size = read_manifest(run.out).settings.get(_size_setting(task))
    except FolderError:
        return 0
    return size if isinstance(size, int) else 0


def _size_setting(task: TaskSpec) -> str:
    """The name of the setting that limits the inputs or, in a text task, the texts."""
    return "limit" if task.kind == "pair" else "per_input"


def _generate_round(settings: GenerateSettings, run: Run) -> DatasetFolder | None:
    """Generate the texts for all inputs or, for a text task, all texts; a round of ``--until``."""
    task = settings.resolved_task()
    check_settings(task, settings)
    if settings.inputs:
        refuse_sources(run, model=settings.model, inputs=settings.inputs)
    if settings.preview:
        run.progress.result(_preview(task, settings))
        return None
    # Inputs are hashed before they are read: if lines are added in between, the next run notices and reads
    # them.
    inputs = hashes("inputs", settings.inputs)
    count = task.decoding.per_input
    if task.kind == "pair":
        count = sum(1 for _ in islice(distinct_inputs(settings), settings.shard_bounds.counted))
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    shards = shards_of(settings, task.decoding, shard_size)
    revision_of = remote_revision if is_remote(settings.model) else model_revision
    revision = revision_of(settings.model)
    writer = FolderWriter.start(
        run,
        Identity.of("generate", _fingerprint_settings(task, settings), inputs, {"model": revision}),
        SCHEMAS[task.schema_kind],
        growth=growth(shards),
        planned=len(shards),
        asked=shards[0].amount if shards else "",
    )
    if writer.finished:
        return nothing_to_do(writer)
    _commit_shards(writer, shards, task, settings, revision, run)
    items = _item_count(shards)
    folder = finished(writer, _card(task, settings, items))
    if run.rank is None:
        for line in closing_lines(folder, task, items * _rows_per_item(task)):
            run.progress.say(line)
    return folder


def _preview(task: TaskSpec, settings: GenerateSettings) -> str:
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    numbers = range(min(settings.preview, task.decoding.per_input))
    items = numbers if task.kind == "text" else list(islice(distinct_inputs(settings), settings.preview))
    return preview(task, model, items, settings.seed)


def _commit_shards(
    writer: FolderWriter,
    shards: Sequence[Shard],
    task: TaskSpec,
    settings: GenerateSettings,
    revision: str,
    run: Run,
) -> None:
    """Have workers generate the shards that are not yet finished, and commit each of them.

    ``revision`` is the model's; a worker that loads other weights raises an error.
    """
    own = [shard for shard in shards if writer.has(shard.number)]
    remaining = [shard for shard in own if not writer.is_done(shard.number, shard.spec)]
    # If an earlier run finished a part of a shard, its tables are read only when a worker takes the shard.
    queue = (replace(shard, earlier=_earlier_tables(writer, shard)) for shard in remaining)
    cache = None
    if not is_remote(settings.model):
        if remaining:
            say_loading(run, settings.model)
    elif settings.executor != "ray":  # Ray workers may reach a server that this machine cannot reach
        run.progress.say(_server_line(task, settings))
        cache = str(run.out / ANSWERS_CACHE) if isinstance(run.out, Path) else None
    load = partial(load_worker, task, _with_local_model(settings), revision, cache)
    labels = len(task.written_names)
    lost: list[LostItem[Shard]] = []
    examples = ExamplePrinter(task, run.progress)
    with run.progress.task("generate", _item_count(own) * labels, "prompts") as bar:
        bar.skip((_item_count(own) - _item_count(remaining)) * labels)
        bar.note = _saved_rows(writer)
        executor = ExecutorChoice.of(settings)
        for outcome in execute(load, queue, bar.advance, executor, partial(run.tell, "worker")):
            if isinstance(outcome, LostItem):
                lost.append(outcome)
                continue
            shard, (rows, rejects) = outcome.item, outcome.result
            writer.commit(shard.number, {"train": rows}, rejects, shard.spec)
            examples.show(rows)
            bar.note = _saved_rows(writer)
    if lost:
        raise _lost_shards(lost, run)


def _item_count(shards: Sequence[Shard]) -> int:
    """The number of items, inputs or texts, in the shards."""
    return sum(len(shard.items) for shard in shards)


def _lost_shards(lost: Sequence[LostItem[Shard]], run: Run) -> WorkerError:
    """The error for shards whose workers exited three times each."""
    names = ", ".join(str(lost_item.item.number) for lost_item in lost)
    which = f"shard {names} was" if len(lost) == 1 else f"shards {names} were"
    return WorkerError(
        f"{which} given up: each made its worker exit three times ({lost[0].how}); the others are saved "
        f"in {run.out}\nrun the same command again to try once more, with fewer --workers or --rows if "
        "memory ran out"
    )


def _saved_rows(writer: FolderWriter) -> str:
    return f"{counted(writer.counts.rows, 'texts')}, {counted(writer.counts.rejects, 'rejects')} saved"


def _server_line(task: TaskSpec, settings: GenerateSettings) -> str:
    """A line for the user: the form of requests that the server accepts, and how texts will be steered."""
    model = remote_model(task, settings)
    model.close()
    return f"{model.name} takes requests in {model.server.form} form; steering: {model.way}"


def _earlier_tables(writer: FolderWriter, shard: Shard) -> tuple[pa.Table, pa.Table] | None:
    tables = writer.tables(shard.number)
    return tables and (tables[0]["train"], tables[1])


def _with_local_model(settings: GenerateSettings) -> GenerateSettings:
    """The settings after a model in an object store was downloaded, so that local workers share one copy."""
    if settings.executor == "ray" or not is_url(settings.model) or is_remote(settings.model):
        return settings
    return settings.model_copy(update={"model": resolve_model(settings.model)})


def _fingerprint_settings(task: TaskSpec, settings: GenerateSettings) -> dict[str, Any]:
    """All settings that change the rows, for the folder's fingerprint."""
    remote: dict[str, Any] = {}
    if is_remote(settings.model):
        remote["steering"] = steering_of(task, settings)
        if remote["steering"] == "certified":  # it decides which texts can be certified
            remote["top_logprobs"] = settings.top_logprobs
    return {
        "task": task.model_dump(mode="json", exclude={"decoding"}),
        **task.decoding.model_dump(mode="json"),
        **settings.model_dump(mode="json", include={"column", "limit", "seed", "dtype", "shard_size"}),
        **remote,
    }


def _card(task: TaskSpec, settings: GenerateSettings, items: int) -> Card:
    instructions = "\n\n".join(
        f"[{label}]\n{wording}" for label in task.label_names for wording in task.label(label).wordings
    )
    model = model_display_name(settings.model)
    what, written, rights = "texts", "them", "The terms of the language model apply to the texts."
    if task.kind == "pair":
        what, written = "pairs", "the second text of each pair"
        rights = "The rights in the inputs, and the terms of the language model, apply to the texts."
    label = "score" if task.schema_kind == "scored_pair" else "label"
    steering = ""
    if task.decoding.steers and any(task.counters(label) for label in task.label_names):
        steering = (
            f"{task.decoding.rule.capitalize()} kept it from writing texts that fit a label's counter-labels "
            "better (the method DINO)."
        )
        if is_remote(settings.model) and settings.steering == "reranked":
            steering = (
                "A text was kept if the model finds it less likely after the instruction of every "
                "counter-label than after its own."
            )
    return Card(
        title=f"{task.name}: {what} written by {model}",
        description=" ".join(
            [
                with_full_stop(task.description),
                f"The language model `{model}` wrote {written}, following an instruction for each label. A "
                f"row's {label} is the one that it was written for: expect some to be wrong.",
                steering,
            ]
        ),
        task_description=instructions,
        counts={"input texts" if task.kind == "pair" else "texts requested for each label": items},
        citations=(CITATION,),
        licence=rights,
        sources=sources_of(models=[settings.model], data=settings.inputs),
    )
