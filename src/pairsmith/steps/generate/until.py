"""``generate --until N``: rounds with more and more inputs, or texts, until each label has N rows.

A run that grows keeps its finished rows, so each round generates only the additional ones. The size of a
round, its number of inputs or texts, follows from the rows of the round before; so a run that is stopped and
started again ends with the same bytes.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from pairsmith.core.errors import FolderError, SettingsError
from pairsmith.data.tasks import TaskSpec, load_task
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.folder import read_manifest
from pairsmith.runs.status import label_counts
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.generate.shards import input_records

MOST_TIMES = 5
"""A run requests at most this many times the texts that it would need if every text were accepted."""

Generate = Callable[[GenerateSettings, Run], DatasetFolder | None]


def generate_until(settings: GenerateSettings, run: Run, generate: Generate) -> DatasetFolder:
    """Generate rounds of more and more inputs, or texts, until each label has ``until`` rows."""
    wanted = settings.until or 0
    if settings.executor == "array" or settings.rank is not None:
        raise SettingsError(
            "--until has to count the rows of all workers, so array jobs do not support it; leave it out"
        )
    task = load_task(settings.task).writing(settings.labels)
    if task.kind == "text" and settings.per_input is not None:
        raise SettingsError("--until says how many texts each label gets; leave --per-input out")
    rows_per_item = _rows_per_item(settings, task)
    first = math.ceil(wanted / rows_per_item)
    most = MOST_TIMES * first
    if task.kind == "pair":
        most = min(most, sum(1 for _ in input_records(settings)))
    size = max(min(first, most), 0 if run.fresh else _earlier_size(run, task))
    while True:
        folder = generate(_with_size(settings, task, size), run)
        assert folder is not None
        counts = label_counts(folder)
        label, fewest = min(((name, counts[name]) for name in task.written_names), key=lambda pair: pair[1])
        if fewest >= wanted:
            return folder
        if size >= most:
            unit = "inputs" if task.kind == "pair" else "texts"
            run.progress.say(
                f"label {label} has {fewest:,} of {wanted:,} rows after {size:,} {unit}, the most "
                "that --until may use; raise --tries, give more inputs, or make its instruction plainer"
            )
            return folder
        # 5 % more than the acceptance rate so far suggests, so that few rounds are needed.
        size = min(most, math.ceil(1.05 * size * wanted / max(fewest, size * rows_per_item / MOST_TIMES)) + 1)
        run.progress.say(f"label {label} has {fewest:,} of {wanted:,} rows; another round follows")
        run = replace(run, fresh=False)


def least_work(settings: GenerateSettings) -> GenerateSettings:
    """The settings for plans of ``--until``: those of the smallest run, in which every text is accepted."""
    if not settings.until:
        return settings
    task = load_task(settings.task)
    size = math.ceil(settings.until / _rows_per_item(settings, task))
    return _with_size(settings, task, size if settings.limit is None else min(size, settings.limit))


def _rows_per_item(settings: GenerateSettings, task: TaskSpec) -> int:
    """The largest number of rows of a label from one input or, in a text task, from one text."""
    return settings.decoding(task.decoding).per_input if task.kind == "pair" else 1


def _with_size(settings: GenerateSettings, task: TaskSpec, size: int) -> GenerateSettings:
    return settings.model_copy(update={"limit" if task.kind == "pair" else "per_input": size})


def _earlier_size(run: Run, task: TaskSpec) -> int:
    """The size of the last round of an earlier run, from the folder's manifest; 0 if there is none."""
    try:
        size = read_manifest(run.out).settings.get("limit" if task.kind == "pair" else "per_input")
    except FolderError:
        return 0
    return size if isinstance(size, int) else 0
