"""The vectors of an encoded folder in one memory-mapped file."""

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
    """The vectors of all or some rows of a folder that ``encode_corpus`` wrote, in the order of the rows.

    Attributes:
        folder: the encoded folder.
        file: the file that has the vectors.
        shape: the number of vectors, and their width.
        dtype: float16 or float32, as in the folder.
        which: ``(rows,)`` bool, True for the rows of the folder whose vectors are in the file; None: all.
        start: the number of bytes in the file before the vectors.
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

        With a ``start``, the file has to exist, and its first ``start`` bytes are kept.
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
        """The number of vectors."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return self.shape[1]

    def local(self) -> Self:
        """This object if its file is on this machine; else one with a new file, written from the folder."""
        return self if self.is_local() else self.write(self.folder, new_file(), self.which)

    def is_local(self) -> bool:
        """Whether the file is on this machine, with the size that it has to have."""
        size = self.start + self.dtype.itemsize * self.shape[0] * self.shape[1]
        return self.file.is_file() and self.file.stat().st_size == size

    def tensor(self) -> torch.Tensor:
        """All vectors as a tensor of this ``shape`` and ``dtype``, mapped from the file."""
        if not len(self):
            return torch.empty(self.shape, dtype=torch.from_numpy(np.empty(0, self.dtype)).dtype)
        return torch.from_numpy(np.memmap(self.file, self.dtype, "c", self.start, self.shape))

    def select(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """The vectors with these distinct, ascending numbers; not copied if the numbers are consecutive."""
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return self.tensor()[first : last + 1]
        return self.tensor()[torch.from_numpy(numbers)]


def new_file() -> Path:
    """A new temporary file on this machine, which is removed when the program ends."""
    with tempfile.NamedTemporaryFile(prefix="pairsmith-", suffix=".tmp", delete=False) as handle:
        file = Path(handle.name)
    atexit.register(remove, file)
    return file


def some_rows(
    folder: DatasetFolder, which: NDArray[np.bool_] | None, columns: Sequence[str]
) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
    """The rows ``which`` of a folder, or all with None, shard by shard, with their positions in the shard.

    Shards without such rows are not read.
    """
    edges = np.cumsum([0, *folder.shard_rows()]).tolist()
    parts = [
        np.ones(stop - start, bool) if which is None else which[start:stop] for start, stop in pairwise(edges)
    ]
    shards = [number for number, part in enumerate(parts) if part.any()]
    for number, table in zip(shards, folder.shards("train", columns, shards), strict=True):
        positions = np.flatnonzero(parts[number])
        yield positions, table if which is None else table.take(positions)
