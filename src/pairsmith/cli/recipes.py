"""Recipe files: a YAML list of steps, checked as a whole before the first one starts.

A value that begins with ``@`` refers to the folder of an earlier step: ``@pairs`` is RUN/pairs,
``@pairs/data`` a folder in it, and ``@pairs:validation`` a split of it. In a report, ``@`` alone is the
folder of the run with all earlier steps. A value that begins with ``./`` or ``../`` is a path relative to the
recipe's folder. Any other value means the same as on the command line, so ``task: sts`` is never a folder
called sts.

A step with ``each: {model: [small, large]}`` stands for two steps, in which ``{model}`` in the name, settings
and results is replaced by ``small`` and by ``large``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from pairsmith.cli.expansion import MOST_STEPS, expanded_steps
from pairsmith.cli.overrides import ALL, Overrides, by_step, parsed
from pairsmith.cli.recipe_checks import extra_faults, figure_faults, label_faults
from pairsmith.cli.setting_texts import map_texts, texts_in
from pairsmith.cli.steps import STEPS
from pairsmith.cli.value_checks import REMEDY, value_faults
from pairsmith.core.bundled import is_path, recipe_path
from pairsmith.core.errors import SettingsError, known_names_hint
from pairsmith.core.paths import Place
from pairsmith.core.settings import NoEffectError, NothingIsEmpty, Settings
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, errors_of, shown_value
from pairsmith.core.yamlfile import YamlFile, read_yaml
from pairsmith.steps.step import Step, StepTable

RUN_REFERENCE = "@"
"""The reference to the folder of the run itself, with all earlier steps."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEYS = re.compile(r"[^/:]+")
RESULT = re.compile(r"(?P<step>[^/:]+)(/(?P<keys>.+)|:(?P<count>rows|rejects))")


class Entry(Settings):
    """One step of a recipe."""

    name: str = Field(description="Name of the step in this recipe; its folder is RUN/name.")
    step: str = Field(description="The command that it runs: generate, postprocess, …")
    settings: Annotated[dict[str, Any], NothingIsEmpty] = Field(
        default={}, description="Its settings, as on the command line."
    )
    each: dict[str, Annotated[list[str | int | float], Field(min_length=1)]] = Field(
        default={},
        description="Names, each with a list of values: the entry stands for one step for each combination "
        "of values, which replace {NAME} in the entry's name, settings and results.",
    )
    results: dict[str, str] = Field(
        default={},
        description="Figures of this step for the table at the end: a name, and `key.key` in its "
        "results.json.",
    )

    @field_validator("each")
    @classmethod
    def _not_too_many(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if (steps := prod(map(len, grid.values()))) > MOST_STEPS:
            raise ValueError(
                f"stands for {steps:,} steps, more than the {MOST_STEPS:,} allowed; give fewer values"
            )
        return grid


class RecipeFile(Settings):
    """The content of a recipe file."""

    name: str = Field(description="The recipe's name.")
    description: str = Field(default="", description="What the recipe does and costs, for people.")
    seed: int | None = Field(
        default=None, ge=0, description="Seed of every step that has the setting seed and gives it no value."
    )
    extras: tuple[str, ...] = Field(
        default=(), description="Extras of pairsmith that the steps need; checked before the first step."
    )
    steps: tuple[Entry, ...] = Field(min_length=1, description="The steps, in order.")
    results: Annotated[dict[str, str], NothingIsEmpty] = Field(
        default={},
        description="Figures for the table at the end: a name, and `step/key.key` in a step's results.json, "
        "or `step:rows` or `step:rejects` in its manifest.",
    )


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of a recipe, after all checks.

    Attributes:
        name: the step's name in the recipe.
        kind: the name of the command that it runs, such as ``generate``.
        step: the entry of that command in the table of steps.
        values: the values of its settings, which may be references to earlier steps (``@name``).
    """

    name: str
    kind: str
    step: Step
    values: Mapping[str, Any]

    def settings(self, run: Place) -> Any:
        """The settings, with references replaced by folders in ``run``."""

        def folder(text: str) -> str:
            return str(run / text[1:]) if text.startswith("@") else text

        return self.step.settings.model_validate(map_texts(self.values, folder))

    def references(self) -> list[str]:
        """The references to earlier steps (``@name``) among the values."""
        texts = (text for value in self.values.values() for text in texts_in(value))
        return [text for text in texts if text.startswith("@")]

    def keys(self) -> dict[str, str]:
        """The name of each setting in messages about the recipe, ``pairs.top_k`` for ``top_k``."""
        return {name: f"{self.name}.{name}" for name in self.step.settings.model_fields}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe that has passed all checks and can be run."""

    name: str
    steps: tuple[PlannedStep, ...]
    results: Mapping[str, str]
    description: str = ""
    extras: tuple[str, ...] = ()


def find_recipe(name_or_path: str) -> Path:
    """The path of a recipe file, given as a path or as the name of a built-in recipe."""
    return Path(name_or_path) if is_path(name_or_path) else recipe_path(name_or_path)


def load_recipe(
    path: Path, steps: StepTable = STEPS, *, seed: int | None = None, overrides: Sequence[str] = ()
) -> Recipe:
    """Read and check the recipe at ``path``: every step, setting, reference and result.

    Args:
        path: a YAML file.
        steps: the table of the steps that a recipe can run.
        seed: replaces the recipe's seed.
        overrides: texts such as ``step.setting=value``, which replace settings of the recipe; paths in them
            are relative to the current folder.

    Raises:
        SettingsError: the recipe or an override has faults; its message lists all of them.
    """
    file = read_yaml(path, SettingsError)
    reader = _Reader(file, steps, seed)
    planned, figures = reader.read(parsed(overrides))
    if reader.in_file or reader.of_options or file.duplicates:
        placed = file.report(reader.in_file, partial(_place_name, file.data.get("steps")))
        raise SettingsError("\n".join(filter(None, [*dict.fromkeys(reader.of_options), placed])))
    extras = file.data.get("extras")
    extra_names = tuple(map(str, extras)) if isinstance(extras, list) else ()
    of_figures = figure_faults(planned, figures)
    if faults := [*extra_faults(extra_names), *label_faults(planned), *of_figures]:
        raise SettingsError("\n".join(f"{path}: {fault}" for fault in faults))
    return Recipe(
        str(file.data["name"]),
        tuple(planned),
        figures,
        str(file.data.get("description") or ""),
        extra_names,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads a recipe file, and collects its faults and the faults of options that change its settings.

    Attributes:
        file: the recipe file.
        table: the table of the steps that a recipe can run.
        seed: the value of ``--seed``; None without this option.
        in_file: the faults in the file.
        of_options: messages about options, which are not in the file.
    """

    file: YamlFile
    table: StepTable
    seed: int | None
    in_file: list[ValidationFault] = field(default_factory=list)
    of_options: list[str] = field(default_factory=list)

    def read(self, overrides: Overrides) -> tuple[list[PlannedStep], dict[str, str]]:
        """The steps, with their settings changed by ``overrides``, and the figures, each with its source.

        If there are faults, some of the steps and figures are missing.
        """
        try:
            RecipeFile.model_validate(self.file.data)
        except ValidationError as error:
            self.in_file.extend(errors_of(error, RecipeFile))
        listed = self.file.data.get("steps")
        entries: list[tuple[KeyPath, Any]] = [
            (("steps", position), step)
            for position, entry in enumerate(listed if isinstance(listed, list) else [])
            for step in expanded_steps(entry)
        ]
        of_one, of_all, messages = by_step(overrides, [entry for _, entry in entries], self.table)
        self.of_options.extend(messages)
        idle = {setting for _, setting in of_all}  # without effect in all steps so far
        names: list[str] = []
        planned: list[PlannedStep] = []
        figures: dict[str, str] = {}
        for keys, entry in entries:
            if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
                continue
            name = entry["name"]
            self._check_name(keys, name, names)
            self._add_figures(keys, entry, figures)
            step, own_settings = self._step(keys, entry.get("step")), entry.get("settings") or {}
            if step is not None and isinstance(own_settings, Mapping):
                settings = {key: map_texts(value, self._absolute) for key, value in own_settings.items()}
                own = _of_step(name, of_one)
                shared = _with_effect(_of_step(name, of_all), step, settings | own)
                idle -= shared.keys()
                of_file = PlannedStep(name, entry["step"], step, settings)
                planned.append(self._changed(keys, of_file, own | shared, names))
            names.append(name)
        self.of_options.extend(
            f"--set {ALL}.{setting}: has no effect in any step of the recipe; leave it out"
            for setting in sorted(idle)
        )
        self.of_options.extend(
            f"--set {name}: the recipe has no such step; {known_names_hint(name, names)}"
            for name in sorted({name for name, _ in of_one} - set(names))
        )
        self._add_figures_of_recipe(figures, names)
        return planned, figures

    def _add(self, keys: KeyPath, text: str) -> None:
        """Add a fault in the file, unless another step of the same ``each`` has it, too."""
        earlier = (fault.text.partition(REMEDY)[0] for fault in self.in_file if fault.where == keys)
        if text.partition(REMEDY)[0] not in earlier:
            self.in_file.append(ValidationFault(keys, text))

    def _check_name(self, keys: KeyPath, name: str, earlier: Sequence[str]) -> None:
        if not _NAME.fullmatch(name):
            text = f"must be 1 to 64 letters, digits, hyphens or underscores, not {shown_value(name)}"
            self._add((*keys, "name"), text)
        if name.casefold() in map(str.casefold, earlier):  # some systems ignore case in folder names
            self._add((*keys, "name"), f"two steps are called {name}; rename one of them")

    def _step(self, keys: KeyPath, kind: object) -> Step | None:
        """The step in the table that an entry runs; None if there is none."""
        if isinstance(kind, str) and kind not in self.table:
            self._add((*keys, "step"), f"no step is called {kind!r}; {known_names_hint(kind, self.table)}")
        return self.table.get(kind) if isinstance(kind, str) else None

    def _add_figures(self, keys: KeyPath, entry: Mapping[str, Any], figures: dict[str, str]) -> None:
        """Add the figures of an entry to the figures of the entries before it."""
        of_step = entry.get("results")
        for key, source in (of_step if isinstance(of_step, Mapping) else {}).items():
            if key in figures:
                self._add((*keys, "results"), f"two figures are called {key}; rename one of them")
            if not isinstance(source, str) or not _KEYS.fullmatch(source):
                text = f"{key}: expected key.key of the step's results.json, not {shown_value(source)}"
                self._add((*keys, "results"), text)
            figures[str(key)] = f"{entry['name']}/{source}"

    def _add_figures_of_recipe(self, figures: dict[str, str], names: Sequence[str]) -> None:
        """Add the figures under the recipe's own ``results`` to the figures of its steps ``names``."""
        results = self.file.data.get("results")
        for key, source in (results if isinstance(results, Mapping) else {}).items():
            if not isinstance(source, str):
                continue
            text = _result_fault(source, names)
            if key in figures:
                text = f"a step has a figure called {key}, too; rename one of them"
            if text:
                self._add(("results", key), text)
            figures[str(key)] = source

    def _changed(
        self, keys: KeyPath, step: PlannedStep, overrides: Mapping[str, Any], earlier: Sequence[str]
    ) -> PlannedStep:
        """``step`` with the values of ``overrides`` and the recipe's seed; faults are collected.

        ``keys`` leads to the step's entry in the file; ``earlier`` are the names of the steps before it.
        """
        values = {**step.values, **overrides}
        options = {setting: f"--set {step.name}.{setting}" for setting in overrides}
        seed = self.file.data.get("seed") if self.seed is None else self.seed
        if seed is not None and "seed" in step.step.settings.model_fields and "seed" not in values:
            values["seed"] = seed
            options |= {} if self.seed is None else {"seed": "--seed"}
        changed = replace(step, values=values)
        references = [RUN_REFERENCE, *earlier] if step.step.of_runs and earlier else earlier
        for fault in value_faults(changed, options, references):
            if fault.where and (option := options.get(str(fault.where[0]))):
                self.of_options.append(f"{dotted((option, *fault.where[1:]))}: {fault.text}")
            else:
                self._add((*keys, "settings", *fault.where), fault.text)
        return changed

    def _absolute(self, text: str) -> str:
        """``text``; if it begins with ``./`` or ``../``, the absolute path from the recipe's folder."""
        if not text.startswith(("./", "../")):
            return text
        return str((self.file.path.parent / text).resolve())


def _place_name(entries: object, keys: KeyPath) -> str:
    """``keys`` as a message names them: ``pairs.top_k``, or ``step 2.top_k`` if the step has no name.

    ``entries`` is what the file has under ``steps``.
    """
    if len(keys) < 2 or keys[0] != "steps" or not isinstance(entries, list):
        return dotted(keys)
    position, inside = int(keys[1]), keys[2:]
    entry = entries[position]
    name = entry.get("name") if isinstance(entry, Mapping) else None
    step = name if isinstance(name, str) else f"step {position + 1}"
    return dotted((step, *(inside[1:] if len(inside) > 1 and inside[0] == "settings" else inside)))


def _of_step(name: str, overrides: Overrides) -> dict[str, Any]:
    """The overrides of the step ``name``, by setting."""
    return {setting: value for (target, setting), value in overrides.items() if target == name}


def _with_effect(overrides: dict[str, Any], step: Step, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides by ``*`` that have an effect in a step with these other settings."""
    try:
        step.settings.model_validate({**settings, **overrides})
    except ValidationError as error:
        causes = (detail.get("ctx", {}).get("error") for detail in error.errors())
        if idle := {cause.name for cause in causes if isinstance(cause, NoEffectError)} & overrides.keys():
            others = {key: value for key, value in overrides.items() if key not in idle}
            return _with_effect(others, step, settings)
    return overrides


def _result_fault(source: str, names: Sequence[str]) -> str | None:
    match = RESULT.fullmatch(source)
    if match is None:
        return f"expected `step/key.key`, `step:rows` or `step:rejects`, not {shown_value(source)}"
    if match["step"] not in names:
        return f"the recipe has no step {match['step']!r}; {known_names_hint(match['step'], names)}"
    return None
