"""Candidate pairs of ``mine``: the saved neighbours, scored by ``methods.mining.candidates``.

Groups are processed one after the other: the neighbours of a group are read from the search's folder in
parts, merged in a file, and scored in parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

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
from pairsmith.steps.search_parts import NeighbourFile, SearchGroup, runs_of_neighbours


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

    The neighbours from all parts of the search are merged first. The candidates and their margins are
    written into files; memory holds the mean cosine of each text of a group.

    Args:
        tables: rows of ``NEIGHBOURS`` in the order of the search, in parts of any size.
        groups: the groups that were searched, in the order of their numbers.
        corpora: the encoded inputs, and the encoded outputs.
        texts: the texts of the inputs, and the texts of the outputs.
        settings: the settings of ``mine``.
        files: the files for the candidates of the inputs and for the candidates of the outputs.
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
    runs = (run for table in tables for run in runs_of_neighbours(table))
    for number, group_runs in groupby(runs, key=lambda run: run[0]):
        group = groups[number]
        with ScratchFiles(folder) as scratch:
            of_x = NeighbourFile.empty(len(group.x), min(most["x"], len(group.y)), scratch("neighbours-x"))
            of_y = NeighbourFile.empty(len(group.y), min(most["y"], len(group.x)), scratch("neighbours-y"))
            for _, side, first, neighbours in group_runs:
                add_neighbours(of_x if side == "x" else of_y, first, neighbours)
            if settings.verbatim == "drop":
                x, y = map(_Side, (group.x, group.y), corpora, texts)
                left_out += keep_pairable((of_x, of_y), (x, y), settings.k)
            numbers = group.x, group.y
            if firsts:
                numbers = firsts[0][group.x], firsts[1][group.y]
            unscored += score_candidates((of_x, of_y), numbers, settings.k, settings.margin, files)
            del of_x, of_y  # Windows removes no file that is mapped
    return left_out, unscored


def add_neighbours(file: NeighbourFile, first: int, neighbours: Neighbours) -> None:
    """Add neighbours of consecutive texts, from number ``first`` on; the file keeps the nearest of all."""
    earlier = file.read(first, first + len(neighbours.ids))
    if (earlier.ids >= 0).any():
        neighbours = merged([earlier, neighbours], file.ids.shape[1])
    file.write(first, neighbours)


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
        return self.corpus.vectors.select(self.numbers if numbers is None else self.numbers[numbers.numpy()])
