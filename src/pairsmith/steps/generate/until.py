"""The size of the rounds of ``generate --until N``: their number of inputs or, in a text task, of texts.

A run that grows keeps its finished rows, so each round generates only the additional ones. The size of a
round follows from the rows of the round before; so a run that is stopped and started again ends with the same
bytes.
"""

import math

from pairsmith.core.errors import FolderError
from pairsmith.data.tasks import TaskSpec, load_task
from pairsmith.runs import Run
from pairsmith.runs.manifest import read_manifest
from pairsmith.steps.generate.settings import GenerateSettings

MOST_TIMES = 5
"""A run requests at most this many times the texts that it would need if every text were accepted."""


def least_work(settings: GenerateSettings) -> GenerateSettings:
    """The settings for plans of ``--until``: the smallest run, in which every text is accepted."""
    if not settings.until:
        return settings
    task = load_task(settings.task)
    size = math.ceil(settings.until / rows_per_item(settings, task))
    return with_size(settings, task, size if settings.limit is None else min(size, settings.limit))


def rows_per_item(settings: GenerateSettings, task: TaskSpec) -> int:
    """The largest number of rows of a label from one input or, in a text task, from one text."""
    return settings.decoding(task.decoding).per_input if task.kind == "pair" else 1


def with_size(settings: GenerateSettings, task: TaskSpec, size: int) -> GenerateSettings:
    """The settings of a round of this size."""
    return settings.model_copy(update={"limit" if task.kind == "pair" else "per_input": size})


def earlier_size(run: Run, task: TaskSpec) -> int:
    """The size of the last round of an earlier run, from the folder's manifest; 0 if there is none."""
    try:
        size = read_manifest(run.out).settings.get("limit" if task.kind == "pair" else "per_input")
    except FolderError:
        return 0
    return size if isinstance(size, int) else 0
