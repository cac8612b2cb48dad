"""Rows in a temporary file, for training data that may not fit into memory."""

import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

import pyarrow as pa

from pairsmith.core.errors import StorageError, first_line

T = TypeVar("T")

_TOGETHER = 4_096
"""Number of rows in a record batch."""


class StoredRows:
    """Rows, as mappings from column to value, in a temporary file from which each is read when it is used.

    The temporary folder is deleted when this object is.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> None:
        """Write ``rows``, which have the columns of ``schema``, to the temporary file."""
        folder = Path(tempfile.mkdtemp(prefix="pairsmith-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path, remaining = folder / "rows.arrow", iter(rows)
        with _writing(path):
            writer = pa.ipc.new_file(str(path), schema)
        while batch := list(islice(remaining, _TOGETHER)):
            with _writing(path):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
        with _writing(path):
            writer.close()
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __getitem__(self, number: int) -> dict[str, Any]:
        batch = self._batches[number // _TOGETHER]
        row: dict[str, Any] = batch.slice(number % _TOGETHER, 1).to_pylist()[0]
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            yield from batch.to_pylist()


class StoredSequence(Sequence[T]):
    """A sequence whose items are read one at a time from ``StoredRows``; a slice of it is a list."""

    @abstractmethod
    def item(self, number: int) -> T:
        """The item with the index ``number``, from 0 to one less than the length."""

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return [self.item(index) for index in range(*number.indices(len(self)))]
        return self.item(range(len(self))[number])


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot keep the rows in {path.parent}: {first_line(error)}; set TMPDIR to a disk with room"
        ) from error
