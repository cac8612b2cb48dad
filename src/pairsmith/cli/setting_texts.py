"""The settings that take texts, and the texts in their values, such as names of models, and references."""

from collections.abc import Callable, Mapping
from typing import Any

from pairsmith.core.settings import Settings


def texts_in(value: object) -> list[str]:
    """The texts in ``value``, which may be a single text or a list."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def free_texts(settings: type[Settings]) -> set[str]:
    """The names of the settings whose values may be any text, or a list of any texts."""
    fields = settings.model_fields.items()
    return {name for name, field in fields if field.annotation in (str, str | None, list[str])}


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """``value`` with ``change`` applied to all texts in it, also in lists and mappings, except to keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(part, change) for key, part in value.items()}
    return [map_texts(part, change) for part in value] if isinstance(value, list | tuple) else value
