"""Vectors of an encoded folder in one file, which is mapped: they are read from the disk when needed."""

import atexit
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import remove, storage_errors


@dataclass(frozen=True, slots=True)
class VectorFile:
    """Vectors of some rows of a folder that ``encode_corpus`` wrote, in their order.

    Attributes:
        folder: the encoded folder.
        file: where the vectors are.
        shape: the number of vectors, and of numbers in each.
        dtype: float16 or float32, as in the folder.
        which: ``(rows,)`` bool, the rows of the folder whose vectors these are; None: all.
        start: bytes in the file before the vectors.
    """

    folder: DatasetFolder
    file: Path
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    which: NDArray[np.bool_] | None = None
    start: int = 0

    @classmethod
    def write(
        cls, folder: DatasetFolder, file: Path, which: NDArray[np.bool_] | None = None, start: int = 0
    ) -> Self:
        """Write the vectors of a folder, or those of the rows ``which``, to ``file``.

        With a ``start`` the file is there, and its first ``start`` bytes are kept.
        """
        dtype = np.dtype(folder.schema().field("vector").type.value_type.to_pandas_dtype())
        count = width = 0
        with storage_errors(file), file.open("r+b" if start else "wb") as out:
            out.seek(start)
            for rows, table in some_rows(folder, which, ["vector"]):
                vectors = table["vector"].combine_chunks().flatten()
                width = len(vectors) // len(rows)
                count += len(rows)
                out.write(np.ascontiguousarray(vectors.to_numpy(zero_copy_only=False), dtype).tobytes())
        return cls(folder, file, (count, width), dtype, which, start)

    def __len__(self) -> int:
        """How many vectors there are."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """The number of numbers in a vector."""
        return self.shape[1]

    def local(self) -> Self:
        """The same with their file on this machine; if it is missing here, it is written again."""
        return self if self.is_local() else self.write(self.folder, new_file(), self.which)

    def is_local(self) -> bool:
        """Whether the file is on this machine, and whole."""
        size = self.start + self.dtype.itemsize * self.shape[0] * self.shape[1]
        return self.file.is_file() and self.file.stat().st_size == size

    def every(self) -> torch.Tensor:
        """All vectors, ``shape``, mapped from the file."""
        if not len(self):
            return torch.empty(self.shape, dtype=torch.from_numpy(np.empty(0, self.dtype)).dtype)
        return torch.from_numpy(np.memmap(self.file, self.dtype, "c", self.start, self.shape))

    def of(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """Vectors with these distinct, ascending numbers; not copied if the numbers are consecutive."""
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return self.every()[first : last + 1]
        return self.every()[torch.from_numpy(numbers)]


def new_file() -> Path:
    """A new file on this machine, which is removed when the program ends."""
    with tempfile.NamedTemporaryFile(prefix="pairsmith-", suffix=".tmp", delete=False) as handle:
        file = Path(handle.name)
    atexit.register(remove, file)
    return file


def some_rows(
    folder: DatasetFolder, which: NDArray[np.bool_] | None, columns: Sequence[str]
) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
    """Some rows of a folder, or all, by shard, with their places in it; shards without any are not read."""
    edges = np.cumsum([0, *folder.shard_rows()]).tolist()
    parts = [
        np.ones(stop - start, bool) if which is None else which[start:stop] for start, stop in pairwise(edges)
    ]
    shards = [number for number, part in enumerate(parts) if part.any()]
    for number, table in zip(shards, folder.shards("train", columns, shards), strict=True):
        places = np.flatnonzero(parts[number])
        yield places, table if which is None else table.take(places)
