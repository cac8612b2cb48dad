"""The meanings of a data set's labels in words, from the task that its rows were generated with."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from pairsmith.data.tasks.spec import label_text


def label_meanings(settings: Mapping[str, Any]) -> dict[str, str]:
    """By label, what its instruction asks for, such as ``Two sentences that mean the same thing.``

    For a label with several instructions, it is what the first one asks for, and the number of instructions.

    ``settings`` are the settings in the manifest of a folder that ``generate`` or ``postprocess`` wrote; the
    settings of other folders give no meanings. A score that ``postprocess`` has smoothed has the meaning of
    the original score, and 0 then only stands for sampled negatives.
    """
    by_name: dict[Any, str] = {}
    for label in labels_of_task(settings):
        more = label.get("more_instructions") or ()
        others = f" (one of {len(more) + 1} instructions)" if more else ""
        by_name[label["name"]] = _meaning(str(label["instruction"])) + others
    meanings = {label_text(name): meaning for name, meaning in by_name.items()}
    smoothing = settings.get("smoothing")
    numeric = all(isinstance(name, int | float) for name in by_name)
    if by_name and numeric and isinstance(smoothing, int | float):
        mean = fmean(by_name)
        # The smoothed scores, computed and rounded as ``smooth`` of the training set does.
        smoothed = {round((1 - smoothing) * name + smoothing * mean, 12): by_name[name] for name in by_name}
        meanings |= {label_text(name): meaning for name, meaning in smoothed.items()}
        if settings.get("augment") and 0 not in smoothed:
            meanings["0"] = "Two texts paired at random, which have nothing to do with each other."
    return meanings


def labels_of_task(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The labels of the task in a manifest's settings, each with ``name`` and ``instruction``.

    Without a task there are none. If the manifest was edited, entries that are no labels are left out.
    """
    task = settings.get("task")
    labels = task.get("labels") if isinstance(task, Mapping) else None
    return [
        label
        for label in (labels if isinstance(labels, list) else ())
        if isinstance(label, Mapping)
        and "instruction" in label
        and isinstance(label.get("name"), str | int | float)
    ]


def _meaning(instruction: str) -> str:
    """The first line of an instruction without ``Task: Write``, which describes what it asks for."""
    line = instruction.partition("\n")[0].removeprefix("Task: ").strip()
    description = line.removeprefix("Write ")
    return description[:1].upper() + description[1:]
