"""Checks across the steps of a recipe, made before the first one starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pairsmith.core.errors import MissingExtra, known_names_hint
from pairsmith.core.extras import extras
from pairsmith.data.tasks import TaskSpec, label_text, load_task
from pairsmith.steps.generate.checks import remarks

if TYPE_CHECKING:
    from pairsmith.cli.recipes import PlannedStep

_KEEP_LABELS = ("postprocess", "mix")
"""Steps whose rows have the labels of what they read."""


def check_extras(wanted: Sequence[str]) -> None:
    """Check that the extras of pairsmith that a recipe wants are installed."""
    lacking = extras()
    for extra in wanted:
        if missing := lacking.get(extra):
            raise MissingExtra(", ".join(missing), extra)


def extra_faults(wanted: Sequence[str]) -> Iterator[str]:
    """An error for each extra that a recipe names and that does not exist."""
    declared = extras()
    for extra in wanted if declared else ():
        if extra not in declared:
            yield f"extras: there is no extra {extra!r}; {known_names_hint(extra, declared)}"


def label_faults(planned_steps: "Sequence[PlannedStep]") -> Iterator[str]:
    """Why an encoder of a recipe could not learn what is generated for it, as one sentence each."""
    steps = {planned.name: planned for planned in planned_steps}
    for planned in planned_steps:
        if planned.kind == "train-encoder" and (task := _task_of(planned, steps)):
            if task.kind == "text" or not task.numeric:
                kind = "single texts" if task.kind == "text" else "pairs whose labels are names"
                trainer = "train-classifier" if task.kind == "text" else "a task whose labels are numbers"
                yield (
                    f"{planned.name}: train-encoder learns pairs with scores; the task {task.name} writes "
                    f"{kind}; use {trainer}"
                )
            else:
                yield from (f"{planned.name}: {remark}" for remark in remarks(task))


def _task_of(planned: "PlannedStep", steps: "Mapping[str, PlannedStep]") -> TaskSpec | None:
    """The task of the step that generates what ``planned`` reads; None if that is no step of the recipe."""
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
