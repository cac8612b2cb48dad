"""The search of ``mine``: the nearest outputs of each input, and the nearest inputs of each output.

The search is cut into parts, whose neighbours are merged later (``candidates``). Texts are only compared
within their group (``SearchGroup``); without groups, all texts are in one group.
"""

from collections.abc import Mapping
from functools import partial

import torch

from pairsmith.core.errors import InputError
from pairsmith.runs import DatasetFolder, Run
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import SideVectors
from pairsmith.steps.corpora.search import SearchPlan, run_search
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import SearchGroup


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
