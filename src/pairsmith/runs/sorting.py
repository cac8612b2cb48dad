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


def changes(columns: Sequence[Column]) -> NDArray[np.bool_]:
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
                runs.append(_SortedRun(file, last, keys))
            last = part[stable_order(keys(part))]
        if last is None:
            return
        if file is None:
            yield last
            return
        runs.append(_SortedRun(file, last, keys))
        del last
        file.flush()
        yield from _merged(runs, rows)


def sorted_within(parts: Iterable[Rows], keys: SortColumns, column: int) -> Iterator[Rows]:
    """Sort rows that are already sorted by one column, by all columns that ``keys`` computes.

    ``column`` is the index of that column, which has to be the first one that ``keys`` computes. Memory holds
    one part, and those of its rows that have the last value of the column: the next part may have more of
    them.
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
    """A run of an external merge sort: sorted rows in a file, of which up to ``room`` are held in memory.

    The file has the rows of all runs one after the other. ``first`` and ``last`` are the values of the sort
    columns in the run's first and last row, ``held`` the rows in memory.
    """

    def __init__(self, file: BinaryIO, rows: Rows, keys: SortColumns) -> None:
        self._file, self._next, self.keys = file, file.tell(), keys
        file.write(np.ascontiguousarray(rows).tobytes())
        self._stop = file.tell()
        self.room = 0
        self.first, self.last = (_values(keys(rows[[place]]), 0) for place in (0, -1))
        self.held = rows[:0].copy()
        self._columns = keys(self.held)

    @property
    def more(self) -> bool:
        """Whether the file has rows of this run that were not read yet."""
        return self._next < self._stop

    @property
    def end(self) -> tuple[int, ...]:
        """The values of the sort columns in the last row in memory."""
        return _values(self._columns, -1)

    def fill(self) -> None:
        """Read more rows if at most half of the room is in use."""
        if self.more and len(self.held) <= self.room // 2:
            width = self.held.shape[1]
            self._file.seek(self._next)
            number = min(4 * width * (self.room - len(self.held)), self._stop - self._next) // 4
            read = np.fromfile(self._file, np.uint32, number).reshape(-1, width)
            self._next += 4 * number
            self.held = np.concatenate([self.held, read])
            self._columns = self.keys(self.held)

    def up_to(self, row: tuple[int, ...], equal: bool) -> int:
        """The number of rows in memory that sort before ``row``, or with ``equal``, not after it."""
        start, stop = 0, len(self.held)
        for column, value in zip(self._columns, row, strict=True):
            if start == stop:
                break
            part, target = column[start:stop], np.uint32(value)
            start, stop = (start + int(np.searchsorted(part, target, side)) for side in ("left", "right"))
        return stop if equal else start

    def take(self, count: int) -> Rows:
        """Remove the first ``count`` rows from memory, and return them."""
        rows, self.held = self.held[:count], self.held[count:]
        if len(self.held):
            self._columns = [column[count:] for column in self._columns]
        else:  # an empty view would keep all rows that were read in memory
            self.held = self.held.copy()
            self._columns = self.keys(self.held)
        return rows


def _merged(runs: Sequence[_SortedRun], rows: int) -> Iterator[Rows]:
    """Merge sorted runs; at most ``2 * rows`` rows are in memory. A run is read once its first row is due.

    If the rows came nearly in order, few runs overlap, and more rows of each are read at once. A run whose
    rows lie closer together than those of the others has to be read again after few merged rows; it gets more
    room for the next time.
    """
    room, spare = max(1, rows // _overlapping(runs)), rows
    for run in runs:
        run.room = room
    waiting = sorted(((run.first, number) for number, run in enumerate(runs)), reverse=True)
    active: list[int] = []
    while active or waiting:
        for number in active:
            runs[number].fill()
        # No row that is still to be read comes before the smallest of the runs' last rows in memory.
        ends = [(runs[number].end, number) for number in active if runs[number].more]
        bound = min(ends) if ends else max(((runs[n].last, n) for n in active), default=None)
        if bound is None or (waiting and waiting[-1] <= bound):
            active = sorted([*active, waiting.pop()[1]])
            continue
        counts = [runs[number].up_to(bound[0], number <= bound[1]) for number in active]
        if ends and 4 * sum(counts) < sum(len(runs[number].held) for number in active):
            more = min(spare, runs[bound[1]].room)
            runs[bound[1]].room += more
            spare -= more
        part = np.concatenate([runs[n].take(count) for n, count in zip(active, counts, strict=True)])
        yield part[stable_order(runs[0].keys(part))]
        done = {number for number in active if not (runs[number].more or len(runs[number].held))}
        spare += sum(runs[number].room - room for number in done)
        active = [number for number in active if number not in done]


def _overlapping(runs: Sequence[_SortedRun]) -> int:
    """The largest number of runs whose ranges of rows, from first to last, overlap in one place."""
    events = sorted([(run.first, 1) for run in runs] + [(run.last, 2) for run in runs])
    count = most = 0
    for _, kind in events:
        count += 1 if kind == 1 else -1
        most = max(most, count)
    return most


def _values(columns: Sequence[Column], place: int) -> tuple[int, ...]:
    return tuple(int(column[place]) for column in columns)


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

    ``numbers`` has the number of each row. Returns the places of the rows that equal no earlier one.
    """
    order = stable_order(columns)
    new = changes([column[order] for column in columns])
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
