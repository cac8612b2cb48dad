"""Replaces the entries of a recipe with ``each`` by the steps that they stand for."""

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

MOST_STEPS = 10_000
"""Largest number of steps that an entry with ``each`` may stand for."""


def expanded_steps(entry: Any) -> list[Any]:
    """The entries that an entry with ``each`` stands for, without ``each``; any other entry alone."""
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
    """``value`` with each name in braces replaced by its value from ``values``, in all texts and keys."""
    if isinstance(value, str):
        if value.startswith("{") and value.endswith("}") and value[1:-1] in values:
            return values[value[1:-1]]  # keeps its type, such as a number
        for name, replacement in values.items():
            value = value.replace(f"{{{name}}}", str(replacement))
        return value
    if isinstance(value, Mapping):
        return {_filled(key, values): _filled(part, values) for key, part in value.items()}
    return [_filled(part, values) for part in value] if isinstance(value, list) else value
