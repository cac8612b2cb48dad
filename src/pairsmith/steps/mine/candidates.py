"""Candidate pairs of ``mine``: the saved neighbours, scored by ``methods.mining.candidates``.

Groups are processed one after the other: the neighbours of a group are read from the search's folder in
parts, merged in a file, and scored in parts.
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
    """Score each text with the k nearest neighbours that it may be paired with (M5), by the margin (M3).

    The neighbours from all parts of the search are merged before. The candidates and their margins are
    written into files; memory holds the mean cosine of each text of a group.

    Args:
        tables: rows of ``NEAR`` in the order of the search, in parts of any size.
        groups: the groups that were searched, in the order of their numbers.
        corpora: the encoded inputs, and the encoded outputs.
        texts: the texts of the inputs, and those of the outputs.
        settings: the settings of ``mine``.
        files: the files for the candidates of the inputs and for those of the outputs.
        folder: the folder of scratch files, which take 8 bytes for each neighbour of the largest group.

    With ``group_column`` a text that is in several groups has the same number in all its pairs, that of its
    first occurrence, so that a retrieval rule can use it only once.

    Returns:
        the number of neighbours that were left out because they may not be paired (M5), and the number of
        candidates without a margin: the mean cosine to the nearest neighbours is not above 0.
    """
    most = neighbours_per_side(settings)
    firsts = tuple(corpus.firsts() for corpus in corpora) if settings.group_column else None
    left_out = unscored = 0
    runs = (run for table in tables for run in _runs_of_neighbours(table))
    for number, group_runs in groupby(runs, key=lambda run: run[0]):
        group = groups[number]
        with ScratchFiles(folder) as scratch:
            near_x = NeighbourFile.empty(len(group.x), min(most["x"], len(group.y)), scratch("near-x"))
            near_y = NeighbourFile.empty(len(group.y), min(most["y"], len(group.x)), scratch("near-y"))
            for _, name, first, near in group_runs:
                add_pass(near_x if name == "x" else near_y, first, near)
            if settings.verbatim == "drop":
                x, y = map(_Side, (group.x, group.y), corpora, texts)
                left_out += keep_pairable((near_x, near_y), (x, y), settings.k)
            numbers = group.x, group.y
            if firsts:
                numbers = firsts[0][group.x], firsts[1][group.y]
            unscored += score_candidates((near_x, near_y), numbers, settings.k, settings.margin, files)
            del near_x, near_y  # Windows removes no file that is mapped
    return left_out, unscored


def add_pass(file: NeighbourFile, first: int, near: Neighbours) -> None:
    """Merge neighbours into the file; ``first`` is the number of the first of their consecutive texts.

    The file keeps the nearest of these neighbours and those of earlier passes over the same texts.
    """
    earlier = file.read(first, first + len(near.ids))
    if (earlier.ids >= 0).any():
        near = merged([earlier, near], file.ids.shape[1])
    file.write(first, near)


@dataclass(frozen=True, slots=True)
class _Side:
    """The n texts of one side of a group: their numbers in a corpus, ``(n,)``, and the corpus in files."""

    numbers: NDArray[np.int64]
    corpus: Encoded
    corpus_texts: CorpusTexts

    def __len__(self) -> int:
        """The number of texts."""
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
    """Undo ``neighbour_rows``: yield the neighbours of each run of rows with the same group and side.

    A run is the number of the group, the side, the number of its first text, and the neighbours.
    """
    sides = table["side"].combine_chunks().dictionary_encode()
    keys = np.stack([table["cell"].to_numpy(), sides.indices.to_numpy()])
    borders = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), table.num_rows]
    for start, stop in pairwise(borders):
        run = table.slice(start, stop - start)
        columns = (run[name].combine_chunks().flatten().to_numpy() for name in ("ids", "similarities"))
        near = Neighbours(*(torch.tensor(column).view(stop - start, -1) for column in columns))
        yield run["cell"][0].as_py(), run["side"][0].as_py(), run["number"][0].as_py(), near
