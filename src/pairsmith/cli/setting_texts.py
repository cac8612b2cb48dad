"""The texts in the value of a setting, such as names of models, paths, and references to earlier steps."""

from collections.abc import Callable, Mapping
from typing import Any


def texts_in(value: object) -> list[str]:
    """The texts in ``value``, which may be a single text or a list."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """``value`` with ``change`` applied to all texts in it, also in lists and mappings, except to keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(part, change) for key, part in value.items()}
    return [map_texts(part, change) for part in value] if isinstance(value, list | tuple) else value
