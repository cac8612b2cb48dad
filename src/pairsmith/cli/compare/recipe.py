"""Turns a comparison into recipes, which can be read, planned and run on their own."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairsmith.cli.compare.file import LABELLED, Comparison
from pairsmith.cli.setting_texts import map_texts


@dataclass(frozen=True, slots=True)
class Trial:
    """A model trained on ``rows`` rows of one way or of several; of none for human-labelled rows alone."""

    ways: tuple[str, ...]
    rows: int = 0

    @property
    def way(self) -> str:
        """The name of the way or mixture (``generate+mine``), or ``labelled``."""
        return "+".join(self.ways) or LABELLED

    @property
    def data(self) -> str:
        """The step whose folder holds the rows; the steps for its model and its score are named after it."""
        return f"{'-and-'.join(self.ways)}-{self.rows}" if self.ways else LABELLED

    @property
    def trained(self) -> str:
        """The step that trains the model."""
        return f"{self.data}-model"

    @property
    def measured(self) -> str:
        """The step that evaluates the model."""
        return f"{self.data}-score"


def trials(comparison: Comparison) -> list[Trial]:
    """All trials of a comparison with one seed, in order."""
    alone = [] if comparison.labelled is None else [Trial(())]
    mixes = [*((way,) for way in comparison.ways), *comparison.mixtures]
    return alone + [Trial(ways, rows) for ways in mixes for rows in sorted(comparison.rows)]


def steps_of_way(comparison: Comparison, way: str) -> list[str]:
    """The names of a way's steps in the recipe."""
    return [f"{way}-{entry.name}" for entry in comparison.ways[way].steps]


def once_recipe(comparison: Comparison) -> dict[str, Any]:
    """The recipe of the steps that are run only once."""
    steps = [entry.model_dump() for entry in comparison.once]
    return {"name": f"{comparison.name}, once", "seed": comparison.seeds[0], "steps": steps}


def as_recipe(comparison: Comparison, seed: int, once: Path) -> dict[str, Any]:
    """The recipe of one seed, as in its YAML file; ``once`` is the run folder of the steps run once."""
    steps = [entry.model_dump() for entry in comparison.shared]
    for way, definition in comparison.ways.items():
        own: dict[str, str] = {}  # references to earlier steps of the same way
        for entry in definition.steps:
            steps.append(_step(f"{way}-{entry.name}", entry.step, _led(entry.settings, own)))
            own[f"@{entry.name}"] = f"@{way}-{entry.name}"
    if comparison.labelled is not None:
        steps.append(_step(LABELLED, "mix", {"data": [comparison.labelled]}))
    results = {}
    for trial in trials(comparison):
        steps += _steps_of(trial, comparison)
        results[f"{trial.way} {trial.rows}"] = f"{trial.measured}/{comparison.measure.figure}"
    done = {f"@{entry.name}": str(once / entry.name) for entry in comparison.once}
    return {
        "name": comparison.name,
        "description": comparison.description,
        "seed": seed,
        "steps": _led(steps, done),
        "results": results,
    }


def _led(value: Any, places: Mapping[str, str]) -> Any:
    """``value`` with references to the keys of ``places`` replaced.

    A reference is ``@name``, ``@name/part`` or ``@name:split``.
    """

    def led(text: str) -> str:
        name = re.split("[/:]", text, maxsplit=1)[0]
        return places[name] + text[len(name) :] if name in places else text

    return map_texts(value, led)


def _steps_of(trial: Trial, comparison: Comparison) -> Iterator[dict[str, Any]]:
    """The steps that take the rows, add the human-labelled ones, train and evaluate."""
    data = f"@{trial.data}"
    if trial.ways:
        mixed = {
            "data": [f"@{steps_of_way(comparison, way)[-1]}" for way in trial.ways],
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
