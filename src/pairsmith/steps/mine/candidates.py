"""Candidate pairs from the neighbours that the search saved, as ``methods.mining.candidates`` scores them.

A group at a time, the neighbours are read from the search in parts, merged in a file, and scored in parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.batches import in_batches
from pairsmith.core.paths import Place
from pairsmith.methods.mining.candidates import keep_pairable, score_candidates
from pairsmith.runs.storage import scratch_file, storage_errors
from pairsmith.search.exact import Neighbours, merged
from pairsmith.search.selection import PairFile
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.mine.neighbours import neighbours_per_side
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, SearchGroup, ids_of_stored

PAIRS_AT_ONCE = 2**20
"""Neighbours that are held in memory at once, with their cosines; each needs up to 200 bytes meanwhile."""


def scored_candidates(
    tables: Iterable[pa.Table],
    groups: Sequence[SearchGroup],
    corpora: tuple[Encoded, Encoded],
    texts: tuple[CorpusTexts, CorpusTexts],
    settings: MineSettings,
    files: tuple[PairFile, PairFile],
    folder: Place,
) -> tuple[int, int]:
    """Merge the parts of the search, leave out what may not be paired, and score the k nearest that remain.

    The candidates of each text and their margins (M3) are written into files. Returned are the numbers of
    nearer neighbours that were left out, and of candidates without a margin, as the mean cosine to their
    neighbours is not above 0.

    Args:
        tables: rows of ``NEAR`` in the order of the search, in parts of any size.
        groups: those that were searched.
        corpora, texts: those of the inputs and of the outputs.
        files: where the candidates of each input and of each output are written.
        folder: where scratch files are written, 8 bytes for each neighbour of the largest group.

    With ``group_column`` a text of several groups has the number of the first one in all its pairs, so that
    it may be taken only once. Of each text of a group, the mean cosine is held in memory.
    """
    most = neighbours_per_side(settings)
    firsts = tuple(corpus.firsts() for corpus in corpora) if settings.group_column else None
    left_out = unscored = 0
    runs = (run for table in tables for run in _runs_of_neighbours(table))
    with ExitStack() as stack:
        paths = (stack.enter_context(scratch_file(folder, f"near-{name}")) for name in most)
        of_x, of_y = (stack.enter_context(NearFile(path)) for path in paths)
        for number, group_runs in groupby(runs, key=lambda run: run[0]):
            group = groups[number]
            of_x.begin(min(most["x"], len(group.y)))
            of_y.begin(min(most["y"], len(group.x)))
            for _, name, first, near in group_runs:
                (of_x if name == "x" else of_y).add(first, near)
            if settings.verbatim == "drop":
                x, y = map(_Side, (group.x, group.y), corpora, texts)
                left_out += keep_pairable((of_x, of_y), (x, y), settings.k)
            numbers = group.x, group.y
            if firsts:
                numbers = firsts[0][group.x], firsts[1][group.y]
            unscored += score_candidates((of_x, of_y), numbers, settings.k, settings.margin, files)
    return left_out, unscored


@dataclass(frozen=True, slots=True)
class _Side:
    """The texts of one side of a group, in files: their numbers in a corpus, ``(n,)``, and the corpus."""

    numbers: NDArray[np.int64]
    corpus: Encoded
    corpus_texts: CorpusTexts

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.numbers)

    def texts(self, numbers: torch.Tensor) -> list[tuple[str, str | None]]:
        """See ``PairedTexts``."""
        distinct, place = np.unique(numbers.numpy(), return_inverse=True)
        rows = self.corpus_texts.rows(self.numbers[distinct].tolist(), ("text", "answer"))
        return [(rows[i]["text"], rows[i]["answer"]) for i in place.tolist()]

    def vectors(self, numbers: torch.Tensor | None = None) -> torch.Tensor:
        """See ``PairedTexts``."""
        return self.corpus.vectors.of(self.numbers if numbers is None else self.numbers[numbers.numpy()])


class NearFile:
    """The nearest neighbours of all texts of one side of a group, in a file, 8 bytes each.

    They come from one or several passes over the other side, and are merged as they come.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._width = self._count = 0

    def __enter__(self) -> "NearFile":
        """Open the file."""
        with storage_errors(self._path):
            self._file = self._path.open("w+b", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        assert self._file is not None
        self._file.close()

    def begin(self, width: int) -> None:
        """Forget what is there: texts of another group come, each with at most ``width`` neighbours."""
        self._width, self._count = width, 0

    def add(self, first: int, near: Neighbours) -> None:
        """Add neighbours of consecutive texts, from number ``first`` on, to those of earlier passes."""
        if first < self._count:
            near = merged([self._read(first, first + len(near.ids)), near], self._width)
        self.write(first, near)
        self._count = max(self._count, first + len(near.ids))

    def parts(self, most: int | None = None) -> Iterator[tuple[int, Neighbours]]:
        """The ``most`` nearest neighbours of all texts in parts, with the number of each part's first text.

        Where a text has fewer than the file has places for, the last have the id -1 and the similarity minus
        infinity.
        """
        for texts in in_batches(range(self._count), max(1, PAIRS_AT_ONCE // self._width)):
            near = self._read(texts.start, texts.stop)
            yield (
                texts.start,
                Neighbours(*(tensor[:, :most].contiguous() for tensor in (near.ids, near.similarities))),
            )

    def _read(self, first: int, stop: int) -> Neighbours:
        assert self._file is not None
        self._file.seek(8 * self._width * first)
        rows = np.fromfile(self._file, np.uint32, 2 * self._width * (stop - first))
        ids, bits = np.moveaxis(rows.reshape(-1, 2, self._width), 1, 0)
        similarities = torch.from_numpy(np.ascontiguousarray(bits).view(np.float32))
        return Neighbours(torch.from_numpy(ids_of_stored(ids)), similarities)

    def write(self, first: int, near: Neighbours) -> None:
        """Put these in the place of the neighbours of consecutive texts from number ``first`` on."""
        assert self._file is not None
        width = min(near.ids.shape[1], self._width)
        rows = np.empty((len(near.ids), 2, self._width), np.uint32)
        rows[:, 0, width:], rows[:, 1, width:] = NO_NEIGHBOUR, np.float32(-np.inf).view(np.uint32)
        rows[:, 0, :width] = near.ids[:, :width].numpy()  # -1 becomes ``NO_NEIGHBOUR``
        rows[:, 1, :width] = near.similarities[:, :width].contiguous().numpy().view(np.uint32)
        with storage_errors(self._path):
            self._file.seek(8 * self._width * first)
            rows.tofile(self._file)


def _runs_of_neighbours(table: pa.Table) -> Iterator[tuple[int, str, int, Neighbours]]:
    """Undo ``neighbour_rows``: yields the group, the side, the first text's number and the neighbours."""
    sides = table["side"].combine_chunks().dictionary_encode()
    keys = np.stack([table["cell"].to_numpy(), sides.indices.to_numpy()])
    borders = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), table.num_rows]
    for start, stop in pairwise(borders):
        piece = table.slice(start, stop - start)
        numbers = (piece[name].combine_chunks().flatten().to_numpy() for name in ("ids", "similarities"))
        near = Neighbours(*(torch.tensor(column).view(stop - start, -1) for column in numbers))
        yield piece["cell"][0].as_py(), piece["side"][0].as_py(), piece["number"][0].as_py(), near
