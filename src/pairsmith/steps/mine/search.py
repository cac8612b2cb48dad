"""The search of ``mine``: nearest neighbours in both directions, and the candidate pairs among them.

The search is cut into parts, and the neighbours of each part are saved. Texts are only compared within their
group (``SearchGroup``); without groups, all texts are in one group. Candidates are scored group by group: the
neighbours of a group are read from the search's folder in parts, merged in a file, and scored in parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place
from pairsmith.methods.mining.candidates import keep_pairable, score_candidates
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import Neighbours, merged
from pairsmith.search.permitted import SPARE
from pairsmith.search.selection import PairFile
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.corpora.indexes import SideVectors
from pairsmith.steps.corpora.search import SearchPlan, run_search
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import NeighbourFile, SearchGroup, runs_of_neighbours

SPARE_OF_SUMMARIES = {"x": 28, "y": SPARE}
"""Neighbours that are searched in addition to k, for kind summaries.

Documents, ``x``, need more neighbours, as the sentences of a document are among its nearest neighbours.
"""


def neighbours_per_side(settings: MineSettings) -> dict[str, int]:
    """The number of nearest neighbours to search for each input, ``x``, and for each output, ``y``."""
    if settings.verbatim == "keep":
        return {"x": settings.k, "y": settings.k}
    spare = SPARE_OF_SUMMARIES if settings.kind == "summaries" else {"x": SPARE, "y": SPARE}
    return {side: settings.k + more for side, more in spare.items()}


def find_neighbours(
    x: Encoded, y: Encoded, settings: MineSettings, inputs: Mapping[str, str], run: Run
) -> tuple[DatasetFolder, list[SearchGroup]]:
    """Search in both directions; returns the folder of the search (``run_search``), and the groups.

    ``inputs`` are the fingerprints of the encoded corpora, by name.
    """
    groups, most = shared_groups(x, y), neighbours_per_side(settings)
    sizes = [(len(group.x), len(group.y)) for group in groups]
    plan = SearchPlan.of(sizes, most, x.vectors.width, settings)
    folder = run_search(plan, partial(_open_vectors, x, y), settings, inputs, run)
    if settings.index:
        _report_untrained(plan, settings.index, run)
    return folder, groups


def _report_untrained(plan: SearchPlan, index: str, run: Run) -> None:
    """Report how many parts have too few vectors to train the index, and were searched without one."""
    ranges = [part.blocks[0].others for part in plan.parts]
    few = sum(stop - start < plan.needed for start, stop in ranges)
    if few:
        run.progress.say(
            f"index {index}: its training needs {plan.needed:,} vectors; {few} of {len(ranges)} parts have "
            "fewer and were searched without an index"
        )


def _open_vectors(x: Encoded, y: Encoded) -> SideVectors:
    """Open the vectors of both corpora on this machine; the result gives a group's vectors on a side."""
    x, y = x.local(), y.local()
    groups = shared_groups(x, y)

    def of_side(group: int, side: str) -> torch.Tensor:
        return x.vectors.select(groups[group].x) if side == "x" else y.vectors.select(groups[group].y)

    return of_side


def shared_groups(x: Encoded, y: Encoded) -> list[SearchGroup]:
    """The groups that both corpora have, with their texts, sorted by the names of the groups."""
    groups_x, groups_y = x.groups(), y.groups()
    both = sorted(groups_x.keys() & groups_y.keys())
    if not both:
        names_x, names_y = (", ".join(sorted(groups)[:3]) for groups in (groups_x, groups_y))
        raise InputError(
            f"no group of the inputs ({names_x}, …) is also in the outputs ({names_y}, …); "
            "texts are only paired within a group"
        )
    return [SearchGroup(groups_x[name], groups_y[name]) for name in both]


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
