"""Checks of the arguments of public functions, for the most frequent mistakes of callers.

These are the name of a model or task instead of the loaded object, a single text instead of a list of texts,
rows of another class, and None among texts.
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
"""For the type of a row's field: the class of its values, and the name of the type in messages."""


def check_loaded(value: object, name: str, attribute: str, loader: str) -> None:
    """Raise a ``SettingsError`` if the argument ``name`` is not an object such as ``loader`` returns.

    Such an object is recognised by having ``attribute``, because the class of a model or a task may be the
    caller's own. ``loader`` is the name of a public function.
    """
    if hasattr(value, attribute):
        return
    expected = f"{name} must be what pairsmith.{loader} returns"
    if isinstance(value, str | Path):
        raise SettingsError(f"{expected}, not a name: give pairsmith.{loader}({str(value)!r})")
    raise SettingsError(f"{expected}; it is {_kind(value)}")


def checked_texts(texts: Iterable[T], name: str, *others: type) -> list[T]:
    """The argument ``name`` as a list of texts; objects of the classes ``others`` are allowed, too.

    Raises:
        InputError: the argument is not a list of these.
    """
    items = _items(texts, name, "texts")
    for index, item in enumerate(items):
        if not isinstance(item, (str, *others)):
            raise InputError(f"{name} must be a list of texts; {name}[{index}] is {_kind(item)}")
    return items


def checked_pairs(pairs: Iterable[T], name: str) -> list[T]:
    """The argument ``name`` as a list of pairs of texts; an ``InputError`` if it is anything else."""
    items = _items(pairs, name, "pairs of texts")
    for index, pair in enumerate(items):
        if not (isinstance(pair, tuple | list) and [isinstance(text, str) for text in pair] == [True, True]):
            raise InputError(
                f"{name} must be a list of pairs of texts, (query, positive); {name}[{index}] is {pair!r:.60}"
            )
    return items


def checked_rows(rows: Iterable[T], name: str, *classes: "type[DataclassInstance]") -> list[T]:
    """The argument ``name`` as a list of rows, each a dataclass of one of ``classes``.

    Raises:
        InputError: the argument is not a list of such rows, or a field of a row that should be a text or a
            number is not.
    """
    names = " or ".join(f"{row_class.__name__}s" for row_class in classes)
    items = _items(rows, name, names)
    for index, row in enumerate(items):
        if not isinstance(row, classes):
            first = classes[0]
            columns = ", ".join(field.name for field in fields(first))
            raise InputError(
                f"{name} must be a list of {names}; {name}[{index}] is {_kind(row)}; a row is made with "
                f"{first.__module__}.{first.__name__}({columns})"
            )
        for field in fields(row):
            field_class, class_name = _KINDS.get(field.type, (object, ""))
            if not isinstance(value := getattr(row, field.name), field_class):
                raise InputError(f"{name}[{index}].{field.name} must be {class_name}; it is {_kind(value)}")
    return items


def _items(values: Iterable[T], name: str, plural: str) -> list[T]:
    """The values as a list; ``plural`` names the expected items in the ``InputError`` for anything else."""
    if isinstance(values, str):
        raise InputError(f"{name} must be a list of {plural}, not a single text")
    if not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list of {plural}; it is {_kind(values)}")
    return list(values)


def _kind(value: object) -> str:
    """The type of a value, in words, for the end of a message."""
    return "None" if value is None else f"of the type {type(value).__name__}"
