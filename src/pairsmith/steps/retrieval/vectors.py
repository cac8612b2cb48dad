"""The vectors of the distinct texts that ``encode_corpus`` wrote, looked up by the keys of the texts."""

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
    """The vectors of n distinct texts, numbered from 0.

    Attributes:
        keys: ``(n,)`` uint64, the key of each text.
        vectors: the vectors, in a file.
        distinct: ``(rows,)`` bool, whether a row of the folder is the first one with its text.
    """

    keys: TextKeys
    vectors: VectorFile
    distinct: NDArray[np.bool_]

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """Collect the vectors of a folder's distinct texts, and write them to ``file``."""
        keys_of_shards = (text_keys(table["id"]) for table in folder.shards("train", ["id"]))
        keys = np.concatenate([np.zeros(0, np.uint64), *keys_of_shards])
        first = np.zeros(len(keys), bool)
        first[np.unique(keys, return_index=True)[1]] = True
        return cls(keys[first], VectorFile.write(folder, file, first), first)

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self.keys)

    @property
    def folder(self) -> DatasetFolder:
        """The folder of the encoded texts."""
        return self.vectors.folder

    def every(self) -> torch.Tensor:
        """All vectors, ``(n, width)``, mapped from the file."""
        return self.vectors.tensor()

    def numbers(self, keys: TextKeys) -> NDArray[np.int64]:
        """The number of the text with each of k keys, ``(k,)`` int64; -1 if no text has this key."""
        return places_of(keys, self.keys)

    def texts(self, numbers: NDArray[np.int64], file: Path) -> pa.Table:
        """The texts with these ascending numbers, in a column ``text``, mapped from a new ``file``."""
        selected = np.zeros(len(self.distinct), bool)
        selected[np.flatnonzero(self.distinct)[numbers]] = True
        return mapped_table((table for _, table in some_rows(self.folder, selected, ["text"])), _TEXT, file)


def places_of(keys: TextKeys, known: TextKeys) -> NDArray[np.int64]:
    """The first position of each of k keys in ``known``, ``(k,)`` int64; -1 if it is not in ``known``."""
    if not len(known):
        return np.full(len(keys), -1, np.int64)
    distinct, first = np.unique(known, return_index=True)
    at = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return np.where(distinct[at] == keys, first[at], -1).astype(np.int64)
