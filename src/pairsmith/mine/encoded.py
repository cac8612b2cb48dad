"""The distinct texts of an encoded corpus, their vectors mapped from a file."""

import atexit
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.errors import InputError
from pairsmith.records import REJECT, Reject, to_table
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import storage_errors

ENCODED: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("text", pa.string()), ("group", pa.string()),
        ("context", pa.string()), ("answer", pa.string()), ("answer_start", pa.int32()),
        ("vector", pa.list_(pa.float32())),
    ]
)  # fmt: skip
"""A text, the group within which it is paired, where it is an answer in a passage both of these, and the
text's vector, of length 1."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The distinct texts of a corpus, numbered from 0.

    Attributes:
        folder: where ``encode_corpus`` put them.
        file: their vectors, float32, one after the other.
        width: of a vector.
        rows: ``(n,)`` int64, the row of each in the folder.
    """

    folder: DatasetFolder
    file: Path
    width: int
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        """How many distinct texts there are."""
        return len(self.rows)

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """The texts of a folder, their vectors written to ``file``.

        Raises:
            InputError: there are fewer than two, so that there are no neighbours to compare.
        """
        rows = _first_rows(pa.concat_tables(folder.shards("train", ["id", "group"])))
        first = width = 0
        with storage_errors(file), file.open("wb") as out:
            for table in folder.shards("train", ["vector"]):
                new = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + table.num_rows)]
                if len(new):
                    vectors = table["vector"].take(new - first).combine_chunks().flatten()
                    width = len(vectors) // len(new)
                    out.write(
                        np.ascontiguousarray(vectors.to_numpy(zero_copy_only=False), np.float32).tobytes()
                    )
                first += table.num_rows
        if len(rows) < 2:
            lost = Counter(folder.manifest.counts.rejects_by_reason).most_common(1)
            why = f" (most were left out: {lost[0][0]}, {lost[0][1]:,})" if lost else ""
            raise InputError(
                f"{folder.path}: {len(rows)} distinct texts of {first} have a vector{why}; mining compares "
                "texts with their neighbours, so each corpus needs two or more"
            )
        return cls(folder, file, width, rows)

    def here(self) -> "Encoded":
        """The same on this machine, where the file may not be."""
        if self.file.is_file() and self.file.stat().st_size == 4 * self.width * len(self):
            return self
        folder = Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(
            prefix="pairsmith-", suffix=".tmp", dir=folder, delete=False
        ) as made:
            file = Path(made.name)
        atexit.register(file.unlink, missing_ok=True)
        Encoded.of(self.folder, file)
        return replace(self, file=file)

    def vectors(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """``(len(numbers), width)`` float32; not copied where they stand in a row."""
        every = torch.from_numpy(np.memmap(self.file, np.float32, "c").reshape(-1, self.width))
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):  # numbers are distinct and rise
            return every[first : last + 1]
        return every[torch.from_numpy(numbers)]

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """The numbers of each group's texts, in order."""
        names, which = self._coded("group")
        order = np.argsort(which, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
        return {names[which[numbers[0]]]: numbers for numbers in parts}

    def firsts(self) -> NDArray[np.int64]:
        """Of each text the number under which it stands first: one in two groups has two numbers."""
        _, which = self._coded("id")
        found: NDArray[np.int64] = np.unique(which, return_index=True)[1][which]
        return found

    def _coded(self, column: str) -> tuple[list[str], NDArray[np.int64]]:
        """The distinct values of a column, in the order in which they come, and the place of each text's."""
        # Codes shard by shard: names as long as the longest of them would be many times as large.
        codes: dict[str, int] = {}
        found = []
        for table in self.folder.shards("train", [column]):
            coded = table[column].combine_chunks().dictionary_encode()
            ours = np.array(
                [codes.setdefault(name, len(codes)) for name in coded.dictionary.to_pylist()], np.int64
            )
            found.append(ours[coded.indices.to_numpy(zero_copy_only=False)] if len(coded) else ours)
        # Some rows' texts are those of rows before; only the codes of the others are asked for.
        return list(codes), np.concatenate(found)[self.rows]

    def units(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """What there is of these texts but their vectors, by column, in the order of the numbers."""
        wanted = self.rows[np.asarray(numbers, dtype=np.int64)]
        found: dict[int, dict[str, Any]] = {}
        for here, table in self._of(np.unique(wanted)):
            found.update(zip(here.tolist(), table.to_pylist(), strict=True))
        return [found[row] for row in wanted.tolist()]

    def copies(self, corpus: str) -> pa.Table:
        """The texts that had been there before, as rejects."""
        again = np.setdiff1d(np.arange(sum(self.folder.shard_rows())), self.rows, assume_unique=True)
        reason = f"the text was among the {corpus} before"
        found = [to_table([], REJECT)]
        for _, table in self._of(again):
            rows = [Reject.of(row["id"], "duplicate", reason, row) for row in table.to_pylist()]
            found.append(to_table(rows, REJECT))
        return pa.concat_tables(found)

    def _of(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Rows of the folder, in order, by shard, without their vectors; no shard is read in vain."""
        columns = [name for name in ENCODED.names if name != "vector"]
        edges = np.cumsum([0, *self.folder.shard_rows()])
        places = np.searchsorted(rows, edges)
        shards = np.flatnonzero(np.diff(places)).tolist()
        tables = self.folder.shards("train", columns, shards)
        for number, table in zip(shards, tables, strict=True):
            here = rows[places[number] : places[number + 1]]
            yield here, table.take(here - edges[number])


def _first_rows(names: pa.Table) -> NDArray[np.int64]:
    """The row in which each text stands first; one may stand in several groups."""
    # Of 134 million names and more the keys have too many characters for offsets of 32 bits.
    large = pa.table([column.cast(pa.large_string()) for column in names.columns], names.column_names)
    rows = large.append_column("row", pa.array(np.arange(names.num_rows)))
    first = rows.group_by(["id", "group"], use_threads=False).aggregate([("row", "min")])["row_min"]
    return np.sort(first.to_numpy())
