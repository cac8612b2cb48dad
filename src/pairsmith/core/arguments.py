"""Checks of the arguments of public functions, for the most frequent mistakes of callers.

The mistakes are: the name of a model or task instead of the loaded object; a single text, a table or a set
instead of a list of texts; rows of another class; None among texts; numbers of another type or out of bounds;
and texts instead of True and False.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sized
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.progress import Progress

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

_KINDS: dict[Any, tuple[type, str]] = {str: (str, "a text"), float: (Real, "a number")}
"""The class that a field's values must have, and how messages call it, by the type of the field in a row."""


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
    inside = "; give its model" if hasattr(getattr(value, "model", None), attribute) else ""
    raise SettingsError(f"{expected}; it is {_kind(value)}{inside}")


def check_progress(progress: object) -> None:
    """Raise a ``SettingsError`` if the argument ``progress`` is neither None nor a ``Progress``."""
    if progress is not None and not isinstance(progress, Progress):
        raise SettingsError(
            "progress must be pairsmith.core.progress.Progress(), or None to show nothing, "
            f"not {progress!r:.60}"
        )


def model_name(model: object, name: str = "model") -> str:
    """The argument ``name`` as the name of a model; a path is the name of its folder.

    Raises:
        SettingsError: the argument is neither a text nor a path.
    """
    if isinstance(model, str | Path):
        return str(model)
    loaded = "; save it in a folder, and give the folder" if hasattr(model, "save_pretrained") else ""
    raise SettingsError(
        f"{name} must be the name of a model or the path of a folder; it is {_kind(model)}{loaded}"
    )


def checked_folder(folder: object, name: str) -> Path:
    """The argument ``name`` as the path of a folder to write to, which may not exist yet.

    Raises:
        SettingsError: the argument is no path, or it is the path of a file.
    """
    if not isinstance(folder, str | PathLike):
        raise SettingsError(f"{name} must be the path of a folder, not of the type {type(folder).__name__}")
    path = Path(folder)
    if path.is_file():
        raise SettingsError(f"{name} {path} is a file; give the path of a folder")
    return path


def checked_whole_number(value: object, name: str, least: int = 0, most: int | None = None) -> int:
    """The argument ``name`` as a whole number of at least ``least`` and at most ``most``.

    Raises:
        SettingsError: the argument is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SettingsError(f"{name} must be a whole number, not {value!r:.60}")
    number = int(value)
    if number < least:
        raise SettingsError(f"{name} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise SettingsError(f"{name} must be at most {most}, not {number}")
    return number


def checked_number(value: object, name: str) -> float:
    """The argument ``name`` as a finite number; a ``SettingsError`` if it is anything else."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise SettingsError(f"{name} must be a finite number, not {value!r:.60}")
    return float(value)


def check_flag(value: object, name: str) -> None:
    """Raise a ``SettingsError`` if the argument ``name`` is neither True nor False.

    Without this check, any text that is not empty, such as "no", would count as true.
    """
    if not isinstance(value, Hashable) or value not in (True, False):
        raise SettingsError(f"{name} must be True or False, not {value!r:.60}")


def checked_texts(texts: Iterable[T], name: str, *others: type) -> list[T]:
    """The argument ``name`` as a list of texts; objects of the classes ``others`` are allowed, too.

    Texts of another class that inherits from ``str``, such as numpy's, are converted to ``str``.

    Raises:
        InputError: the argument is not a list of such items, or a text is not valid Unicode.
    """
    items = _items(texts, name, "texts")
    for index, item in enumerate(items):
        if not isinstance(item, (str, *others)):
            if _is_missing(item):
                raise InputError(
                    f"{name}[{index}] is a missing value ({item}); leave it out, as with Series.dropna()"
                )
            remedy = "; leave it out, as with Series.dropna()" if item is None else ""
            raise InputError(f"{name} must be a list of texts; {name}[{index}] is {_kind(item)}{remedy}")
        if isinstance(item, str):
            _check_unicode(item, f"{name}[{index}]")
    return [cast(T, str(item)) if isinstance(item, str) else item for item in items]


def check_not_blank(texts: Iterable[object], name: str) -> None:
    """Raise an ``InputError`` if a text of the argument ``name`` is empty or only white space."""
    for index, text in enumerate(texts):
        if isinstance(text, str) and not text.strip():
            raise InputError(f"{name}[{index}] is blank; leave it out")


def check_not_empty(items: Sized, name: str, item: str) -> None:
    """Raise an ``InputError`` if the argument ``name`` is empty; ``item`` says what one of its items is."""
    if not len(items):
        raise InputError(f"{name} is empty; give at least one {item}")


def checked_pairs(pairs: Iterable[T], name: str) -> list[T]:
    """The argument ``name`` as a list of pairs of texts; an ``InputError`` if it is anything else.

    The rows of an array become lists.
    """
    items = _items(pairs, name, "pairs of texts")
    items = [pair.tolist() if hasattr(pair, "tolist") else pair for pair in items]
    for index, pair in enumerate(items):
        if not (isinstance(pair, tuple | list) and [isinstance(text, str) for text in pair] == [True, True]):
            texts = [field.name for field in fields(pair) if field.type is str] if is_dataclass(pair) else []
            texts = [text for text in texts if not text.endswith("id")]
            kind = f"{pair!r:.60}"
            if len(texts) == 2:
                kind = f"{_kind(pair)}; give ({', '.join(f'row.{text}' for text in texts)}) of each row"
            raise InputError(
                f"{name} must be a list of pairs of texts, (query, positive); {name}[{index}] is {kind}"
            )
        for text in pair:
            _check_unicode(text, f"a text of {name}[{index}]")
    return items


def checked_rows(rows: Iterable[T], name: str, *classes: "type[DataclassInstance]") -> list[T]:
    """The argument ``name`` as a list of rows, each a dataclass of one of ``classes``.

    Raises:
        InputError: the argument is not a list of such rows, or a field of a row that should be a text or a
            finite number is not.
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
                what = f"{name}[{index}].{field.name}"
                if _is_missing(value):
                    raise InputError(
                        f"{what} is a missing value ({value}); leave the row out, as with DataFrame.dropna()"
                    )
                remedy = f"; give {str(value)!r}" if isinstance(value, Real) else ""
                if value is None:
                    remedy = "; leave the row out, as with DataFrame.dropna()"
                raise InputError(f"{what} must be {class_name}; it is {_kind(value)}{remedy}")
            if isinstance(value, str):
                _check_unicode(value, f"{name}[{index}].{field.name}")
            elif isinstance(value, Real) and not math.isfinite(value):
                raise InputError(f"{name}[{index}].{field.name} must be a finite number; it is {value}")
    return items


def _check_unicode(text: str, name: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} is not valid Unicode: the character {error.start + 1} is the surrogate "
            f"{text[error.start]!a}; read its file with the right encoding, or with errors='replace'"
        ) from None


def _items(values: Iterable[T], name: str, plural: str) -> list[T]:
    """The values as a list; ``plural`` names the expected items in the ``InputError`` for anything else."""
    if isinstance(values, str):
        raise InputError(f"{name} must be a list of {plural}, not a single text")
    if isinstance(values, set | frozenset):
        ordered = "give sorted(…)" if plural == "texts" else "give a list"
        raise InputError(f"{name} must be a list of {plural}; a set has no order: {ordered}")
    # Iteration would yield the keys of a mapping, and the column names or the records of a table.
    is_table = _records_of(values) is not None
    is_scalar = getattr(values, "ndim", 1) == 0  # an array without dimensions, which has no items
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes) or is_table or is_scalar:
        raise InputError(f"{name} must be a list of {plural}; it is {_kind(values)}{_remedy(values, plural)}")
    # Iteration over an Arrow array or column would yield Arrow's scalars, which are no texts.
    return values.to_pylist() if hasattr(values, "to_pylist") else list(values)


def _remedy(values: object, plural: str) -> str:
    """The end of the message about ``values`` that are no list: what to give instead, or an empty text."""
    if records := _records_of(values):
        if plural == "texts":
            return "; give one of its columns"
        if plural == "pairs of texts":
            return "; give zip(…) of two of its columns"
        row_class = plural.partition(" ")[0][:-1]
        return f"; give [{row_class}(**record) for record in {records}]"
    if isinstance(values, PathLike) and plural == "texts":
        return '; give the lines of the file, as in path.read_text("utf-8").splitlines()'
    lists = [part for part in ("rows", "train") if isinstance(getattr(values, part, None), list)]
    return f"; give its {lists[0]}" if lists and "text" not in plural else ""


def _records_of(values: object) -> str | None:
    """An expression for the records of a table, as mappings; None if ``values`` is no table.

    A table is one of pandas, Arrow or ``datasets``, or what ``open_dataset`` returns.
    """
    if hasattr(values, "table"):
        return 'folder.table("train").to_pylist()'
    if hasattr(values, "column_names"):
        return "table.to_pylist()" if hasattr(values, "to_pylist") else "dataset"
    return 'frame.to_dict("records")' if hasattr(values, "columns") else None


def _is_missing(value: object) -> bool:
    """Whether ``value`` is NaN or NA, which pandas has in place of a missing value."""
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"


def _kind(value: object) -> str:
    """The type of a value, in words, for the end of a message."""
    return "None" if value is None else f"of the type {type(value).__name__}"
