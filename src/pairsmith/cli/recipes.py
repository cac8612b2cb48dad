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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from pairsmith.cli.expansion import MOST_STEPS, expanded_steps
from pairsmith.cli.overrides import ALL, Overrides, by_step, parsed
from pairsmith.cli.recipe_checks import extra_faults, figure_faults, label_faults
from pairsmith.cli.setting_texts import map_texts, texts_in
from pairsmith.cli.steps import SOURCE_SETTINGS, STEPS
from pairsmith.core.bundled import is_path, recipe_path
from pairsmith.core.errors import InputError, SettingsError, UserError, in_other_words, known_names_hint
from pairsmith.core.paths import Place, exists, is_url, place
from pairsmith.core.settings import NoEffectError, NothingIsEmpty, Settings
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, errors_of, shown_value
from pairsmith.core.yamlfile import YamlFile, read_yaml
from pairsmith.steps.step import Step, StepTable

RUN_REFERENCE = "@"
"""The reference to the folder of the run itself, with all earlier steps."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FILE = re.compile(r"(\.{0,2}/|~)[^:]*|[^:]*\.(txt|tsv|csv|jsonl?|parquet|ya?ml)(\.gz)?")
_REMEDY = "; give its path"
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
    of_file = seed is None
    reader = _Reader(file, steps, parsed(overrides), file.data.get("seed") if of_file else seed, of_file)
    reader.read()
    if reader.faults or reader.unplaced or file.duplicates:
        placed = file.report(reader.faults, reader.place_name)
        raise SettingsError("\n".join(filter(None, [*dict.fromkeys(reader.unplaced), placed])))
    extras = file.data.get("extras")
    extra_names = tuple(map(str, extras)) if isinstance(extras, list) else ()
    of_figures = figure_faults(reader.planned, reader.results)
    if faults := [*extra_faults(extra_names), *label_faults(reader.planned), *of_figures]:
        raise SettingsError("\n".join(f"{path}: {fault}" for fault in faults))
    return Recipe(
        str(file.data["name"]),
        tuple(reader.planned),
        reader.results,
        str(file.data.get("description") or ""),
        extra_names,
    )


@dataclass
class _Reader:
    """One pass over a recipe file, which collects the planned steps and the faults."""

    file: YamlFile
    step_table: StepTable
    overrides: Overrides
    of_all: Overrides = field(default_factory=dict, init=False)  # overrides by ``*``, for each step
    idle: set[str] = field(default_factory=set, init=False)  # settings of ``of_all`` without effect so far
    seed: Any
    seed_is_in_file: bool
    names: list[str] = field(default_factory=list)
    planned: list[PlannedStep] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    faults: list[ValidationFault] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)  # faults of overrides, which are not in the file

    def read(self) -> None:
        """Fill ``names``, ``planned``, ``results``, ``faults`` and ``unplaced``."""
        data = self.file.data
        try:
            RecipeFile.model_validate(data)
        except ValidationError as error:
            self.faults += errors_of(error, RecipeFile)
        steps = data.get("steps")
        entries = [
            (position, step)
            for position, entry in enumerate(steps if isinstance(steps, list) else [])
            for step in expanded_steps(entry)
        ]
        self.overrides, self.of_all, self.unplaced = by_step(
            self.overrides, [entry for _, entry in entries], self.step_table
        )
        self.idle = {setting for _, setting in self.of_all}
        for position, entry in entries:
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
                self._entry(("steps", position), entry)
                self.names.append(entry["name"])
        for setting in sorted(self.idle):
            self.unplaced.append(
                f"--set {ALL}.{setting}: has no effect in any step of the recipe; leave it out"
            )
        for name in sorted({name for name, _ in self.overrides} - set(self.names)):
            self.unplaced.append(
                f"--set {name}: the recipe has no such step; {known_names_hint(name, self.names)}"
            )
        results = data.get("results")
        for key, source in (results if isinstance(results, Mapping) else {}).items():
            if isinstance(source, str):
                text = _result_fault(source, self.names)
                if key in self.results:
                    text = f"a step has a figure called {key}, too; rename one of them"
                if text:
                    self._fault(("results", key), text)
                self.results[str(key)] = source

    def _fault(self, keys: KeyPath, text: str) -> None:
        what = text.partition(_REMEDY)[0]
        # An entry with ``each`` stands for several steps, which may have the same fault.
        if not any(fault.where == keys and fault.text.partition(_REMEDY)[0] == what for fault in self.faults):
            self.faults.append(ValidationFault(keys, text))

    def _entry(self, keys: KeyPath, entry: Mapping[str, Any]) -> None:
        name, kind = entry["name"], entry.get("step")
        if not _NAME.fullmatch(name):
            text = f"must be 1 to 64 letters, digits, hyphens or underscores, not {shown_value(name)}"
            self._fault((*keys, "name"), text)
        if name.casefold() in map(str.casefold, self.names):  # some systems ignore case in folder names
            self._fault((*keys, "name"), f"two steps are called {name}; rename one of them")
        of_step = entry.get("results")
        for key, source in (of_step if isinstance(of_step, Mapping) else {}).items():
            if key in self.results:
                self._fault((*keys, "results"), f"two figures are called {key}; rename one of them")
            if not isinstance(source, str) or not _KEYS.fullmatch(source):
                text = f"{key}: expected key.key of the step's results.json, not {shown_value(source)}"
                self._fault((*keys, "results"), text)
            self.results[str(key)] = f"{name}/{source}"
        if not isinstance(kind, str):
            return
        if kind not in self.step_table:
            self._fault(
                (*keys, "step"), f"no step is called {kind!r}; {known_names_hint(kind, self.step_table)}"
            )
            return
        settings = entry.get("settings") or {}
        if isinstance(settings, Mapping):
            step = self.step_table[kind]
            values = self._values((*keys, "settings"), name, step, settings)
            self.planned.append(PlannedStep(name, kind, step, values))

    def _values(self, keys: KeyPath, name: str, step: Step, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The step's settings with overrides, seed and absolute paths filled in; faults are collected."""
        values = {key: map_texts(value, self._beside) for key, value in settings.items()}
        own, of_all = (
            {key: value for (target, key), value in overrides.items() if target == name}
            for overrides in (self.overrides, self.of_all)
        )
        of_all = _with_effect(of_all, step, {**values, **own})
        self.idle -= of_all.keys()
        overrides = own | of_all
        earlier = [RUN_REFERENCE, *self.names] if step.of_runs and self.names else self.names
        for key, value in values.items():
            if key not in overrides:
                for text in _text_faults(value, earlier, f"{_REMEDY} with --set {name}.{key}=PATH"):
                    self._fault((*keys, key), text)
        for key, value in overrides.items():
            faults = list(_text_faults(value, earlier))
            if key in SOURCE_SETTINGS and not faults:
                faults += _missing(value)
            self.unplaced += [f"--set {name}.{key}: {text}" for text in faults]
        values |= overrides
        if self.seed is not None and "seed" in step.settings.model_fields:
            values.setdefault("seed", self.seed)
        errors = []
        try:
            step.settings.model_validate(values)
        except ValidationError as error:
            errors = errors_of(error, step.settings)
        words = {setting: setting for setting in step.settings.model_fields}
        for told in [*errors, *_check_faults(step, values)]:
            fault = replace(told, text=in_other_words(told.text, words))
            if fault.where and str(fault.where[0]) in overrides:
                self.unplaced.append(f"--set {dotted((name, *fault.where))}: {fault.text}")
            elif fault.where == ("seed",) and not self.seed_is_in_file and "seed" not in settings:
                self.unplaced.append(f"--seed: {fault.text}")
            else:
                self._fault((*keys, *fault.where), fault.text)
        return values

    def place_name(self, keys: KeyPath) -> str:
        """``keys`` as a message names them: ``pairs.top_k``, or ``step 2.top_k`` if the step has no name."""
        entries = self.file.data.get("steps")
        if len(keys) < 2 or keys[0] != "steps" or not isinstance(entries, list):
            return dotted(keys)
        position, inside = int(keys[1]), keys[2:]
        entry = entries[position]
        name = entry.get("name") if isinstance(entry, Mapping) else None
        step = name if isinstance(name, str) else f"step {position + 1}"
        return dotted((step, *(inside[1:] if len(inside) > 1 and inside[0] == "settings" else inside)))

    def _beside(self, text: str) -> str:
        """``text``; if it begins with ``./`` or ``../``, the absolute path from the recipe's folder."""
        if not text.startswith(("./", "../")):
            return text
        return str((self.file.path.parent / text).resolve())


def _with_effect(overrides: dict[str, Any], step: Step, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the overrides by ``*`` that have an effect in a step with these other settings."""
    try:
        step.settings.model_validate({**settings, **overrides})
    except ValidationError as error:
        causes = (detail.get("ctx", {}).get("error") for detail in error.errors())
        if idle := {cause.name for cause in causes if isinstance(cause, NoEffectError)} & overrides.keys():
            others = {key: value for key, value in overrides.items() if key not in idle}
            return _with_effect(others, step, settings)
    return overrides


def _text_faults(value: object, earlier: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Faults of the references and paths in ``value``; ``remedy`` is appended for a missing path."""
    for text in texts_in(value):
        if "\0" in text:
            yield f"{shown_value(text)} contains a NUL character, which no name may contain; remove it"
        elif text.startswith("@"):
            name = RUN_REFERENCE if text == RUN_REFERENCE else re.split("[/:]", text[1:], maxsplit=1)[0]
            if name not in earlier:
                names = [step for step in earlier if step != RUN_REFERENCE]
                earlier_names = known_names_hint(name, names) if names else "this is the first step"
                yield f"{text} refers to no earlier step; {earlier_names}"
        elif _FILE.fullmatch(text) and not is_url(text) and not exists(place(text)):
            location = "" if text.startswith(("/", "~")) else " in the current folder"
            hint = " (a path in the recipe's folder starts with ./)" if location and remedy else ""
            yield f"there is no {text}{location}{hint}{remedy}"


def _missing(value: object) -> Iterator[str]:
    """An error message for each text in ``value`` that can only be a file or folder, and does not exist."""
    from pairsmith.data.sources import check_there

    for text in texts_in(value):
        try:
            if not text.startswith("@"):
                check_there(text)
        except (InputError, SettingsError) as error:
            yield str(error)


def _check_faults(step: Step, values: Mapping[str, Any]) -> Iterator[ValidationFault]:
    """Faults that the step's own checks find; references and missing files are not checked."""
    for key, check in step.all_checks().items():
        value = values.get(key)
        if not isinstance(value, str) or value.startswith("@") or any(_text_faults(value, ())):
            continue
        try:
            check(value)
        except UserError as error:
            yield ValidationFault((key,), str(error))


def _result_fault(source: str, names: Sequence[str]) -> str | None:
    match = RESULT.fullmatch(source)
    if match is None:
        return f"expected `step/key.key`, `step:rows` or `step:rejects`, not {shown_value(source)}"
    if match["step"] not in names:
        return f"the recipe has no step {match['step']!r}; {known_names_hint(match['step'], names)}"
    return None
