"""The distinct texts of an encoded corpus, whose texts and vectors are memory-mapped from files."""

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

from pairsmith.core.errors import InputError
from pairsmith.data.schemas import REJECT, Reject, rows_at, to_table
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import storage_errors

ENCODED: pa.Schema = pa.schema(
    [
        ("id", pa.string()), ("text", pa.string()), ("group", pa.string()),
        ("context", pa.string()), ("answer", pa.string()), ("answer_start", pa.int32()),
        ("vector", pa.list_(pa.float32())),
    ]
)  # fmt: skip
"""A text, the group within which it is paired, for a candidate answer also the answer and its passage, and
the text's vector, of length 1."""
TEXTS: pa.Schema = pa.schema([field for field in ENCODED if field.name != "vector"])


@dataclass(frozen=True, slots=True)
class Encoded:
    """The distinct texts of a corpus, numbered from 0.

    ``folder`` is the one that ``encode_corpus`` wrote, and ``rows``, ``(n,)``, the row of each text in it;
    ``file`` holds their vectors, float32, one after the other, of ``width`` dimensions.
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
        """Collect the distinct texts of a folder, and write their vectors to ``file``."""
        names = pa.concat_tables(folder.shards("train", ["id", "group"]))
        # From 134 million ids on, the keys have too many characters for 32-bit offsets.
        large = pa.table([column.cast(pa.large_string()) for column in names.columns], names.column_names)
        numbered = large.append_column("row", pa.array(np.arange(names.num_rows)))
        distinct = numbered.group_by(["id", "group"], use_threads=False).aggregate([("row", "min")])
        rows = np.sort(distinct["row_min"].to_numpy())
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
        """The same texts with a vector file on this machine; if it is missing here, it is written again."""
        if self.file.is_file() and self.file.stat().st_size == 4 * self.width * len(self):
            return self
        with tempfile.NamedTemporaryFile(prefix="pairsmith-", suffix=".tmp", delete=False) as made:
            file = Path(made.name)
        atexit.register(file.unlink, missing_ok=True)
        Encoded.of(self.folder, file)
        return replace(self, file=file)

    def vectors(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """Vectors of texts, ``(len(numbers), width)`` float32; not copied if the numbers are consecutive."""
        every = torch.from_numpy(np.memmap(self.file, np.float32, "c").reshape(-1, self.width))
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):  # numbers are distinct and ascending
            return every[first : last + 1]
        return every[torch.from_numpy(numbers)]

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """The numbers of the texts in each group, ascending, by the group's name."""
        names, which = self._coded("group")
        order = np.argsort(which, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
        return {names[which[numbers[0]]]: numbers for numbers in parts}

    def firsts(self) -> NDArray[np.int64]:
        """For each number, the first number of the same text: a text in two groups has two numbers."""
        _, which = self._coded("id")
        found: NDArray[np.int64] = np.unique(which, return_index=True)[1][which]
        return found

    def _coded(self, column: str) -> tuple[list[str], NDArray[np.int64]]:
        """The distinct values of a column, in order of first appearance, and each text's index into them."""
        # Coded shard by shard: an array of strings as wide as the longest would be many times as large.
        codes: dict[str, int] = {}
        found = []
        for table in self.folder.shards("train", [column]):
            coded = table[column].combine_chunks().dictionary_encode()
            ours = np.array(
                [codes.setdefault(name, len(codes)) for name in coded.dictionary.to_pylist()], np.int64
            )
            found.append(ours[coded.indices.to_numpy(zero_copy_only=False)] if len(coded) else ours)
        # Rows that repeat the text and group of an earlier row are left out.
        return list(codes), np.concatenate(found)[self.rows]

    def copies(self, corpus: str) -> pa.Table:
        """The texts that repeat an earlier one, as rejects."""
        again = np.setdiff1d(np.arange(sum(self.folder.shard_rows())), self.rows, assume_unique=True)
        reason = f"repeats an earlier text of the {corpus}"
        found = [to_table([], REJECT)]
        for _, table in self.texts_of(again):
            rows = [Reject.of(row["id"], "duplicate", reason, row) for row in table.to_pylist()]
            found.append(to_table(rows, REJECT))
        return pa.concat_tables(found)

    def texts_of(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """These rows of the folder without vectors, in order, by shard; shards without any are not read."""
        edges = np.cumsum([0, *self.folder.shard_rows()])
        places = np.searchsorted(rows, edges)
        shards = np.flatnonzero(np.diff(places)).tolist()
        tables = self.folder.shards("train", TEXTS.names, shards)
        for number, table in zip(shards, tables, strict=True):
            here = rows[places[number] : places[number + 1]]
            yield here, table.take(here - edges[number])


class Texts:
    """The distinct texts of a corpus by their numbers, mapped from a file, so that none is read twice."""

    def __init__(self, encoded: Encoded, file: Path) -> None:
        with storage_errors(file), pa.ipc.new_file(str(file), TEXTS) as out:
            for _, table in encoded.texts_of(encoded.rows):
                out.write_table(table)
        self._table: pa.Table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of these texts, as ``TEXTS``, in the order of the numbers."""
        found: list[dict[str, Any]] = rows_at(self._table, np.asarray(numbers, np.int64)).to_pylist()
        return found
