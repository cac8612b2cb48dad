"""Sorting and grouping of more numbers than fit into memory, with NumPy and scratch files on the disk.

The peak memory depends on the number of rows that are sorted at once, not on the number of all rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.runs.storage import scratch_file, storage_errors

ROWS_AT_ONCE = 2**20
"""Largest number of rows that are sorted at once; each needs up to a hundred bytes meanwhile. With more rows,
sorting is slower, as they exceed the processor's caches."""
SAMPLES = 1_024
"""Number of sampled rows of each sorted run; at such rows, all rows are divided into parts to be merged."""
MOST_ROWS = 2**32
"""Largest number of rows that can be numbered in 32 bits."""

Column = NDArray[np.uint32]
Rows = NDArray[np.uint32]
SortColumns = Callable[[Rows], Sequence[Column]]
N = TypeVar("N", bound=np.generic)


def stable_order(columns: Sequence[Column]) -> NDArray[np.int64]:
    """The row numbers in the order that sorts rows by columns, ``(n,)`` int64; equal rows keep their order.

    Columns are ``(n,)`` uint32, n at most 2^32, the most significant one first. The sort needs half the time
    of ``numpy.lexsort``: each value is packed with its row number into one 64-bit number, and NumPy sorts
    such numbers with vector instructions.
    """
    places = np.arange(len(columns[0]), dtype=np.uint64)
    order: NDArray[np.int64] | None = None
    for column in reversed(columns):
        if len(column) and (column == column[0]).all():
            continue
        packed = (column if order is None else column[order]).astype(np.uint64)
        packed <<= np.uint64(32)
        packed |= places
        packed.sort()
        packed &= np.uint64(MOST_ROWS - 1)
        column_order = packed.view(np.int64)
        order = column_order if order is None else order[column_order]
    return places.view(np.int64) if order is None else order


def differs_from_previous(columns: Sequence[Column]) -> NDArray[np.bool_]:
    """Which rows differ in any column from the row before, ``(n,)`` bool; True for the first row."""
    changed = np.ones(len(columns[0]), bool)
    if len(changed):
        changed[1:] = False
        for column in columns:
            changed[1:] |= column[1:] != column[:-1]
    return changed


def sorted_rows(
    parts: Iterable[Rows], keys: SortColumns, folder: Place, name: str, *, rows: int = ROWS_AT_ONCE
) -> Iterator[Rows]:
    """All rows of the parts, sorted by the columns that ``keys`` computes; equal rows keep their order.

    Args:
        parts: tables of rows, ``(m, width)`` uint32, with any m.
        keys: computes the sort columns of such a table, ``(m,)`` each, the most significant one first.
        folder: the folder for a scratch file with all rows, which is only written if there are more than
            ``rows`` rows.
        name: a part of the scratch file's name; sorts at the same time need different names.
        rows: the largest number of rows that are sorted at once.
    """
    with scratch_file(folder, name) as path, storage_errors(path), ExitStack() as stack:
        file: BinaryIO | None = None
        runs: list[_SortedRun] = []
        last: Rows | None = None
        for part in _together(parts, rows):
            if last is not None:
                file = file or stack.enter_context(path.open("w+b"))
                runs.append(_SortedRun(file, last, keys, max(1, rows // SAMPLES)))
            last = part[stable_order(keys(part))]
        if last is None:
            return
        if file is None:
            yield last
            return
        runs.append(_SortedRun(file, last, keys, runs[0].step))
        del last
        file.flush()
        yield from _merged(runs, keys, max(1, rows // runs[0].step - len(runs), rows // runs[0].step // 2))


def sorted_within(parts: Iterable[Rows], keys: SortColumns, column: int) -> Iterator[Rows]:
    """Sort rows that are already sorted by one column, by all columns that ``keys`` computes.

    ``column`` is the index of that column, which has to be the first one that ``keys`` computes. Memory holds
    one part, and the rows before it that share the last value of the column, as this part may have more rows
    with that value.
    """
    unfinished: Rows | None = None
    for part in parts:
        rows = part if unfinished is None else np.concatenate([unfinished, part])
        if not len(rows):
            continue
        border = int(np.searchsorted(rows[:, column], rows[-1, column]))
        ready, unfinished = rows[:border], rows[border:].copy()
        yield ready[stable_order(keys(ready))]
    if unfinished is not None:
        yield unfinished[stable_order(keys(unfinished))]


class _SortedRun:
    """A run of an external merge sort: sorted rows in a file, and the sort columns of every ``step``-th row.

    The file has the rows of all runs one after the other.
    """

    def __init__(self, file: BinaryIO, rows: Rows, keys: SortColumns, step: int) -> None:
        self._file, self._begin, self._keys, self.step = file, file.tell(), keys, step
        self._length, self._width = rows.shape
        file.write(np.ascontiguousarray(rows).tobytes())
        self.samples = [column.copy() for column in keys(rows[::step])]

    def read(self, start: int, stop: int | None) -> Rows:
        """The rows from ``start`` to ``stop``; None stands for the end of the run."""
        self._file.seek(self._begin + 4 * self._width * start)
        count = (self._length if stop is None else stop) - start
        return np.fromfile(self._file, np.uint32, self._width * count).reshape(-1, self._width)

    def place(self, row: Sequence[int], equal: bool) -> int:
        """The number of rows that sort before ``row``, or with ``equal``, not after it."""
        samples = _place(self.samples, row, equal)
        start = max(0, samples - 1) * self.step
        stop = min(samples * self.step, self._length)
        return start + _place(self._keys(self.read(start, stop)), row, equal)


def _place(columns: Sequence[Column], row: Sequence[int], equal: bool) -> int:
    """The number of rows that sort before ``row``, or with ``equal``, not after it, from sorted columns."""
    start, stop = 0, len(columns[0])
    for column, value in zip(columns, row, strict=True):
        part, target = column[start:stop], np.uint32(value)
        start, stop = (start + int(np.searchsorted(part, target, side)) for side in ("left", "right"))
    return stop if equal else start


def _merged(runs: Sequence[_SortedRun], keys: SortColumns, samples: int) -> Iterator[Rows]:
    """Merge sorted runs: divide all rows at every ``samples``-th sample, and sort one part after the other.

    A part has at most ``step`` rows for each of its samples, and for each run. Of equal rows, the rows of
    earlier runs come first. For each part, ``step`` rows of each run are read to find where the part ends, so
    a part must not have many fewer samples than there are runs.
    """
    columns = [np.concatenate(parts) for parts in zip(*(run.samples for run in runs), strict=True)]
    edges = np.cumsum([0, *(len(run.samples[0]) for run in runs)])
    starts = [0] * len(runs)
    for sample in [*stable_order(columns)[samples::samples].tolist(), None]:
        stops: list[int | None] = [None] * len(runs)
        if sample is not None:
            row = [int(column[sample]) for column in columns]
            of_run = int(np.searchsorted(edges, sample, "right")) - 1
            stops = [run.place(row, number < of_run) for number, run in enumerate(runs)]
            stops[of_run] = (sample - int(edges[of_run])) * runs[of_run].step
        pieces = zip(runs, starts, stops, strict=True)
        part = np.concatenate([run.read(start, stop) for run, start, stop in pieces])
        if len(part):
            yield part[stable_order(keys(part))]
        starts = [stop or 0 for stop in stops]


def first_of_each(
    keys: Iterable[NDArray[np.uint64]], count: int, folder: Place, *, rows: int = ROWS_AT_ONCE
) -> NDArray[np.uint32]:
    """For each key, the number of the first key that equals it, ``(count,)`` uint32; numbers start at 0.

    Args:
        keys: tables of keys, ``(m, width)`` uint64 each, with one key in each row. The numbers in the first
            column have to be spread evenly over all 64-bit numbers, as hashes are.
        count: the number of keys, at most 2^32.
        folder: the folder for the scratch file, which needs ``8 * width + 4`` bytes for each key.
        rows: the largest number of keys that are sorted at once. Besides these, memory holds 4 bytes for each
            key.
    """
    if count > MOST_ROWS:
        raise InputError(
            f"{count:,} texts are more than the {MOST_ROWS:,} that can be compared; split them into several "
            "runs"
        )
    firsts = np.arange(count, dtype=np.uint32)
    parts = max(1, -(-count // rows))
    borders = np.array([-(-part * 2**32 // parts) for part in range(1, parts)], np.uint64)
    pieces: list[tuple[int, NDArray[np.int64]]] = []
    with scratch_file(folder, "keys") as path, storage_errors(path), path.open("w+b") as file:
        first = written = width = 0
        for block in _together(keys, rows):
            columns, width = _halves(block), 2 * block.shape[1] + 1
            heads = _share_first(columns, np.arange(first, first + len(block), dtype=np.uint32), firsts)
            if parts > 1:
                numbers = (heads + first).astype(np.uint32)
                kept = np.stack([*(column[heads] for column in columns), numbers], axis=1)
                file.write(kept.tobytes())
                edges = np.searchsorted(kept[:, 0], borders.astype(np.uint32))
                pieces.append((written, np.array([0, *edges, len(kept)])))
                written += len(kept)
            first += len(block)
        file.flush()
        for part in range(parts if pieces else 0):
            of_part = []
            for start, edges in pieces:
                file.seek(4 * width * (start + int(edges[part])))
                number = width * int(edges[part + 1] - edges[part])
                of_part.append(np.fromfile(file, np.uint32, number).reshape(-1, width))
            records = np.concatenate(of_part).T
            _share_first(list(np.ascontiguousarray(records[:-1])), records[-1], firsts)
    # Each key points to the first equal key of its block, which by now points to the first of all blocks.
    for start in range(0, count, rows):
        firsts[start : start + rows] = firsts[firsts[start : start + rows]]
    return firsts


def _share_first(columns: Sequence[Column], numbers: Column, firsts: Column) -> NDArray[np.int64]:
    """Set ``firsts`` of each row that equals an earlier one to the number of the first equal row.

    ``numbers`` has the number of each row. Returns the indices of the rows that equal no earlier row.
    """
    order = stable_order(columns)
    new = differs_from_previous([column[order] for column in columns])
    heads = order[new]
    group = (np.cumsum(new) - 1)[~new]
    firsts[numbers[order[~new]]] = numbers[heads[group]]
    return heads


def _halves(keys: NDArray[np.uint64]) -> list[Column]:
    """The 32-bit halves of 64-bit numbers, ``(n, width)``, as twice as many columns, the upper half first."""
    halves = ((keys[:, i] >> np.uint64(shift)) for i in range(keys.shape[1]) for shift in (32, 0))
    return [half.astype(np.uint32) for half in halves]  # the conversion drops the upper bits


def _together(parts: Iterable[NDArray[N]], rows: int) -> Iterator[NDArray[N]]:
    """The rows of all parts, in blocks of ``rows`` rows; the last block may be smaller."""
    block: list[NDArray[N]] = []
    count = 0
    for part in parts:
        while len(part):
            head, part = part[: rows - count], part[rows - count :]
            block.append(head)
            count += len(head)
            if count == rows:
                yield np.concatenate(block)
                block, count = [], 0
    if block:
        yield np.concatenate(block)
