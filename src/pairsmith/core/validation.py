"""Converts pydantic's validation errors to messages for the person who wrote the input.

Each fault has a location and a description. Task files, recipes and the command line have the same
descriptions, and differ only in how they name the location: a line of a file, or an option.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pairsmith.core.errors import SettingsError, did_you_mean, known_names_hint

KeyPath = tuple[str | int | float, ...]
M = TypeVar("M", bound=BaseModel)

_SHOWN = 60
_QUOTED = re.compile(r"'([^']*)'")
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


@dataclass(frozen=True, slots=True)
class ValidationFault:
    """One fault: its location, as a path of keys from the root, and its description."""

    where: KeyPath
    text: str


def dotted(keys: KeyPath) -> str:
    """``keys`` joined by dots."""
    return ".".join(map(str, keys))


def errors_of(error: ValidationError, model: type[BaseModel]) -> list[ValidationFault]:
    """Every fault in a pydantic error about input for ``model``."""
    return [
        ValidationFault(detail["loc"], sentence(detail, model))
        for detail in error.errors(include_url=False)
        if not _follows(detail)
    ]


_OF_STEPS = {"tensorboard", "checkpoint_steps"}
"""Options of trainings that have an effect only if the training has a folder."""


def refuse_options_of_steps(function: str, options: Iterable[str]) -> None:
    """Raise a ``SettingsError`` for options without effect in a public function, which has no folder."""
    if refused := sorted(_OF_STEPS.intersection(options)):
        raise SettingsError(
            f"{function}: only a training with a folder has {', '.join(refused)}; use the command, or leave "
            f"{'it' if len(refused) == 1 else 'them'} out"
        )


def checked_options(function: str, model: type[M], values: Mapping[str, Any]) -> M:
    """The options of the public ``function`` as a ``model``; a ``SettingsError`` names their first fault."""
    if unknown := [name for name in values if name not in model.model_fields]:
        known = sorted(model.model_fields.keys() - _OF_STEPS - {"data"})  # ``data``: the rows themselves
        raise SettingsError(f"{function}: {unknown[0]}: unknown key; {known_names_hint(unknown[0], known)}")
    try:
        return model(**values)
    except ValidationError as error:
        fault = errors_of(error, model)[0]
        where = f"{dotted(fault.where)}: " if fault.where else ""
        raise SettingsError(f"{function}: {where}{fault.text}") from error


def _follows(detail: ErrorDetails) -> bool:
    """Whether a fault follows from others: pydantic also reports a list with faulty items as too short."""
    value = detail["input"]
    return (
        detail["type"] == "too_short"
        and isinstance(value, Mapping | list | tuple)
        and len(value) >= detail["ctx"]["min_length"]
    )


def sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """The description of a pydantic error: a clause that can follow the name of the setting."""
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return "missing; it has no default, so add it"
    if kind == "extra_forbidden":
        return f"unknown key; {known_names_hint(str(detail['loc'][-1]), _keys_at(model, detail['loc'][:-1]))}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"should be a mapping of keys to values, not {shown_value(value)}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "too_short" and not value:
        return "is empty; at least one is needed"
    if kind == "string_pattern_mismatch":
        return f"should be {_expected(model, detail['loc'])}, not {shown_value(value)}"
    if (number := kind.partition("_")[0]) in _KINDS:
        return f"should be {_KINDS[number]}, not {shown_value(value)}"
    if kind == "literal_error" and isinstance(value, str):
        nearest = did_you_mean(value, _QUOTED.findall(detail["ctx"]["expected"]))
        question = f"; {nearest}" if nearest else ""
        return f"should be {detail['ctx']['expected']}, not {shown_value(value)}{question}"
    text = detail["msg"].removeprefix("Input ")
    text = text[0].lower() + text[1:]
    return text if isinstance(value, Mapping | list | tuple) else f"{text}, not {shown_value(value)}"


def shown_value(value: object) -> str:
    """A value in the form for a one-line message; long values are shortened."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _expected(model: type[BaseModel], keys: tuple[Any, ...]) -> str:
    """The values that the setting at ``keys`` in ``model`` accepts: the first sentence of its description."""
    text = _model_at(model, keys[:-1]).model_fields[keys[-1]].description or ""
    return text.split(". ")[0].removesuffix(".")


def _keys_at(model: type[BaseModel], keys: tuple[Any, ...]) -> list[str]:
    """The keys that a mapping at ``keys`` in ``model`` accepts."""
    return [
        name
        for name, field in _model_at(model, keys).model_fields.items()
        if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("from_key"))
    ]


def _model_at(model: type[BaseModel], keys: tuple[Any, ...]) -> type[BaseModel]:
    """The settings model at ``keys`` in ``model``."""
    for part in keys:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The settings model that ``annotation`` is or contains, as in ``tuple[Label, ...]``, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
