"""The meanings of a data set's labels in words, from the task that its rows were generated with."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from pairsmith.data.tasks.spec import label_text


def label_meanings(settings: Mapping[str, Any]) -> dict[str, str]:
    """By label, what its instruction asks for, such as ``Two sentences that mean the same thing.``

    For a label with several instructions it is the first one, and the number of instructions.

    ``settings`` are the settings in the manifest of a folder that ``generate`` or ``postprocess`` wrote; with
    those of other folders there are no meanings. A score that ``postprocess`` has smoothed has the meaning of
    the original score.
    """
    task = settings.get("task")
    labels = task.get("labels", []) if isinstance(task, Mapping) else []
    by_name: dict[Any, str] = {}
    for label in labels:
        more = label.get("more_instructions") or ()
        others = f" (one of {len(more) + 1} instructions)" if more else ""
        by_name[label["name"]] = _meaning(str(label["instruction"])) + others
    meanings = {label_text(name): meaning for name, meaning in by_name.items()}
    smoothing = settings.get("smoothing")
    if smoothing and by_name and all(isinstance(name, int | float) for name in by_name):
        mean = fmean(by_name)
        # The smoothed scores, computed and rounded as ``smooth`` of the training set does.
        smoothed = {round((1 - smoothing) * name + smoothing * mean, 12): by_name[name] for name in by_name}
        meanings |= {label_text(name): meaning for name, meaning in smoothed.items()}
    return meanings


def _meaning(instruction: str) -> str:
    """The first line of an instruction without ``Task: Write``, which describes what it asks for."""
    line = instruction.partition("\n")[0].removeprefix("Task: ").strip()
    description = line.removeprefix("Write ")
    return description[:1].upper() + description[1:]
