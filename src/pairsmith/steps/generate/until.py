"""``generate --until N``: more inputs, or more texts, until each label has N rows, within bounds.

A run that has grown keeps its finished rows, so each round only writes what is missing. How much the next
round asks for follows from the rows of the one before, so a stopped run goes on to the same bytes.
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
"""A run asks for at most this many times the texts that it would need if each were accepted."""

Generate = Callable[[GenerateSettings, Run], DatasetFolder | None]


def generate_until(settings: GenerateSettings, run: Run, generate: Generate) -> DatasetFolder:
    """Generate for more and more inputs (in a text task: more texts) until each label has enough rows."""
    wanted = settings.until or 0
    if settings.executor == "array" or settings.rank is not None:
        raise SettingsError("--until needs the rows of all workers, so it is not for array jobs")
    task = load_task(settings.task).writing(settings.labels)
    if task.kind == "text" and settings.per_input is not None:
        raise SettingsError("--until says how many texts each label gets; leave --per-input out")
    rows_each = _rows_each(settings, task)
    first = math.ceil(wanted / rows_each)
    most = MOST_TIMES * first
    if task.kind == "pair":
        most = min(most, sum(1 for _ in input_records(settings)))
    size = max(min(first, most), 0 if run.fresh else _size_there(run, task))
    while True:
        folder = generate(_of_size(settings, task, size), run)
        assert folder is not None
        counts = label_counts(folder)
        label, fewest = min(((name, counts[name]) for name in task.written_names), key=lambda pair: pair[1])
        if fewest >= wanted:
            return folder
        if size >= most:
            what = "inputs" if task.kind == "pair" else "texts"
            run.progress.say(
                f"label {label} has {fewest:,} of {wanted:,} rows after {size:,} {what}, which is all there "
                "may be; raise --tries, give more inputs, or make its instruction plainer"
            )
            return folder
        # A twentieth more than the rate so far asks for, so that few rounds are needed.
        size = min(most, math.ceil(1.05 * size * wanted / max(fewest, size * rows_each / MOST_TIMES)) + 1)
        run.progress.say(f"label {label} has {fewest:,} of {wanted:,} rows; going on")
        run = replace(run, fresh=False)


def least_work(settings: GenerateSettings) -> GenerateSettings:
    """The settings of the least work that ``--until`` can be: each text is accepted. For plans."""
    if not settings.until:
        return settings
    task = load_task(settings.task)
    size = math.ceil(settings.until / _rows_each(settings, task))
    return _of_size(settings, task, size if settings.limit is None else min(size, settings.limit))


def _rows_each(settings: GenerateSettings, task: TaskSpec) -> int:
    """How many rows of a label an input gives at most; in a text task, a text."""
    return settings.decoding(task.decoding).per_input if task.kind == "pair" else 1


def _of_size(settings: GenerateSettings, task: TaskSpec, size: int) -> GenerateSettings:
    return settings.model_copy(update={"limit" if task.kind == "pair" else "per_input": size})


def _size_there(run: Run, task: TaskSpec) -> int:
    """The size of the round that an earlier call was at, from the folder's manifest; 0 without one."""
    try:
        size = read_manifest(run.out).settings.get("limit" if task.kind == "pair" else "per_input")
    except FolderError:
        return 0
    return size if isinstance(size, int) else 0
