"""Candidate pairs from the neighbours that the search saved, without copies (M5) and with margins (M3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.methods.mining.method import unpairable
from pairsmith.runs import DatasetFolder
from pairsmith.search.exact import Neighbours, merged, nearest
from pairsmith.search.margin import Pairs, candidates, joined
from pairsmith.search.permitted import permitted
from pairsmith.steps.mine.encoded import Encoded, Texts
from pairsmith.steps.mine.neighbours import SearchGroup, looked_up
from pairsmith.steps.mine.settings import MineSettings

TEXTS_AT_ONCE = 2**18
"""Pairs whose texts are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of each input, ``forward``, and of each output, ``backward``, with their margins (M3).

    ``left_out`` counts the nearer neighbours that may not be paired, and ``unscored`` the candidates without
    a margin, as the mean cosine to their neighbours is not above 0.
    """

    forward: Pairs
    backward: Pairs
    left_out: int
    unscored: int


def scored_candidates(
    folder: DatasetFolder,
    every: Sequence[SearchGroup],
    corpora: tuple[Encoded, Encoded],
    texts: tuple[Texts, Texts],
    settings: MineSettings,
) -> Candidates:
    """Merge the parts of the search, leave out what may not be paired, and score the k nearest that remain.

    ``corpora`` and ``texts`` are those of the inputs and of the outputs.
    """
    ahead: list[Pairs] = []
    back: list[Pairs] = []
    compared = left_out = 0
    for number, *found in _merged(folder, looked_up(settings)):
        sides = every[number].x, every[number].y
        if settings.verbatim == "drop":
            for side in (0, 1):
                forbidden = partial(_forbidden, sides, texts, side)
                deeper = partial(_deeper, sides, corpora, side)
                most = len(sides[1 - side])
                found[side], more = permitted(found[side], settings.k, forbidden, deeper, most)
                left_out += more
        of_x, of_y = found
        compared += sum(int((near.ids >= 0).sum()) for near in found)
        numbers = [torch.from_numpy(side) for side in sides]
        for pairs, of_side in zip((ahead, back), candidates(of_x, of_y, settings.margin), strict=True):
            pairs.append(of_side.renumbered(*numbers))
    forward, backward = joined(ahead), joined(back)
    return Candidates(forward, backward, left_out, compared - len(forward) - len(backward))


def _forbidden(
    sides: tuple[NDArray[np.int64], NDArray[np.int64]],
    texts: tuple[Texts, Texts],
    side: int,
    rows: torch.Tensor,
    near: torch.Tensor,
) -> torch.Tensor:
    """Which texts of one side, 0 or 1, may not be paired with these neighbours, ``(pairs,)`` bool."""
    found = torch.empty(len(rows), dtype=torch.bool)
    for some in torch.split(torch.arange(len(rows)), TEXTS_AT_ONCE):
        numbers = (rows[some], near[some]) if side == 0 else (near[some], rows[some])
        known = []
        for each, here, of in zip(numbers, sides, texts, strict=True):
            distinct, place = np.unique(each.numpy(), return_inverse=True)
            read = of.rows(here[distinct].tolist())
            known.append([read[i] for i in place.tolist()])
        found[some] = torch.tensor(
            [
                bool(unpairable(one["text"], other["text"], other["answer"]))
                for one, other in zip(*known, strict=True)
            ]
        )
    return found


def _deeper(
    sides: tuple[NDArray[np.int64], NDArray[np.int64]],
    corpora: tuple[Encoded, Encoded],
    side: int,
    rows: torch.Tensor,
    more: int,
) -> Neighbours:
    """The ``more`` nearest of some texts of one side, 0 or 1, by an exact search."""
    queries = corpora[side].vectors(sides[side][rows.numpy()])
    return nearest(queries, corpora[1 - side].vectors(sides[1 - side]), more)


def _merged(folder: DatasetFolder, most: Mapping[str, int]) -> Iterator[tuple[int, Neighbours, Neighbours]]:
    """For each group, in order: its number, the nearest y of each x, and the nearest x of each y."""
    pieces = (piece for table in folder.shards() for piece in _pieces(table))
    for cell, found in groupby(pieces, key=lambda piece: piece[0]):
        near = {side: _Merge(k) for side, k in most.items()}
        for _, side, first, piece in found:
            near[side].add(first, piece)
        yield cell, near["x"].finish(), near["y"].finish()


class _Merge:
    """Collects the neighbours of all texts of one side, from one or several passes over the other side."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._whole: Neighbours | None = None
        self._pass: list[Neighbours] = []

    def add(self, first: int, near: Neighbours) -> None:
        """Add the neighbours of consecutive texts from number ``first`` on; 0 begins a new pass."""
        if not first:
            self._end_pass()
        self._pass.append(near)

    def finish(self) -> Neighbours:
        """The k nearest of each text."""
        self._end_pass()
        assert self._whole is not None  # a group has texts on both sides
        return self._whole

    def _end_pass(self) -> None:
        if self._pass:
            ids = torch.cat([each.ids for each in self._pass])
            near = Neighbours(ids, torch.cat([each.similarities for each in self._pass]))
            self._whole = near if self._whole is None else merged([self._whole, near], self._k)
            self._pass = []


def _pieces(table: pa.Table) -> Iterator[tuple[int, str, int, Neighbours]]:
    """Undo ``_table``: yields the group, the side, the first text's number and the neighbours."""
    sides = table["side"].combine_chunks().dictionary_encode()
    keys = np.stack([table["cell"].to_numpy(), sides.indices.to_numpy()])
    borders = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), table.num_rows]
    for start, stop in pairwise(borders):
        piece = table.slice(start, stop - start)
        numbers = (piece[name].combine_chunks().flatten().to_numpy() for name in ("ids", "similarities"))
        near = Neighbours(*(torch.tensor(each).view(stop - start, -1) for each in numbers))
        yield piece["cell"][0].as_py(), piece["side"][0].as_py(), piece["number"][0].as_py(), near
