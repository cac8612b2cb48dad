"""Candidate pairs from the neighbours that the search saved, as ``methods.mining.candidates`` scores them.

A group at a time, the neighbours are read from the search in parts, merged in a file, and scored in parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.paths import Place
from pairsmith.methods.mining.candidates import keep_pairable, score_candidates
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import Neighbours, merged
from pairsmith.search.selection import PairFile
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.mine.neighbours import neighbours_per_side
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import NeighbourFile, SearchGroup


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
    for number, group_runs in groupby(runs, key=lambda run: run[0]):
        group = groups[number]
        with ScratchFiles(folder) as scratch:
            of_x = NeighbourFile.empty(len(group.x), min(most["x"], len(group.y)), scratch("near-x"))
            of_y = NeighbourFile.empty(len(group.y), min(most["y"], len(group.x)), scratch("near-y"))
            for _, name, first, near in group_runs:
                add_pass(of_x if name == "x" else of_y, first, near)
            if settings.verbatim == "drop":
                x, y = map(_Side, (group.x, group.y), corpora, texts)
                left_out += keep_pairable((of_x, of_y), (x, y), settings.k)
            numbers = group.x, group.y
            if firsts:
                numbers = firsts[0][group.x], firsts[1][group.y]
            unscored += score_candidates((of_x, of_y), numbers, settings.k, settings.margin, files)
            del of_x, of_y  # Windows removes no file that is mapped
    return left_out, unscored


def add_pass(file: NeighbourFile, first: int, near: Neighbours) -> None:
    """Add neighbours of consecutive texts, from number ``first`` on, to those of earlier passes, if any."""
    earlier = file.read(first, first + len(near.ids))
    if (earlier.ids >= 0).any():
        near = merged([earlier, near], file.ids.shape[1])
    file.write(first, near)


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
