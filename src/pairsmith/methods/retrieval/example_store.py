"""Training rows of a retriever, kept on disk, as they may not fit into memory."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pairsmith.data.stored_rows import StoredRows, StoredSequence
from pairsmith.data.tuples import RetrievalExample
from pairsmith.runs.seeds import stream_key

_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("positive", pa.string()),
        ("negatives", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
    ]
)


class ExampleStore(StoredSequence[RetrievalExample]):
    """The distinct examples of a stream, in their order; ``read`` is the number of all its examples.

    Memory holds one number for each example.
    """

    def __init__(self, examples: Iterable[RetrievalExample]) -> None:
        """Write the examples to disk."""
        keys = array("Q")

        def rows() -> Iterator[dict[str, Any]]:
            for example in examples:
                keys.append(
                    stream_key(
                        example.query, example.positive, *example.negatives, *map(repr, example.scores)
                    )
                )
                yield {name: getattr(example, name) for name in _SCHEMA.names}

        self._stored = StoredRows(rows(), _SCHEMA)
        self.read = len(keys)
        self._numbers = np.sort(np.unique(np.array(keys, np.uint64), return_index=True)[1])

    def __len__(self) -> int:
        return len(self._numbers)

    def item(self, number: int) -> RetrievalExample:
        """Read one item from the disk."""
        return _example(self._stored[int(self._numbers[number])])

    def __iter__(self) -> Iterator[RetrievalExample]:
        wanted = np.zeros(self.read, bool)
        wanted[self._numbers] = True
        return (_example(row) for row, kept in zip(self._stored, wanted, strict=True) if kept)


def _example(row: dict[str, Any]) -> RetrievalExample:
    return RetrievalExample(row["query"], row["positive"], tuple(row["negatives"]), tuple(row["scores"]))


class KnownPositives:
    """The positives of each query; a number stands for each query and each positive (``key``)."""

    def __init__(self, examples: Iterable[RetrievalExample]) -> None:
        """Read the examples once; memory holds two numbers for each."""
        pairs = array("Q")
        for example in examples:
            pairs.extend((self.key(example.query), self.key(example.positive)))
        both = np.array(pairs, np.uint64).reshape(-1, 2)
        self._queries, self._positives = both[np.lexsort(both.T[::-1])].T

    @staticmethod
    def key(text: str) -> int:
        """The number of a text."""
        return stream_key(text)

    def of(self, query: str) -> frozenset[int]:
        """The numbers of the positives of a query."""
        key = np.uint64(self.key(query))
        first, end = (int(np.searchsorted(self._queries, key, side)) for side in ("left", "right"))
        return frozenset(self._positives[first:end].tolist())
