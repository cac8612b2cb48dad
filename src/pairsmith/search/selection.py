"""The retrieval rules, which select pairs by their margins (M3), in memory or on disk.

Pairs are read in parts, and sorted in memory or, if they do not fit, on disk (``runs.sorting``). Memory
holds one byte for each text.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    differs_from_previous,
    sorted_rows,
    sorted_within,
    stable_order,
)
from pairsmith.runs.storage import storage_errors
from pairsmith.search.margin import ScoredCandidates, UsedTexts
from pairsmith.search.names import RetrievalName

_X, _Y, _SIMILARITY, _MARGIN = range(4)
_ZERO = np.uint32(0)
_SIGN = np.uint32(2**31)
_NO_PAIRS = np.zeros((0, 4), np.uint32)


def pair_rows(x: NDArray[np.integer], y: NDArray[np.integer], pairs: ScoredCandidates) -> Rows:
    """Pairs as rows ``(pairs, 4)`` uint32: the numbers of x and y, and the bits of cosine and margin.

    Cosines and margins are float32.

    ``x`` and ``y``, ``(pairs,)``, are the numbers that stand for the pairs' texts in the rows, from 0 to
    2^32 - 1.
    """
    rows = np.empty((len(pairs), 4), np.uint32)
    rows[:, _X], rows[:, _Y] = x, y
    for column, values in ((_SIMILARITY, pairs.similarity), (_MARGIN, pairs.margin)):
        rows[:, column] = values.contiguous().numpy().view(np.uint32)
    return rows


def pairs_of(rows: Rows) -> ScoredCandidates:
    """The pairs from the rows ``(pairs, 4)`` that ``pair_rows`` made of them."""
    x, y = (torch.from_numpy(rows[:, side].astype(np.int64)) for side in (_X, _Y))
    numbers = (rows[:, column].copy().view(np.float32) for column in (_SIMILARITY, _MARGIN))
    return ScoredCandidates(x, y, *map(torch.from_numpy, numbers))


class PairFile:
    """Pairs in a file, as ``pair_rows`` in the order in which they were added, 16 bytes each."""

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
        rows = np.fromfile(self._path, np.uint32, 4 * max(0, stop - start), offset=16 * start)
        return pairs_of(rows.reshape(-1, 4))

    def extend(self, parts: Iterable[Rows]) -> None:
        """Add rows in parts."""
        with storage_errors(self._path), self._path.open("ab") as file:
            for rows in parts:
                file.write(np.ascontiguousarray(rows).tobytes())
                self._count += len(rows)

    def has(self, count: int) -> NDArray[np.bool_]:
        """Whether each x has a pair, ``(count,)``, for the x with numbers from 0 to ``count`` - 1."""
        paired = np.zeros(count, np.bool_)
        for rows in self.parts():
            paired[rows[:, _X]] = True
        return paired

    def parts(self) -> Iterator[Rows]:
        """All rows in order, in parts of at most a quarter of ``ROWS_AT_ONCE``."""
        with self._path.open("rb") as file:
            while len(rows := np.fromfile(file, np.uint32, ROWS_AT_ONCE)):
                yield rows.reshape(-1, 4)


def select_pairs(
    forward: Iterable[Rows],
    backward: Iterable[Rows],
    retrieval: RetrievalName,
    sizes: tuple[int, int],
    *,
    best: int | None = None,
    folder: Place | None = None,
    rows: int = ROWS_AT_ONCE,
) -> Iterator[Rows]:
    """Select at most ``best`` pairs by a retrieval rule, from the candidates of each x and of each y (M3).

    ``candidates`` selects all candidates, for a second stage that ranks them again; they are ordered by x
    and, for each x, by falling margin. The other rules order pairs by falling margin, and pairs with equal
    margins by x and y. ``forward`` selects for each x the y with the largest margin, ``backward`` for each y
    the x, and ``intersection`` the pairs that both of these select. ``max`` goes through all candidates and
    selects a pair if neither of its texts is in a selected pair. Of repeated pairs, the one with the largest
    margin counts.

    Args:
        forward, backward: the candidates of each x and of each y, as ``pair_rows`` in parts, each read once.
        retrieval: the rule.
        sizes: the number of x and the number of y.
        best: largest number of pairs, those with the largest margins; None: all.
        folder: folder in which pairs are sorted that do not fit into memory; it needs 16 bytes for each
            candidate, at times twice as many. None: all pairs are sorted in memory.
        rows: largest number of pairs that are sorted at once in a folder.
    """

    def sort(parts: Iterable[Rows], keys: SortColumns, name: str) -> Iterator[Rows]:
        if folder is None:
            return sorted_in_memory(parts, keys)
        return sorted_rows(parts, keys, folder, f"sort-{name}", rows=rows)

    candidates = chain(forward, backward)
    if retrieval == "candidates":
        distinct = _first_of(sort(candidates, _by(_X, _Y, _MARGIN), "pairs"), (_X, _Y))
        by_input = _by(_X, _MARGIN, _Y)
        if best is None:
            return sorted_within(distinct, by_input, _X)
        return sort(_head(sort(distinct, _RANK, "rank"), best), by_input, "inputs")
    if retrieval == "max":
        used = UsedTexts(*sizes)
        free = (part[used.add(part[:, _X], part[:, _Y])] for part in sort(candidates, _RANK, "rank"))
        return _head(free, best)
    ahead = _first_of(sort(forward, _by(_X, _MARGIN, _Y), "x"), (_X,))
    back = _first_of(sort(backward, _by(_Y, _MARGIN, _X), "y"), (_Y,))
    chosen = ahead if retrieval == "forward" else back
    if retrieval == "intersection":
        chosen = _repeated(sort(chain(ahead, back), _by(_X, _Y), "both"))
    return _head(sort(chosen, _RANK, "rank"), best)


def sorted_in_memory(parts: Iterable[Rows], keys: SortColumns) -> Iterator[Rows]:
    """All rows, sorted in memory as ``runs.sorting.sorted_rows`` sorts them on disk."""
    rows = np.concatenate([_NO_PAIRS, *parts])
    yield rows[stable_order(keys(rows))]


def _by(*names: int) -> SortColumns:
    """The columns by which rows are sorted; the margin is sorted from the largest down."""

    def columns(rows: Rows) -> list[Column]:
        return [_descending(rows[:, name]) if name == _MARGIN else rows[:, name] for name in names]

    return columns


def _descending(bits: Column) -> Column:
    """Integers whose rising order is the falling order of float32 numbers, from the numbers' bits; no NaN."""
    bits = np.where(bits == _SIGN, _ZERO, bits)  # -0.0 equals 0.0
    return np.where(bits & _SIGN, bits, ~bits & ~_SIGN)


_RANK = _by(_MARGIN, _X, _Y)


def _first_of(parts: Iterable[Rows], names: Sequence[int]) -> Iterator[Rows]:
    """The first row for each combination of values in these columns, from rows sorted by them."""
    last = _NO_PAIRS
    for rows in parts:
        new = differs_from_previous([column[:, 0] for column in np.split(rows[:, names], len(names), axis=1)])
        if len(last) and len(rows):
            new[0] = bool((rows[0, names] != last[0, names]).any())
        last = rows[-1:] if len(rows) else last
        yield rows[new]


def _repeated(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The first row of each pair that occurs twice, from rows sorted by x and y."""
    last = _NO_PAIRS
    for part in parts:
        rows = np.concatenate([last, part])
        again = (rows[1:, [_X, _Y]] == rows[:-1, [_X, _Y]]).all(axis=1)
        yield rows[:-1][again]
        last = rows[-1:]


def _head(parts: Iterator[Rows], count: int | None) -> Iterator[Rows]:
    """The first ``count`` rows; None: all rows."""
    left = count
    for rows in parts:
        yield rows if left is None else rows[:left]
        if left is not None:
            left -= len(rows)
            if left <= 0:
                return
