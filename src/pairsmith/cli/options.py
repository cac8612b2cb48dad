"""Turns a settings model into the options of a command.

For typer, every option is optional and accepts any text. The settings model applies defaults, requires
settings and validates values, so that each mistake is reported in one place and in one wording.
"""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from pairsmith.cli.setting_texts import free_texts
from pairsmith.cli.steps import SOURCE_SETTINGS
from pairsmith.core.errors import SettingsError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.settings import Settings, option_name
from pairsmith.core.validation import errors_of

S = TypeVar("S", bound=Settings)


def with_options(
    body: Callable[..., None], help_text: str, model: type[Settings], common: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Give ``body``, which takes any keyword arguments, a signature from which typer makes a command.

    The signature has a parameter for every setting of ``model``, with the default None for "not given", and
    the parameters in ``common``, each with its annotation and default.
    """
    own = {name: (_option(name, field), None) for name, field in in_help_order(model).items()}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in {**own, **common}.items()
    ]
    body.__doc__ = help_text
    body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    body.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return body


def settings_from(model: type[S], values: Mapping[str, Any]) -> S:
    """Make settings from the options in ``values``, where None means that an option was not given.

    Raises:
        SettingsError: values are missing or invalid; its message has a line for each.
    """
    given = {name: value for name, value in values.items() if value not in (None, [])}
    fields = model.model_fields
    nulls = {name: None for name, value in given.items() if value == "null" and can_be_unset(fields[name])}
    try:
        return model.model_validate(given | nulls)
    except ValidationError as error:
        lines = []
        for fault in errors_of(error, model):
            if not fault.where:  # the fault is in the combination of several settings
                lines.append(_with_option(fault.text, model))
                continue
            where = option_name(str(fault.where[0]))
            missing = len(fault.where) == 1 and values.get(str(fault.where[0])) is None
            lines.append(f"{where} is missing; add it" if missing else f"{where}: {fault.text}")
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def in_help_order(model: type[Settings]) -> dict[str, FieldInfo]:
    """The settings of ``model`` in the order of its help.

    Inherited settings that are required come first. Then come the model's own settings in the order in which
    they are declared, then inherited settings for the data that it may read, then all other inherited ones.
    The settings on workers come last.
    """
    fields = model.model_fields
    last = WorkerSettings.model_fields if issubclass(model, WorkerSettings) else {}
    names = dict.fromkeys(name for base in model.__mro__ for name in get_annotations(base))
    own = get_annotations(model)
    sources = SOURCE_SETTINGS & free_texts(model)

    def rank(name: str) -> int:
        if name in own:
            return 1
        return 0 if fields[name].is_required() else 2 if name in sources else 3

    before = [name for name in names if name in fields and name not in last]
    return {name: fields[name] for name in [*sorted(before, key=rank), *last]}


def _with_option(text: str, model: type[Settings]) -> str:
    """``text``; if it begins with the name of a setting, with the option's name in its place."""
    name, space, rest = text.partition(" ")
    return f"{option_name(name)}{space}{rest}" if name in model.model_fields else text


def default_text(field: FieldInfo) -> str:
    """The default for the help text: ``required``, ``default: 5``, or "" if the default is empty."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], (), {}):
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    text = ", ".join(_value_text(value) for value in values)
    return f"default: {text}; null unsets it" if can_be_unset(field) else f"default: {text}"


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def can_be_unset(field: FieldInfo) -> bool:
    """Whether a setting with a default may have no value, too, for which its option takes the text null."""
    return not field.is_required() and field.default is not None and NoneType in get_args(field.annotation)


def option_kind(annotation: Any) -> tuple[Any, str]:
    """For a setting's type ``annotation``, the option's type (bool, list[str] or str) and its metavar."""
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


def _option(name: str, field: FieldInfo) -> Any:
    """The annotation of the parameter for a setting, from which typer makes its option."""
    kind, values = option_kind(field.annotation)
    flag = option_name(name)
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    notes = [default_text(field), "may be given several times" if kind == list[str] else ""]
    tail = "; ".join(filter(None, notes))
    text = (field.description or "") + (f" [{tail}]" if tail else "")
    metavar = f"<{values}>" if values else None
    return Annotated[kind | None, typer.Option(flag, help=text, metavar=metavar, show_default=False)]
