"""Checks across the steps of a recipe, before the first step starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pairsmith.core.errors import MissingExtra, known_names_hint
from pairsmith.core.extras import extras
from pairsmith.data.tasks import TaskSpec, label_text, load_task
from pairsmith.steps.generate.checks import remarks

if TYPE_CHECKING:
    from pairsmith.cli.recipes import PlannedStep

_KEEP_LABELS = ("postprocess", "mix")
"""Steps whose rows have the labels of the rows that they read."""


def check_extras(names: Sequence[str]) -> None:
    """Raise ``MissingExtra`` unless the extras of pairsmith with these names are installed."""
    missing_packages = extras()
    for extra in names:
        if missing := missing_packages.get(extra):
            raise MissingExtra(", ".join(missing), extra)


def extra_faults(names: Sequence[str]) -> Iterator[str]:
    """An error message for each of these names that is no extra of pairsmith."""
    declared = extras()
    for extra in names if declared else ():
        if extra not in declared:
            yield f"extras: there is no extra {extra!r}; {known_names_hint(extra, declared)}"


def label_faults(planned_steps: "Sequence[PlannedStep]") -> Iterator[str]:
    """An error message for each encoder in a recipe that cannot be trained on the rows generated for it."""
    steps = {planned.name: planned for planned in planned_steps}
    for planned in planned_steps:
        if planned.kind == "train-encoder" and (task := _task_of(planned, steps)):
            if task.kind == "text" or not task.numeric:
                kind = "single texts" if task.kind == "text" else "pairs whose labels are names"
                trainer = "train-classifier" if task.kind == "text" else "a task whose labels are numbers"
                yield (
                    f"{planned.name}: train-encoder needs pairs with scores, but the task {task.name} writes "
                    f"{kind}; use {trainer}"
                )
            else:
                yield from (f"{planned.name}: {remark}" for remark in remarks(task))


def _task_of(planned: "PlannedStep", steps: "Mapping[str, PlannedStep]") -> TaskSpec | None:
    """The task of the step that generates the rows ``planned`` reads; None if no step of the recipe does."""
    source = planned.values.get("data")
    for reference in source if isinstance(source, list) else [source]:
        before = steps.get(str(reference).removeprefix("@").partition(":")[0])
        if before is None:
            continue
        if before.kind == "generate":
            labels = before.values.get("labels") or []
            names = labels if isinstance(labels, list) else [labels]
            spec = load_task(str(before.values.get("task", "sts")))
            return spec.writing(
                [name if isinstance(name, str) else label_text(float(name)) for name in names]
            )
        if before.kind in _KEEP_LABELS and (task := _task_of(before, steps)):
            return task
    return None
