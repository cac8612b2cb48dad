"""One adapter: a settings model becomes the options of a command.

Every option may be left out and takes any text as far as the command line is concerned; the model
knows the defaults, what is required and what fits, so that every fault has one place and one wording.
"""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from pairsmith.errors import SettingsError
from pairsmith.faults import faults_of
from pairsmith.settings import Settings, option_name

S = TypeVar("S", bound=Settings)


def parameters(model: type[Settings]) -> list[inspect.Parameter]:
    """A keyword parameter for every setting of ``model``, annotated for typer; None means not given."""
    return [keyword(name, *_option(name, field)) for name, field in model.model_fields.items()]


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A keyword-only parameter."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_parameters(
    body: Callable[..., None], help_text: str, given: list[inspect.Parameter]
) -> Callable[..., None]:
    """``body``, which takes any keywords, as a function that typer sees ``given`` parameters of."""

    def command(**values: Any) -> None:
        body(**values)

    command.__doc__ = help_text
    command.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in given}
    return command


def settings_from(model: type[S], values: Mapping[str, Any]) -> S:
    """The settings that the options in ``values`` (None: not given) make.

    Raises:
        SettingsError: a line for every option that is missing or unfit.
    """
    try:
        return model.model_validate(
            {name: value for name, value in values.items() if value not in (None, [])}
        )
    except ValidationError as error:
        lines = []
        for fault in faults_of(error, model):
            where = option_name(str(fault.where[0])) if fault.where else "these options"
            missing = len(fault.where) == 1 and values.get(str(fault.where[0])) is None
            lines.append(f"{where} is missing; add it" if missing else f"{where}: {fault.text}")
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def default_text(field: FieldInfo) -> str:
    """The default as people read it: ``required``, ``default: 5``, or nothing where it says nothing."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], (), {}):
        return ""
    if isinstance(value, bool):
        return f"default: {'on' if value else 'off'}"
    if isinstance(value, list | tuple):
        return f"default: {', '.join(map(str, value))}"
    return f"default: {value}"


def option_kind(annotation: Any) -> tuple[Any, str]:
    """For a setting of type ``annotation``: bool, ``list[str]`` or str, and in words which values fit."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return option_kind(arguments[0])
    if origin in (Union, UnionType):
        inner = [part for part in arguments if part is not NoneType]
        return option_kind(inner[0]) if len(inner) == 1 else (str, "text")
    if origin is Literal:
        return str, "|".join(map(str, arguments))
    if origin in (list, tuple):
        return list[str], option_kind(arguments[0])[1]
    if annotation is bool:
        return bool, ""
    return str, {int: "whole number", float: "number"}.get(annotation, "text")


def _option(name: str, field: FieldInfo) -> tuple[Any]:
    kind, values = option_kind(field.annotation)
    flag = option_name(name)
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    notes = [default_text(field), "may be given several times" if kind == list[str] else ""]
    tail = "; ".join(filter(None, notes))
    text = (field.description or "") + (f" [{tail}]" if tail else "")
    metavar = f"<{values}>" if values else None
    return (Annotated[kind | None, typer.Option(flag, help=text, metavar=metavar, show_default=False)],)
