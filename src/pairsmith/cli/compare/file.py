"""Comparison files: how rows are made, which model is trained on them, and how it is evaluated.

A comparison is turned into recipes, one for each seed. In a recipe, each way makes its rows once; then for
each number n in ``rows``, n of these rows are taken, and a model is trained on them and evaluated.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pairsmith.cli.recipes import Entry
from pairsmith.core.bundled import comparison_path, is_path
from pairsmith.core.errors import SettingsError, known_names_hint
from pairsmith.core.settings import NothingIsEmpty, Settings
from pairsmith.core.validation import ValidationFault, errors_of, shown_value
from pairsmith.core.yamlfile import YamlFile, read_yaml

MOST_SEEDS = 10
LABELLED = "labelled"
"""Name of the human-labelled rows, beside the names of the ways."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")


class Way(Settings):
    """A way to make rows: a list of steps, of which the last one makes the rows."""

    steps: tuple[Entry, ...] = Field(min_length=1, description="The steps, in order.")
    pick: Literal["first", "random"] = Field(
        default="first",
        description="Which of its rows are taken: the first ones, for example of ranked rows, or a random "
        "sample.",
    )


class TrainingEntry(Settings):
    """The training step that trains a model on the rows."""

    step: str = Field(description="The training step: train-encoder, train-reader, …")
    data: str = Field(default="data", description="Name of its setting for the training rows.")
    settings: Annotated[dict[str, Any], NothingIsEmpty] = Field(default={}, description="Its other settings.")


class EvaluationEntry(Settings):
    """The step that evaluates the trained models."""

    step: str = Field(description="The evaluation step: evaluate-sts, evaluate-qa, …")
    figure: str = Field(description="The figure to compare, as `key.key` in the step's results.json.")
    settings: Annotated[dict[str, Any], NothingIsEmpty] = Field(
        default={}, description="Its settings, except the model."
    )


class Comparison(Settings):
    """The content of a comparison file."""

    name: str = Field(description="The comparison's name.")
    description: str = Field(default="", description="What is compared, for people.")
    names: Annotated[dict[str, Any], NothingIsEmpty] = Field(
        default={},
        description="Instructions, seeds, corpora, models and data for the evaluation, by names of your own; "
        "a setting $NAME stands for one of them.",
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(1, 2, 3),
        min_length=1,
        max_length=MOST_SEEDS,
        description="Seeds; the whole comparison is run with each of them.",
    )
    rows: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="Numbers of rows of a way to train on; several numbers give a curve."
    )
    labelled: str | None = Field(
        default=None,
        description="Human-labelled rows: a model is trained on them alone, and they are added to the rows "
        "of every way.",
    )
    once: tuple[Entry, ...] = Field(
        default=(),
        description="Steps that are run only once, with the first seed; all other steps may read their "
        "folders.",
    )
    shared: tuple[Entry, ...] = Field(
        default=(), description="Steps that are run for each seed, and whose folders all ways may read."
    )
    ways: dict[str, Way] = Field(min_length=1, description="The ways to make rows, by their names.")
    mixtures: tuple[tuple[str, ...], ...] = Field(
        default=(), description="Ways whose rows are mixed in equal parts: [[generate, mine], …]."
    )
    train: TrainingEntry
    measure: EvaluationEntry


def find_comparison(name_or_path: str) -> Path:
    """The path of a comparison file, given as a path or as the name of a built-in comparison."""
    return Path(name_or_path) if is_path(name_or_path) else comparison_path(name_or_path)


def read_comparison(path: Path) -> Comparison:
    """Read the comparison in the YAML file at ``path``, with values for its ``$names`` and absolute paths.

    Raises:
        SettingsError: the file has faults; its message lists all of them.
    """
    file = read_yaml(path, SettingsError)
    faults = []
    try:
        comparison = Comparison.model_validate(_placed(file))
        faults = list(_faults_between(comparison))
    except ValidationError as error:
        faults = errors_of(error, Comparison)
    if faults or file.duplicates:
        raise SettingsError(file.report(faults))
    return comparison


def _placed(file: YamlFile) -> dict[Any, Any]:
    """The file's data with each ``$name`` replaced by its value, and relative paths made absolute."""
    names = file.data.get("names")
    values = names if isinstance(names, Mapping) else {}
    folder = file.path.resolve().parent
    unknown: list[ValidationFault] = []

    def placed(value: Any, keys: tuple[str | int, ...], within: tuple[str, ...] = ()) -> Any:
        if isinstance(value, Mapping):
            return {key: placed(part, (*keys, key), within) for key, part in value.items()}
        if isinstance(value, list):
            return [placed(part, (*keys, place), within) for place, part in enumerate(value)]
        if isinstance(value, str) and re.fullmatch(r"\$\w+", value):
            if value[1:] not in values:
                fault = f"{value} is not defined under names; {known_names_hint(value[1:], map(str, values))}"
            elif value in within:
                fault = f"{value} refers to itself: {' → '.join((*within, value))}"
            else:
                return placed(values[value[1:]], keys, (*within, value)) if keys[0] != "names" else value
            unknown.append(ValidationFault(keys, fault))
            return value
        if isinstance(value, str) and value.startswith(("./", "../")):
            return str((folder / value).resolve())
        return value

    data = {key: placed(value, (str(key),)) for key, value in file.data.items()}
    if unknown:
        raise SettingsError(file.report(unknown))
    return data


def _faults_between(comparison: Comparison) -> list[ValidationFault]:
    """Faults in the combination of values that are each valid on their own."""
    faults = []
    for name in ("seeds", "rows"):
        values = getattr(comparison, name)
        if len(set(values)) != len(values):
            faults.append(
                ValidationFault((name,), f"give each value once, not {', '.join(map(str, values))}")
            )
    faults += [
        ValidationFault(
            ("ways", name), f"must be 1 to 32 letters, digits or underscores, not {shown_value(name)}"
        )
        for name in comparison.ways
        if not _NAME.fullmatch(name)
    ]
    for place, mixture in enumerate(comparison.mixtures):
        where = ("mixtures", place)
        if len(mixture) < 2 or len(set(mixture)) != len(mixture):
            faults.append(ValidationFault(where, "a mixture needs two or more ways, each named once"))
        faults += [
            ValidationFault(where, f"no way is called {name!r}; {known_names_hint(name, comparison.ways)}")
            for name in mixture
            if name not in comparison.ways
        ]
    if LABELLED in comparison.ways:
        text = "is the name of the human-labelled rows given under labelled; give the way another name"
        faults.append(ValidationFault(("ways", LABELLED), text))
    return faults
