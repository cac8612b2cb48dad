"""Overrides of a recipe's settings: ``STEP.SETTING=VALUE``, ``SETTING=VALUE`` and ``*.SETTING=VALUE``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from pairsmith.cli.setting_texts import texts_in
from pairsmith.core.errors import SettingsError
from pairsmith.steps.step import StepTable

ALL = "*"
"""Stands for all steps that have the setting, in place of a step's name."""

Overrides = dict[tuple[str, str], Any]
"""Values by the names of step and setting. The step's name is ``""`` if the override names no step."""


def parsed(texts: Iterable[str]) -> Overrides:
    """Parse overrides such as ``pairs.top_k=10``; values are YAML, or text if they are not valid YAML."""
    overrides: Overrides = {}
    for text in texts:
        target, equals, value = text.partition("=")
        name, dot, setting = target.rpartition(".")
        if not (equals and setting) or (dot and not name) or "." in name:
            raise SettingsError(f"--set {text}: expected STEP.SETTING=VALUE, for example pairs.top_k=10")
        key = name, setting.replace("-", "_")
        if key in overrides:
            raise SettingsError(f"--set {target} is given more than once; give it once")
        try:
            overrides[key] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):
            overrides[key] = value
    return overrides


def by_step(
    overrides: Overrides, entries: Sequence[Any], steps: StepTable
) -> tuple[Overrides, Overrides, list[str]]:
    """Find the step of each override among a recipe's entries; ``steps`` is the table of the kinds of steps.

    An override that names no step applies to the only step whose entry gives the setting a value; if no entry
    does, to the only step that has the setting; if no step has it otherwise, to the only step in which the
    setting refers to an earlier step. A second override that names this step and setting is a fault. An
    override of all steps (``*``) changes neither the steps with an override of their own nor the steps in
    which the setting refers to an earlier step.

    Returns:
        the overrides of single steps, the overrides that ``*`` makes in each step, and an error message for
        each override without a step, and for each whose value another override sets, too.
    """
    mappings = [entry for entry in entries if isinstance(entry, Mapping)]
    of_one = {target: value for target, value in overrides.items() if target[0] not in ("", ALL)}
    of_all: Overrides = {}
    faults: list[str] = []
    for (name, setting), value in sorted(overrides.items()):  # "" sorts before ALL, and takes precedence
        if name == "":
            targets, fault = _target_step(setting, mappings, steps)
            if targets and (targets[0], setting) in overrides:
                target = f"{targets[0]}.{setting}"
                fault = f"--set {setting} and --set {target} set the same value; leave one of them out"
        elif name == ALL:
            having = [entry for entry in mappings if _has(entry, setting, steps)]
            targets = [str(entry.get("name")) for entry in having if not _refers(entry, setting)]
            why = (
                "every step takes this setting from an earlier step"
                if having
                else "no step of the recipe has this setting"
            )
            fault = "" if targets else f"--set {ALL}.{setting}: {why}"
        else:
            continue
        faults += [fault] if fault else []
        for step in targets:
            if (step, setting) not in of_one:
                (of_all if name == ALL else of_one)[step, setting] = value
    return of_one, of_all, faults


def _target_step(
    setting: str, entries: Sequence[Mapping[Any, Any]], steps: StepTable
) -> tuple[list[str], str]:
    """The step that an override without a step's name is for, and ""; else no step, and the error message."""
    giving, having, taking = list[str](), list[str](), list[str]()
    for entry in entries:
        settings, name = entry.get("settings"), str(entry.get("name"))
        if isinstance(settings, Mapping) and setting in settings:
            (taking if _refers(entry, setting) else giving).append(name)
        elif _has(entry, setting, steps):
            having.append(name)
    names = giving or having or taking
    if len(names) == 1:
        return names, ""
    example, of_all, fault = "pairs.top_k=10", "", "no step of the recipe has this setting"
    if names:
        fault = f"the steps {', '.join(names)} all {'have' if names is having else 'give'} this setting"
        example, of_all = f"{names[0]}.{setting}=VALUE", f", or {ALL}.{setting}=VALUE for all of them"
    return [], f"--set {setting}: {fault}; expected STEP.SETTING=VALUE, for example {example}{of_all}"


def _refers(entry: Mapping[Any, Any], setting: str) -> bool:
    """Whether the entry of a step gives a setting a reference to an earlier step."""
    settings = entry.get("settings")
    return isinstance(settings, Mapping) and any(
        text.startswith("@") for text in texts_in(settings.get(setting))
    )


def _has(entry: Mapping[Any, Any], setting: str, steps: StepTable) -> bool:
    step = steps.get(str(entry.get("step")))
    return step is not None and setting in step.settings.model_fields
