"""Reading the Parquet files of a dataset folder, with errors that say what to do about a damaged one."""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import FolderError, first_line, known_names_hint
from pairsmith.core.paths import Place, reaching
from pairsmith.data.sources import open_parquet


def read_parquet(path: Place, columns: Collection[str] | None = None) -> pa.Table:
    """The rows of one Parquet file; only the columns ``columns`` if these are given."""
    with open_shard(path) as file:
        check_columns(columns, file, path)
        return checked_table(file.read(columns))


def checked_table(table: pa.Table) -> pa.Table:
    """``table``; raises an ``ArrowException`` if a value is damaged, such as a text that is not UTF-8."""
    table.validate(full=True)
    return table


def check_columns(columns: object, file: Any, where: Place) -> None:
    """Raise a ``FolderError`` unless ``columns`` is None or a list of columns, or fields, of a Parquet file.

    pyarrow itself leaves out columns that a file does not have, and reads a single text as a list of letters.
    """
    if columns is None:
        return
    if isinstance(columns, str) or not isinstance(columns, Collection):
        raise FolderError(f"columns must be a list of names of columns, not {columns!r:.60}")
    fields = [f"{file.schema.column(number).path}." for number in range(len(file.schema.names))]
    for column in columns:
        if not any(field.startswith(f"{column}.") for field in fields):
            hint = known_names_hint(str(column), file.schema_arrow.names)
            raise FolderError(f"{where} has no column {column!r}; {hint}")


@contextmanager
def open_shard(path: Place) -> Iterator[Any]:
    """A context with the open ``ParquetFile`` at ``path``; its faults raise a ``FolderError``."""
    with reaching(path, FolderError):
        try:
            # Opened as a single file: a reader of data sets would add a column for "name=value" in the path.
            with open_parquet(path) as file:
                names = file.schema_arrow.names
                if not names:
                    raise FolderError(f"{path} has no columns; run the command that wrote it again")
                name, count = Counter(names).most_common(1)[0]
                if count > 1:
                    raise FolderError(f"{path} has {count} columns {name!r}; rename all but one of them")
                yield file
        except FileNotFoundError as error:
            raise FolderError(f"{path} is missing; run the command that wrote it again") from error
        except (OSError, pa.ArrowException) as error:
            # Only errors of the operating system have a number; others are about the file's content.
            number = getattr(error, "errno", None)
            why = f"cannot be read: {os.strerror(number)}" if number else f"is damaged ({first_line(error)})"
            raise FolderError(f"{path} {why}; run the command that wrote it again") from error


def in_words(schema: pa.Schema) -> str:
    """The columns of a schema with their types, such as ``id (string), score (double)``."""
    return ", ".join(f"{column.name} ({column.type})" for column in schema)
