"""Training examples of a question generator, kept on disk, as they may not fit into memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from pairsmith.data.examples import Example
from pairsmith.data.stored_rows import StoredRows, StoredSequence

_SCHEMA = pa.schema([("input", pa.string()), ("output", pa.string())])


class GeneratorExamples(StoredSequence[Example]):
    """Passages, each with the answer and question to write about it, on disk."""

    def __init__(self, examples: Iterable[Example]) -> None:
        """Write the input and the output of each example to disk."""
        self._stored = StoredRows(
            ({"input": example.input, "output": example.output} for example in examples), _SCHEMA
        )

    def __len__(self) -> int:
        return len(self._stored)

    def item(self, number: int) -> Example:
        """Read one item from the disk."""
        return _example(self._stored[number])

    def __iter__(self) -> Iterator[Example]:
        return map(_example, self._stored)


def _example(row: dict[str, Any]) -> Example:
    return Example(row["input"], row["output"])
