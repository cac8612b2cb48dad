"""Checks of the values of a step's settings in a recipe: references, paths, and the settings' own checks."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pairsmith.cli.setting_texts import free_texts, texts_in
from pairsmith.cli.steps import SOURCE_SETTINGS
from pairsmith.core.errors import InputError, SettingsError, UserError, in_other_words, known_names_hint
from pairsmith.core.paths import exists, is_url, place
from pairsmith.core.validation import ValidationFault, errors_of, shown_value
from pairsmith.steps.step import Step

if TYPE_CHECKING:
    from pairsmith.cli.recipes import PlannedStep

REMEDY = "; give its path"
"""How the advice about a missing path begins; the rest names the step and the setting."""
_IN_RECIPES_FOLDER = " (a path in the recipe's folder starts with ./)"
_FILE = re.compile(r"(\.{0,2}/|~)[^:]*|[^:]*\.(txt|tsv|csv|jsonl?|parquet|ya?ml)(\.gz)?")


def value_faults(
    planned: "PlannedStep", by_option: Collection[str], references: Sequence[str]
) -> Iterator[ValidationFault]:
    """The faults of a step's settings, by the keys of the settings.

    ``by_option`` are the settings whose values are from options of the command, and not from the recipe's
    file. ``references`` are what values may refer to: the names of earlier steps, and ``@`` if the step may
    read the folder of the run.
    """
    step, values = planned.step, planned.values
    sources = SOURCE_SETTINGS & free_texts(step.settings)
    for key in (key for key in values if key not in by_option):
        remedy = f"{REMEDY} with --set {planned.name}.{key}=PATH"
        texts = [*_text_faults(values[key], references, remedy)]
        # Of other names, those with a slash may be Hub ids, or folders that an earlier step writes.
        plain = [text for text in texts_in(values[key]) if "/" not in text]
        if key in sources - step.checks.keys() and not texts:
            texts = [f"{text}{_IN_RECIPES_FOLDER}{remedy}" for text in _missing(plain)]
        yield from (ValidationFault((key,), text) for text in texts)
    for key in by_option:
        texts = [*_text_faults(values[key], references)]
        if key in sources and not texts:
            texts = [*_missing(values[key])]
        yield from (ValidationFault((key,), text) for text in texts)
    errors = []
    try:
        step.settings.model_validate(values)
    except ValidationError as error:
        errors = errors_of(error, step.settings)
    words = {setting: setting for setting in step.settings.model_fields}
    for fault in [*errors, *_check_faults(step, values)]:
        yield ValidationFault(fault.where, in_other_words(fault.text, words))


def _text_faults(value: object, references: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Faults of the references and paths in ``value``; ``remedy`` is appended for a missing path."""
    for text in texts_in(value):
        if "\0" in text:
            yield f"{shown_value(text)} contains a NUL character, which no name may contain; remove it"
        elif text.startswith("@"):
            name = text if text == "@" else re.split("[/:]", text[1:], maxsplit=1)[0]
            if name not in references:
                names = [name for name in references if name != "@"]
                earlier_names = known_names_hint(name, names) if names else "this is the first step"
                yield f"{text} refers to no earlier step; {earlier_names}"
        elif _FILE.fullmatch(text) and not is_url(text) and not exists(place(text)):
            location = "" if text.startswith(("/", "~")) else " in the current folder"
            hint = _IN_RECIPES_FOLDER if location and remedy else ""
            yield f"there is no {text}{location}{hint}{remedy}"


def _missing(value: object) -> Iterator[str]:
    """A message for each text in ``value`` that must name a file or folder, and names none that exists."""
    from pairsmith.data.sources import check_exists

    for text in texts_in(value):
        try:
            if not text.startswith("@"):
                check_exists(text)
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
