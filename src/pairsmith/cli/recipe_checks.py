"""Checks across the steps of a recipe, before the first step starts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pairsmith.cli.figures import figure_fault, figure_forms
from pairsmith.core.errors import MissingExtra, errors_in_other_words, known_names_hint
from pairsmith.core.extras import missing_packages_by_extra
from pairsmith.data.tasks import TaskSpec, label_text, load_task
from pairsmith.steps.generate.checks import remarks

if TYPE_CHECKING:
    from pairsmith.cli.recipes import PlannedStep

_KEEP_LABELS = ("postprocess", "mix")
"""Steps whose rows have the labels of the rows that they read."""


def check_extras(names: Sequence[str]) -> None:
    """Raise ``MissingExtra`` unless the extras of pairsmith with these names are installed."""
    missing_packages = missing_packages_by_extra()
    for extra in names:
        if missing := missing_packages.get(extra):
            raise MissingExtra(", ".join(missing), extra)


def extra_faults(names: Sequence[str]) -> Iterator[str]:
    """An error message for each of these names that is no extra of pairsmith."""
    declared = missing_packages_by_extra()
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


def figure_faults(planned_steps: "Sequence[PlannedStep]", results: Mapping[str, str]) -> list[str]:
    """An error message for each figure under ``results`` that the evaluation of its step does not give.

    Of several figures with the same fault, as of steps that ``each`` makes, only the first is named.
    """
    steps = {planned.name: planned for planned in planned_steps}
    faults: dict[str, str] = {}
    forms: dict[tuple[str, ...], Sequence[str]] = {}  # many steps may be evaluated on the same data
    for name, source in results.items():
        step, _, figure = source.partition("/")
        if figure and (planned := steps.get(step)):
            key = (
                planned.kind,
                *(str(planned.values.get(option)) for option in ("data", "suites", "against")),
            )
            if key not in forms:
                forms[key] = figure_forms(planned.kind, planned.step, planned.values)
            if fault := figure_fault(planned.kind, figure, forms[key], intervals=True):
                faults.setdefault(fault, name)
    return [f"results.{name}: {fault}" for fault, name in faults.items()]


def labels_of_model(planned: "PlannedStep", planned_steps: "Sequence[PlannedStep]") -> set[str]:
    """The labels that the model of an evaluation will know; empty if they are not known beforehand.

    They are the labels that the evaluation itself describes, or the labels of the texts that an earlier
    ``train-classifier`` reads from a file or from steps that generate texts for a task.
    """
    if planned.kind != "evaluate-classification":
        return set()
    from pairsmith.steps.evaluate.classification_settings import label_descriptions
    from pairsmith.steps.training.classifier import training_labels

    steps = {step.name: step for step in planned_steps}
    if names := planned.settings(Path()).name:
        return set(label_descriptions(names))
    training = steps.get(str(planned.values.get("model")).removeprefix("@"))
    if training is None or training.kind != "train-classifier":
        return set()
    if str(training.values.get("data")).startswith("@"):
        return _generated_labels(training, steps)
    with errors_in_other_words(training.keys()):
        return training_labels(training.settings(Path()))


def _generated_labels(planned: "PlannedStep", steps: "Mapping[str, PlannedStep]") -> set[str]:
    """The labels of the tasks for which the rows that ``planned`` reads are generated; empty if unknown."""
    labels = set[str]()
    for before in _steps_read_by(planned, steps):
        if before is not None and before.kind == "generate":
            own = set(_task_written_by(before).written_names)
        else:
            own = _generated_labels(before, steps) if before and before.kind in _KEEP_LABELS else set()
        if not own:
            return set()
        labels |= own
    return labels


def _task_written_by(generating: "PlannedStep") -> TaskSpec:
    """The task of a step ``generate``, with the labels that it writes."""
    labels = generating.values.get("labels") or []
    names = labels if isinstance(labels, list) else [labels]
    spec = load_task(str(generating.values.get("task", "sts")))
    return spec.writing([name if isinstance(name, str) else label_text(float(name)) for name in names])


def _task_of(planned: "PlannedStep", steps: "Mapping[str, PlannedStep]") -> TaskSpec | None:
    """The task of the step that generates the rows ``planned`` reads; None if no step of the recipe does."""
    for before in _steps_read_by(planned, steps):
        if before is not None and before.kind == "generate":
            return _task_written_by(before)
        if before is not None and before.kind in _KEEP_LABELS and (task := _task_of(before, steps)):
            return task
    return None


def _steps_read_by(planned: "PlannedStep", steps: "Mapping[str, PlannedStep]") -> "list[PlannedStep | None]":
    """The steps that make the data of ``planned``; None for each source that no step of the recipe makes."""
    data = planned.values.get("data")
    sources = data if isinstance(data, list) else [data]
    return [steps.get(str(source).removeprefix("@").partition(":")[0]) for source in sources]
