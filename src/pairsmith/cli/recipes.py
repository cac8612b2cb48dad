"""Recipe files: a YAML list of steps, checked as a whole before the first one starts.

A setting that begins with ``@`` refers to the folder of an earlier step: ``@pairs`` is RUN/pairs,
``@pairs/data`` a folder in it, ``@pairs:validation`` a split of it, and ``@`` alone, for a report, the folder
of the run with all earlier steps. A setting that begins with ``./`` or
``../`` is a path relative to the recipe's folder.
Any other value means what it means on the command line, so ``task: sts`` is never a folder called sts.

A step with ``each: {model: [small, large]}`` stands for two steps, with these values in place of ``{model}``
in its name, settings and results.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from pairsmith.cli.overrides import ALL, Overrides, by_step, parsed
from pairsmith.cli.recipe_checks import extra_faults, label_faults
from pairsmith.cli.setting_texts import map_texts, texts_in
from pairsmith.cli.steps import SOURCE_SETTINGS, STEPS
from pairsmith.core.bundled import is_path, recipe_path
from pairsmith.core.errors import InputError, SettingsError, UserError, known_names_hint
from pairsmith.core.paths import Place, is_folder, is_url, place, size_of
from pairsmith.core.settings import NoEffectError, NothingIsEmpty, Settings
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, errors_of, shown_value
from pairsmith.core.yamlfile import YamlFile, read_yaml
from pairsmith.steps.step import Step, StepTable

RUN_REFERENCE = "@"
"""The reference to the folder of the run itself, with all earlier steps."""

MOST_STEPS = 10_000
"""The most steps that one with ``each`` stands for."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FILE = re.compile(r"(\.{0,2}/|~)[^:]*|[^:]*\.(txt|tsv|csv|jsonl?|parquet|ya?ml)(\.gz)?")
_REMEDY = "; give its path"
_KEYS = re.compile(r"[^/:]+")
RESULT = re.compile(r"(?P<step>[^/:]+)(/(?P<keys>.+)|:(?P<count>rows|rejects))")


class Entry(Settings):
    """One step of a recipe."""

    name: str = Field(description="What the recipe calls this step; its folder is RUN/name.")
    step: str = Field(description="Which step: generate, postprocess, …")
    settings: Annotated[dict[str, Any], NothingIsEmpty] = Field(
        default={}, description="Its settings, as on the command line."
    )
    each: dict[str, Annotated[list[str | int | float], Field(min_length=1)]] = Field(
        default={},
        description="Names and values: the step stands for one step for each combination of the values, with "
        "them in place of {NAME} in its name, settings and results.",
    )
    results: dict[str, str] = Field(
        default={}, description="Its figures in the table at the end: `key.key` from its results.json."
    )

    @field_validator("each")
    @classmethod
    def _not_too_many(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if (steps := prod(map(len, grid.values()))) > MOST_STEPS:
            raise ValueError(f"makes {steps:,} steps of one, more than {MOST_STEPS:,}; give fewer values")
        return grid


class RecipeFile(Settings):
    """The content of a recipe file."""

    name: str = Field(description="The recipe's name.")
    description: str = Field(default="", description="What it does and what it costs, for people.")
    seed: int | None = Field(default=None, ge=0, description="Seed of every step that has one and sets none.")
    extras: tuple[str, ...] = Field(
        default=(), description="Extras of pairsmith that its steps need; asked for before the first step."
    )
    steps: tuple[Entry, ...] = Field(min_length=1, description="The steps, in order.")
    results: Annotated[dict[str, str], NothingIsEmpty] = Field(
        default={},
        description="Figures of the table at the end: `step/key.key` from a step's results.json, `step:rows` "
        "or `step:rejects` from its manifest.",
    )


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of a recipe, checked; ``values`` may still hold references (``@name``)."""

    name: str
    kind: str
    step: Step
    values: Mapping[str, Any]

    def settings(self, run: Place) -> Any:
        """The settings, with references replaced by folders in ``run``."""

        def folder(text: str) -> str:
            return str(run / text[1:]) if text.startswith("@") else text

        return self.step.settings.model_validate(map_texts(self.values, folder))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A checked recipe that can be run."""

    name: str
    steps: tuple[PlannedStep, ...]
    results: Mapping[str, str]
    description: str = ""
    extras: tuple[str, ...] = ()


def find_recipe(name_or_path: str) -> Path:
    """The file of a recipe given by its path, or by the name of one that ships with pairsmith."""
    return Path(name_or_path) if is_path(name_or_path) else recipe_path(name_or_path)


def load_recipe(
    path: Path, steps: StepTable = STEPS, *, seed: int | None = None, overrides: Sequence[str] = ()
) -> Recipe:
    """Read and check the recipe at ``path``: every step, setting, reference and result.

    ``seed`` and ``overrides``, each ``step.setting=value``, replace what the recipe says; paths in overrides
    are relative to the current folder.
    """
    file = read_yaml(path, SettingsError)
    reader = _Reader(file, steps, parsed(overrides), file.data.get("seed") if seed is None else seed)
    reader.read()
    if reader.faults or reader.unplaced or file.duplicates:
        placed = file.report(reader.faults, reader.place_name)
        raise SettingsError("\n".join(filter(None, [*reader.unplaced, placed])))
    extras = file.data.get("extras")
    wanted = tuple(map(str, extras)) if isinstance(extras, list) else ()
    if faults := [*extra_faults(wanted), *label_faults(reader.planned)]:
        raise SettingsError("\n".join(f"{path}: {fault}" for fault in faults))
    return Recipe(
        str(file.data["name"]),
        tuple(reader.planned),
        reader.results,
        str(file.data.get("description") or ""),
        wanted,
    )


@dataclass
class _Reader:
    """One pass over a recipe file, which collects the planned steps and the faults."""

    file: YamlFile
    step_table: StepTable
    overrides: Overrides
    of_all: Overrides = field(default_factory=dict, init=False)  # those of all steps that have the setting
    idle: set[str] = field(default_factory=set, init=False)  # settings of these that no step has taken
    seed: Any
    names: list[str] = field(default_factory=list)
    planned: list[PlannedStep] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    faults: list[ValidationFault] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)  # faults of overrides, which have no line in the file

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
        outcome = by_step(self.overrides, [entry for _, entry in entries], self.step_table)
        self.overrides, self.of_all, faults = outcome
        self.idle = {setting for _, setting in self.of_all}
        self.unplaced += faults
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
        # Several steps may be made from one entry.
        if not any(fault.where == keys and fault.text.partition(_REMEDY)[0] == what for fault in self.faults):
            self.faults.append(ValidationFault(keys, text))

    def _entry(self, keys: KeyPath, entry: Mapping[str, Any]) -> None:
        name, kind = entry["name"], entry.get("step")
        if not _NAME.fullmatch(name):
            text = f"must be 1 to 64 letters, digits, hyphens or underscores, not {shown_value(name)}"
            self._fault((*keys, "name"), text)
        if name.casefold() in map(str.casefold, self.names):  # folders, on some systems in either case
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
        """The step's settings with overrides, seed and paths filled in; faults are collected on the way."""
        values = {key: map_texts(value, self._beside) for key, value in settings.items()}
        of_all = self._those_of_all(name, step, values)
        self.overrides |= {(name, key): value for key, value in of_all.items()}
        self.idle -= of_all.keys()
        earlier = [RUN_REFERENCE, *self.names] if step.of_runs and self.names else self.names
        for key, value in values.items():
            if (name, key) not in self.overrides:
                for text in _text_faults(value, earlier, f"{_REMEDY} with --set {name}.{key}=PATH"):
                    self._fault((*keys, key), text)
        for (target, key), value in self.overrides.items():
            if target == name:
                values[key] = value
                faults = list(_text_faults(value, earlier))
                if key in SOURCE_SETTINGS and not faults:
                    faults += _missing(value)
                self.unplaced += [f"--set {name}.{key}: {text}" for text in faults]
        if self.seed is not None and "seed" in step.settings.model_fields:
            values.setdefault("seed", self.seed)
        errors = []
        try:
            step.settings.model_validate(values)
        except ValidationError as error:
            errors = errors_of(error, step.settings)
        for fault in [*errors, *_check_faults(step, values)]:
            if fault.where and (name, str(fault.where[0])) in self.overrides:
                self.unplaced.append(f"--set {dotted((name, *fault.where))}: {fault.text}")
            else:
                self._fault((*keys, *fault.where), fault.text)
        return values

    def _those_of_all(self, name: str, step: Step, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The overrides of all steps for one of them, without those that would have no effect in it."""
        own = {key: value for (target, key), value in self.overrides.items() if target == name}
        overrides = {key: value for (target, key), value in self.of_all.items() if target == name}
        while True:
            try:
                step.settings.model_validate({**settings, **own, **overrides})
            except ValidationError as error:
                causes = (detail.get("ctx", {}).get("error") for detail in error.errors())
                idle = {cause.name for cause in causes if isinstance(cause, NoEffectError)} & overrides.keys()
                if idle:
                    overrides = {key: value for key, value in overrides.items() if key not in idle}
                    continue
            return overrides

    def place_name(self, keys: KeyPath) -> str:
        """``keys`` for a message, with a step's name: ``pairs.top_k``, or ``step 2`` if it has none."""
        entries = self.file.data.get("steps")
        if len(keys) < 2 or keys[0] != "steps" or not isinstance(entries, list):
            return dotted(keys)
        position, inside = int(keys[1]), keys[2:]
        entry = entries[position]
        name = entry.get("name") if isinstance(entry, Mapping) else None
        step = name if isinstance(name, str) else f"step {position + 1}"
        return dotted((step, *(inside[1:] if len(inside) > 1 and inside[0] == "settings" else inside)))

    def _beside(self, text: str) -> str:
        """``text``; if it is a path relative to the recipe's folder, as an absolute path."""
        if not text.startswith(("./", "../")):
            return text
        return str((self.file.path.parent / text).resolve())


def expanded_steps(entry: Any) -> list[Any]:
    """The steps that an entry of a recipe stands for: itself, unless it has ``each``."""
    grid = entry.get("each") if isinstance(entry, Mapping) else None
    if not isinstance(grid, Mapping) or not all(isinstance(values, list) for values in grid.values()):
        return [entry]
    if prod(map(len, grid.values())) > MOST_STEPS:  # reported as a fault
        return []
    rest = {key: value for key, value in entry.items() if key != "each"}
    return [
        _filled(rest, dict(zip(map(str, grid), values, strict=True))) for values in product(*grid.values())
    ]


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """``value`` with the values in place of their names in braces, in all texts and keys."""
    if isinstance(value, str):
        if value.startswith("{") and value.endswith("}") and value[1:-1] in values:
            return values[value[1:-1]]  # as it is, e.g. a number
        for name, replacement in values.items():
            value = value.replace(f"{{{name}}}", str(replacement))
        return value
    if isinstance(value, Mapping):
        return {_filled(key, values): _filled(part, values) for key, part in value.items()}
    return [_filled(part, values) for part in value] if isinstance(value, list) else value


def _text_faults(value: object, earlier: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Faults of the references and paths in ``value``; ``remedy`` is appended for a missing path."""
    for text in texts_in(value):
        if "\0" in text:
            yield f"{shown_value(text)} holds a NUL character, which no name can hold; remove it"
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
    """An error for each text in ``value`` that can only be a file or folder, and does not exist."""
    from pairsmith.data.sources import check_there

    for text in texts_in(value):
        try:
            if not text.startswith("@"):
                check_there(text)
        except (InputError, SettingsError) as error:
            yield str(error)


def _check_faults(step: Step, values: Mapping[str, Any]) -> Iterator[ValidationFault]:
    """Faults that the step's own checks find in settings other than references and missing files."""
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


def exists(path: Place) -> bool:
    """Whether there is a file or folder at ``path``."""
    try:
        return path.exists() if isinstance(path, Path) else is_folder(path) or size_of(path) is not None
    except OSError:  # a text that is too long for a path
        return False
