"""What is wrong with a settings model's input, in words for the person who wrote it.

pydantic finds the faults; here they get a place and a sentence. Task files, recipes and the
command line share the sentences and differ only in how they print the place (a line of a file,
or the name of an option).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pairsmith.errors import choices

Place = tuple[str | int | float, ...]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, as a path of keys from the root, what, and what to call the place."""

    where: Place
    text: str
    name: str = ""

    @property
    def place(self) -> str:
        """The place in words: its name where it has one, else the keys that lead to it."""
        return self.name or ".".join(map(str, self.where))


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Every fault that pydantic found while it validated input for ``model``."""
    return [Fault(detail["loc"], sentence(detail, model)) for detail in error.errors(include_url=False)]


def sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """One pydantic error as a clause that can stand behind the name of the setting."""
    kind, given = detail["type"], detail["input"]
    if kind == "missing":
        return "missing; it has no default, so add it"
    if kind == "extra_forbidden":
        return f"unknown key; {choices(str(detail['loc'][-1]), _keys_at(model, detail['loc'][:-1]))}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"should be a mapping of keys to values, not {shown(given)}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        return f"should look like {detail['ctx']['pattern']}, not {shown(given)}"
    text = detail["msg"].removeprefix("Input ")
    text = text[0].lower() + text[1:]
    return text if isinstance(given, Mapping | list | tuple) else f"{text}, not {shown(given)}"


def shown(value: object) -> str:
    """``value`` as it can stand in a one-line message, cut when it is long."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _keys_at(model: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    """Keys that a mapping at ``place`` below ``model`` may have."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return [
        name
        for name, field in model.model_fields.items()
        if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("from_key"))
    ]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The settings model that ``annotation`` is, or holds (as in ``tuple[Label, ...]``)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
