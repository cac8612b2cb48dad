"""Pairs in files, and the retrieval rules of ``margin.select_pairs`` for more pairs than fit into memory.

The pairs are sorted on the disk (``runs.sorting``) and read in parts; of each text, one byte is held.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.core.paths import Place
from pairsmith.runs.sorting import (
    ROWS_AT_ONCE,
    Column,
    Rows,
    SortColumns,
    changes,
    sorted_rows,
    sorted_within,
)
from pairsmith.runs.storage import storage_errors
from pairsmith.search.margin import RetrievalName, ScoredCandidates, UsedTexts

_X, _Y, _SIMILARITY, _MARGIN = range(4)
_ZERO = np.uint32(0)
_SIGN = np.uint32(2**31)


class PairFile:
    """Pairs in a file, in the order in which they were added, 16 bytes each.

    Rows are ``(4,)`` uint32: the numbers of x and y, and the bits of the cosine and the margin in float32.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        with storage_errors(path):
            path.write_bytes(b"")

    def __len__(self) -> int:
        """The number of pairs."""
        return self._count

    def __getitem__(self, which: slice) -> ScoredCandidates:
        """A range of the pairs, which is read into memory."""
        start, stop, _ = which.indices(len(self))
        rows = np.fromfile(self._path, np.uint32, 4 * max(0, stop - start), offset=16 * start).reshape(-1, 4)
        x, y = (torch.from_numpy(rows[:, side].astype(np.int64)) for side in (_X, _Y))
        numbers = (rows[:, column].copy().view(np.float32) for column in (_SIMILARITY, _MARGIN))
        return ScoredCandidates(x, y, *map(torch.from_numpy, numbers))

    def add(self, x: NDArray[np.integer], y: NDArray[np.integer], pairs: ScoredCandidates) -> None:
        """Add pairs with other numbers of their texts, ``x`` and ``y``, ``(pairs,)``, from 0 to 2^32 - 1."""
        rows = np.empty((len(pairs), 4), np.uint32)
        rows[:, _X], rows[:, _Y] = x, y
        for column, values in ((_SIMILARITY, pairs.similarity), (_MARGIN, pairs.margin)):
            rows[:, column] = values.contiguous().numpy().view(np.uint32)
        self.extend([rows])

    def extend(self, parts: Iterable[Rows]) -> None:
        """Add rows in parts."""
        with storage_errors(self._path), self._path.open("ab") as file:
            for rows in parts:
                file.write(np.ascontiguousarray(rows).tobytes())
                self._count += len(rows)

    def has(self, count: int) -> NDArray[np.bool_]:
        """Which x have a pair, ``(count,)``, of those numbered from 0."""
        paired = np.zeros(count, np.bool_)
        for rows in self.parts():
            paired[rows[:, _X]] = True
        return paired

    def parts(self) -> Iterator[Rows]:
        """All rows in order, in parts of at most a quarter of ``ROWS_AT_ONCE``."""
        with self._path.open("rb") as file:
            while len(rows := np.fromfile(file, np.uint32, ROWS_AT_ONCE)):
                yield rows.reshape(-1, 4)


def choose_from_files(
    forward: PairFile,
    backward: PairFile,
    retrieval: RetrievalName,
    into: PairFile,
    folder: Place,
    sizes: tuple[int, int],
    *,
    best: int | None = None,
    rows: int = ROWS_AT_ONCE,
) -> None:
    """Add to ``into`` the pairs that ``margin.select_pairs`` selects, in the same order.

    Args:
        forward, backward: the candidates of each x and of each y.
        folder: where scratch files are written, up to 16 bytes for each candidate, twice at times.
        sizes: the numbers of texts on the sides of x and of y.
        best: see ``margin.select_pairs``.
        rows: most pairs that are sorted at once.
    """

    def sort(parts: Iterable[Rows], keys: SortColumns, name: str) -> Iterator[Rows]:
        return sorted_rows(parts, keys, folder, f"sort-{name}", rows=rows)

    every = chain(forward.parts(), backward.parts())
    if retrieval == "candidates":
        distinct = _first_of(sort(every, _by(_X, _Y, _MARGIN), "pairs"), (_X, _Y))
        by_input = _by(_X, _MARGIN, _Y)
        if best is None:
            into.extend(sorted_within(distinct, by_input, _X))
        else:
            into.extend(sort(_head(sort(distinct, _RANK, "rank"), best), by_input, "inputs"))
        return
    if retrieval == "max":
        chosen = _each_once(sort(every, _RANK, "rank"), sizes)
        into.extend(_head(chosen, best))
        return
    ahead = _first_of(sort(forward.parts(), _by(_X, _MARGIN, _Y), "x"), (_X,))
    back = _first_of(sort(backward.parts(), _by(_Y, _MARGIN, _X), "y"), (_Y,))
    chosen = ahead if retrieval == "forward" else back
    if retrieval == "intersection":
        chosen = _repeated(sort(chain(ahead, back), _by(_X, _Y), "both"))
    into.extend(_head(sort(chosen, _RANK, "rank"), best))


def _by(*names: int) -> SortColumns:
    """The columns by which rows are sorted; the margin is sorted from the largest down."""
    return partial(_columns, names)


def _columns(names: Sequence[int], rows: Rows) -> list[Column]:
    return [_descending(rows[:, name]) if name == _MARGIN else rows[:, name] for name in names]


def _descending(bits: Column) -> Column:
    """Integers that sort as numbers in float32 do from the largest down, from the numbers' bits; no NaN."""
    bits = np.where(bits == _SIGN, _ZERO, bits)  # -0.0 equals 0.0
    return np.where(bits & _SIGN, bits, ~bits & ~_SIGN)


_RANK = _by(_MARGIN, _X, _Y)


def _first_of(parts: Iterable[Rows], names: Sequence[int]) -> Iterator[Rows]:
    """The first row with each value of these columns, from rows sorted by them."""
    last = np.zeros((0, 4), np.uint32)
    for rows in parts:
        new = changes([column[:, 0] for column in np.split(rows[:, names], len(names), axis=1)])
        if len(last) and len(rows):
            new[0] = bool((rows[0, names] != last[0, names]).any())
        last = rows[-1:] if len(rows) else last
        yield rows[new]


def _repeated(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Of each pair that occurs twice the first row, from rows sorted by x and y."""
    last = np.zeros((0, 4), np.uint32)
    for some in parts:
        rows = np.concatenate([last, some])
        again = (rows[1:, [_X, _Y]] == rows[:-1, [_X, _Y]]).all(axis=1)
        yield rows[:-1][again]
        last = rows[-1:]


def _each_once(parts: Iterable[Rows], sizes: tuple[int, int]) -> Iterator[Rows]:
    """The rows of which neither text is in an earlier one that was taken."""
    used = UsedTexts(*sizes)
    return (rows[used.add(rows[:, _X], rows[:, _Y])] for rows in parts)


def _head(parts: Iterator[Rows], count: int | None) -> Iterator[Rows]:
    """The first ``count`` rows; all without a number."""
    left = count
    for rows in parts:
        yield rows if left is None else rows[:left]
        if left is not None:
            left -= len(rows)
            if left <= 0:
                return
