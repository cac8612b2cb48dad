"""What a question generator learns from, kept on disk, as it may not fit into memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import pyarrow as pa

from pairsmith.data.examples import Example
from pairsmith.data.stored_rows import StoredRows

_SCHEMA = pa.schema([("input", pa.string()), ("output", pa.string())])


class GeneratorExamples(Sequence[Example]):
    """Passages, each with the answer and question to write about it, on disk."""

    def __init__(self, examples: Iterable[Example]) -> None:
        """Write the input and the output of each example to disk."""
        self._stored = StoredRows(
            ({"input": each.input, "output": each.output} for each in examples), _SCHEMA
        )

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, number: int) -> Example: ...
    @overload
    def __getitem__(self, number: slice) -> list[Example]: ...
    def __getitem__(self, number: int | slice) -> Example | list[Example]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        return _example(self._stored[range(len(self))[number]])

    def __iter__(self) -> Iterator[Example]:
        return map(_example, self._stored)


def _example(row: dict[str, Any]) -> Example:
    return Example(row["input"], row["output"])
