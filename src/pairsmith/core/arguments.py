"""Checks of what public functions are given, for the mistakes that callers make first.

These are a model or a task by its name, a single text for a list of texts, rows of another class, and None
among the texts.
"""

from collections.abc import Iterable
from dataclasses import fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pairsmith.core.errors import InputError, SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

_KINDS: dict[Any, tuple[type, str]] = {str: (str, "a text"), float: (Real, "a number")}
"""For the type of a row's field: the class that its values have, and what they are called."""


def check_loaded(value: object, name: str, attribute: str, loader: str) -> None:
    """Refuse for the argument ``name`` what is not what the public function ``loader`` returns.

    It is known by an ``attribute``, as models and tasks may be of the caller's own classes.
    """
    if hasattr(value, attribute):
        return
    expected = f"{name} must be what pairsmith.{loader} returns"
    if isinstance(value, str | Path):
        raise SettingsError(f"{expected}, not a name: give pairsmith.{loader}({str(value)!r})")
    raise SettingsError(f"{expected}; it is {_kind(value)}")


def checked_texts(texts: Iterable[T], name: str, *others: type) -> list[T]:
    """The texts of the argument ``name``, which may hold objects of ``others`` too, as a list."""
    items = _items(texts, name, "texts")
    for place, item in enumerate(items):
        if not isinstance(item, (str, *others)):
            raise InputError(f"{name} must be a list of texts; {name}[{place}] is {_kind(item)}")
    return items


def checked_pairs(pairs: Iterable[T], name: str) -> list[T]:
    """The pairs of texts of the argument ``name`` as a list."""
    items = _items(pairs, name, "pairs of texts")
    for place, pair in enumerate(items):
        if not (isinstance(pair, tuple | list) and [isinstance(text, str) for text in pair] == [True, True]):
            raise InputError(
                f"{name} must be a list of pairs of texts, (query, positive); {name}[{place}] is {pair!r:.60}"
            )
    return items


def checked_rows(rows: Iterable[T], name: str, *classes: "type[DataclassInstance]") -> list[T]:
    """The rows of the argument ``name``, dataclasses of one of ``classes``, as a list.

    Their fields for texts hold texts, and those for numbers hold numbers.
    """
    names = " or ".join(f"{row_class.__name__}s" for row_class in classes)
    items = _items(rows, name, names)
    for place, row in enumerate(items):
        if not isinstance(row, classes):
            first = classes[0]
            columns = ", ".join(field.name for field in fields(first))
            raise InputError(
                f"{name} must be a list of {names}; {name}[{place}] is {_kind(row)}; a row is made with "
                f"{first.__module__}.{first.__name__}({columns})"
            )
        for field in fields(row):
            kind, called = _KINDS.get(field.type, (object, ""))
            if not isinstance(value := getattr(row, field.name), kind):
                raise InputError(f"{name}[{place}].{field.name} must be {called}; it is {_kind(value)}")
    return items


def _items(values: Iterable[T], name: str, called: str) -> list[T]:
    if isinstance(values, str):
        raise InputError(f"{name} must be a list of {called}, not a single text")
    if not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list of {called}; it is {_kind(values)}")
    return list(values)


def _kind(value: object) -> str:
    return "None" if value is None else f"of the type {type(value).__name__}"
