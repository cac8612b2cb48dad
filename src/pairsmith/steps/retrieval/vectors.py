"""The vectors of a folder that ``encode_corpus`` wrote, each distinct text once, mapped from a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import mapped_table
from pairsmith.steps.vectors import VectorFile, some_rows

_TEXT: pa.Schema = pa.schema([("text", pa.string())])


@dataclass(frozen=True, slots=True)
class KeyedVectors:
    """Vectors of distinct texts, numbered from 0, and the ``keys`` of these texts, ``(n,)``.

    ``distinct``, ``(rows,)``, tells which rows of the folder these texts are: the first with each text.
    """

    keys: TextKeys
    vectors: VectorFile
    distinct: NDArray[np.bool_]

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """Collect the vectors of a folder's distinct texts, and write them to ``file``."""
        every = [
            np.zeros(0, np.uint64),
            *(text_keys(table["id"]) for table in folder.shards("train", ["id"])),
        ]
        keys = np.concatenate(every)
        first = np.zeros(len(keys), bool)
        first[np.unique(keys, return_index=True)[1]] = True
        return cls(keys[first], VectorFile.write(folder, file, first), first)

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.keys)

    @property
    def folder(self) -> DatasetFolder:
        """The folder that they are from."""
        return self.vectors.folder

    def every(self) -> torch.Tensor:
        """All vectors, ``(n, width)``, mapped from the file."""
        return self.vectors.every()

    def numbers(self, keys: TextKeys) -> NDArray[np.int64]:
        """The number of the text with each key, ``(len(keys),)``; -1 where no text has it."""
        return places_of(keys, self.keys)

    def texts(self, numbers: NDArray[np.int64], file: Path) -> pa.Table:
        """The texts with these numbers, ascending, in a column ``text``, mapped from a new ``file``."""
        wanted = np.zeros(len(self.distinct), bool)
        wanted[np.flatnonzero(self.distinct)[numbers]] = True
        return mapped_table((table for _, table in some_rows(self.folder, wanted, ["text"])), _TEXT, file)


def places_of(keys: TextKeys, known: TextKeys) -> NDArray[np.int64]:
    """The first place of each key in ``known``, ``(len(keys),)``; -1 where it is not there."""
    distinct, first = np.unique(known, return_index=True)
    at = np.searchsorted(distinct, keys)
    at[at == len(distinct)] = 0
    if not len(distinct):
        return np.full(len(keys), -1, np.int64)
    return np.where(distinct[at] == keys, first[at], -1).astype(np.int64)
