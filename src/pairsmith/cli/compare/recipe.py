"""Turns a comparison into recipes, which can be read, planned and run on their own."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairsmith.cli.compare.file import LABELLED, Comparison
from pairsmith.cli.recipes import Entry
from pairsmith.cli.setting_texts import map_texts


@dataclass(frozen=True, slots=True)
class Trial:
    """A model to be trained on ``rows`` rows of one way, or of several ways in equal parts.

    Without ways, the model is trained on the human-labelled rows alone.
    """

    ways: tuple[str, ...]
    rows: int = 0

    @property
    def way(self) -> str:
        """The name of the way or mixture (``generate+mine``), or ``labelled``."""
        return "+".join(self.ways) or LABELLED

    @property
    def data(self) -> str:
        """The name of the step that takes the rows; the names of the trial's other steps begin with it."""
        return f"{'-and-'.join(self.ways)}-{self.rows}" if self.ways else LABELLED

    @property
    def trained(self) -> str:
        """The name of the step that trains the model."""
        return f"{self.data}-model"

    @property
    def measured(self) -> str:
        """The name of the step that evaluates the model."""
        return f"{self.data}-score"


def trials(comparison: Comparison) -> list[Trial]:
    """All trials of a comparison with one seed, in order."""
    alone = [] if comparison.labelled is None else [Trial(())]
    mixes = [*((way,) for way in comparison.ways), *comparison.mixtures]
    return alone + [Trial(ways, rows) for ways in mixes for rows in sorted(comparison.rows)]


def steps_of_ways(comparison: Comparison) -> dict[str, list[Entry]]:
    """By way, the steps of the way, with names and references as in the recipe.

    If several ways have the same step with the same settings, the recipe has this step only once, named after
    the first of these ways. The result lists the step for each of these ways.
    """
    steps: dict[str, list[Entry]] = {}
    first: dict[str, Entry] = {}  # by the content of a step, the first step with this content
    for way, definition in comparison.ways.items():
        own: dict[str, str] = {}  # for references within this way, the references in the recipe
        steps[way] = []
        for entry in definition.steps:
            settings = _with_replaced_references(entry.settings, own)
            content = json.dumps([entry.step, settings], sort_keys=True, default=repr)
            step = first.setdefault(
                content, Entry(name=f"{way}-{entry.name}", step=entry.step, settings=settings)
            )
            own[f"@{entry.name}"] = f"@{step.name}"
            steps[way].append(step)
    return steps


def once_recipe(comparison: Comparison) -> dict[str, Any]:
    """The recipe of the steps under ``once``, which are run only once."""
    steps = [entry.model_dump() for entry in comparison.once]
    return {"name": f"{comparison.name}, once", "seed": comparison.seeds[0], "steps": steps}


def as_recipe(comparison: Comparison, seed: int, once: Path) -> dict[str, Any]:
    """The recipe of one seed, as in its YAML file; ``once`` is the folder with the run of ``once_recipe``."""
    steps = [entry.model_dump() for entry in comparison.shared]
    of_ways = steps_of_ways(comparison)
    distinct = {step.name: step for of_way in of_ways.values() for step in of_way}
    steps += [_step(step.name, step.step, step.settings) for step in distinct.values()]
    last = {way: of_way[-1].name for way, of_way in of_ways.items()}
    if comparison.labelled is not None:
        steps.append(_step(LABELLED, "mix", {"data": [comparison.labelled]}))
    results = {}
    for trial in trials(comparison):
        steps += _steps_of(trial, comparison, last)
        results[f"{trial.way} {trial.rows}"] = f"{trial.measured}/{comparison.measure.figure}"
    done = {f"@{entry.name}": str(once / entry.name) for entry in comparison.once}
    return {
        "name": comparison.name,
        "description": comparison.description,
        "seed": seed,
        "steps": _with_replaced_references(steps, done),
        "results": results,
    }


def _with_replaced_references(value: Any, places: Mapping[str, str]) -> Any:
    """``value`` with references to the keys of ``places`` replaced.

    A reference is ``@name``, ``@name/part`` or ``@name:split``.
    """

    def replaced(text: str) -> str:
        name = re.split("[/:]", text, maxsplit=1)[0]
        return places[name] + text[len(name) :] if name in places else text

    return map_texts(value, replaced)


def _steps_of(trial: Trial, comparison: Comparison, last: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The steps of a trial: take the rows, add the human-labelled rows, train, and evaluate.

    ``last`` has the name of each way's last step, which makes its rows.
    """
    data = f"@{trial.data}"
    if trial.ways:
        mixed = {
            "data": [f"@{last[way]}" for way in trial.ways],
            "weight": [1.0] * len(trial.ways),
            "rows": trial.rows,
            "pick": [comparison.ways[way].pick for way in trial.ways],
        }
        yield _step(trial.data, "mix", mixed)
        if comparison.labelled is not None:
            both = f"{trial.data}-all"
            yield _step(both, "mix", {"data": [f"@{LABELLED}", data]})
            data = f"@{both}"
    train, measure = comparison.train, comparison.measure
    yield _step(trial.trained, train.step, {**train.settings, train.data: data})
    yield _step(trial.measured, measure.step, {**measure.settings, "model": f"@{trial.trained}"})


def _step(name: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "step": kind, "settings": dict(settings)}
