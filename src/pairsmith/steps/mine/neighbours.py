"""Nearest neighbours between two encoded corpora, both ways: a map over parts of the search, then a merge.

Each part is saved as soon as a worker has computed it, as a shard of the search's dataset folder. Texts are
only compared within their group (``SearchGroup``); without groups, all texts are in one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.search.exact import Neighbours, two_way_search
from pairsmith.search.faiss_search import needed_vectors
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import Indexes, SearchedVectors, train_indexes
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import (
    NEAR,
    Part,
    SearchBlock,
    SearchGroup,
    check_part_count,
    neighbour_rows,
    parts_by_index,
    report_recall,
    together,
)


def shared_groups(x: Encoded, y: Encoded) -> list[SearchGroup]:
    """The texts of each group that both corpora have, in the order of the groups' names."""
    groups_x, groups_y = x.groups(), y.groups()
    both = sorted(groups_x.keys() & groups_y.keys())
    if not both:
        one, other = (sorted(groups)[:3] for groups in (groups_x, groups_y))
        raise InputError(
            f"no group of the inputs ({', '.join(one)}, …) is also in the outputs ({', '.join(other)}, …); "
            "texts are only paired within a group"
        )
    return [SearchGroup(groups_x[name], groups_y[name]) for name in both]


def cut_search(groups: Sequence[SearchGroup], rows: int) -> list[Part]:
    """Cut the exact search into parts of at least ``rows`` inputs each; the last may have fewer."""
    full_parts: list[Part] = []
    blocks: list[SearchBlock] = []
    for number, group in enumerate(groups):
        for inputs in in_batches(range(len(group.x)), rows):
            blocks.append(SearchBlock(number, "both", (inputs.start, inputs.stop), (0, len(group.y))))
            if sum(block.size for block in blocks) >= rows:
                full_parts.append(Part(len(full_parts), tuple(blocks)))
                blocks = []
    return [*full_parts, Part(len(full_parts), tuple(blocks))] if blocks else full_parts


SPARE_OF_SUMMARIES = {"x": 28, "y": SPARE}
"""Neighbours looked up beyond k for kind summaries: a document's own sentences are among its nearest."""


def neighbours_per_side(settings: MineSettings) -> dict[str, int]:
    """How many nearest neighbours are looked up for an input, ``x``, and for an output, ``y``."""
    if settings.verbatim == "keep":
        return {"x": settings.k, "y": settings.k}
    spare = SPARE_OF_SUMMARIES if settings.kind == "summaries" else {"x": SPARE, "y": SPARE}
    return {side: settings.k + more for side, more in spare.items()}


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parts of a search, and what decides its result besides the vectors.

    Attributes:
        parts: of all groups.
        decides: the settings that the search's folder is known by.
        needed: vectors that training an index needs; 0 without an index, or where it needs no training.
    """

    parts: Sequence[Part]
    decides: Mapping[str, JSON]
    needed: int = 0


def plan_search(groups: Sequence[SearchGroup], settings: MineSettings, width: int) -> SearchPlan:
    """Cut the search of vectors with so many numbers into parts; too many are a ``SettingsError``."""
    neighbours = neighbours_per_side(settings)
    fields = {"index", "index_rows", "recall"} if settings.index else {"search_rows"}
    decides = {**settings.model_dump(mode="json", include=fields), "neighbours": dict(neighbours)}
    needed = 0
    if settings.index:
        needed = needed_vectors(settings.index, width)
        todo = parts_by_index(groups, settings.index_rows, needed, neighbours)
        queries = {side: together(count) for side, count in neighbours.items()}
        if any(len(group.x) > queries["x"] or len(group.y) > queries["y"] for group in groups):
            # Only where they split queries, so that folders from before queries were split are still known.
            decides["queries"] = queries
    else:
        todo = cut_search(groups, settings.search_rows)
    check_part_count(todo, settings.index)
    return SearchPlan(todo, decides, needed)


def find_neighbours(
    x: Encoded, y: Encoded, settings: MineSettings, inputs: Mapping[str, str], run: Run
) -> tuple[DatasetFolder, list[SearchGroup]]:
    """Search both ways and save the neighbours in the subfolder ``search``; finished parts are kept.

    Indexes that have to be trained are kept in ``indexes``. ``inputs`` are the fingerprints of the encoded
    corpora, by name. The groups are returned with the folder.
    """
    groups = shared_groups(x, y)
    plan = plan_search(groups, settings, x.vectors.width)
    writer = start_part(
        run.part("search"),
        step="search",
        schema=NEAR,
        settings=plan.decides,
        inputs=inputs,
        models={},
        planned=len(plan.parts),
    )
    if not writer.finished:
        remaining = [part for part in plan.parts if not writer.is_done(part.number)]
        total = sum(part.size for part in plan.parts)
        trained = _trained_indexes(x, y, groups, plan, settings, inputs, run)
        commit_each(
            writer,
            partial(_load_search, x, y, trained, settings),
            remaining,
            ExecutorChoice.of(settings),
            run,
            title="search",
            unit="texts" if settings.index else "inputs",
            done=total - sum(part.size for part in remaining),
            total=total,
        )
        writer.finish(_card(settings))
    folder = writer.folder()
    if settings.index:
        report_recall(folder, settings.index, run)
        _report_untrained(plan, settings.index, run)
    return folder, groups


def _trained_indexes(
    x: Encoded,
    y: Encoded,
    groups: Sequence[SearchGroup],
    plan: SearchPlan,
    settings: MineSettings,
    inputs: Mapping[str, str],
    run: Run,
) -> DatasetFolder | None:
    """The indexes of the groups with vectors enough to train one; None where there are none."""
    if not settings.index or not plan.needed:
        return None
    sides = dict.fromkeys((block.group, block.side) for part in plan.parts for block in part.blocks)
    large = [(number, side) for number, side in sides if len(_others(groups[number], side)) >= plan.needed]
    if not large:
        return None
    load, where = partial(_searched, x, y), ExecutorChoice.of(settings)
    return train_indexes(settings.index, load, large, where, inputs, run.part("indexes"))


def _report_untrained(plan: SearchPlan, index: str, run: Run) -> None:
    """Say how many parts were searched without the index, as they have too few vectors to train it."""
    ranges = [part.blocks[0].others for part in plan.parts]
    few = sum(stop - start < plan.needed for start, stop in ranges)
    if few:
        run.progress.say(
            f"index {index}: is trained on {plan.needed:,} vectors; {few} of {len(ranges)} parts have fewer "
            "and were searched without an index"
        )


def _others(group: SearchGroup, side: str) -> NDArray[np.int64]:
    """The numbers of the texts among which those of a side are searched."""
    return group.x if side == "y" else group.y


def _searched(x: Encoded, y: Encoded) -> SearchedVectors:
    """The vectors among which those of a side of a group are searched, opened on this machine."""
    groups = shared_groups(x, y)

    @cache
    def opened(side: str) -> Encoded:
        return (x if side == "y" else y).local()

    return lambda group, side: opened(side).vectors.of(_others(groups[group], side))


def _load_search(
    x: Encoded,
    y: Encoded,
    trained: DatasetFolder | None,
    settings: MineSettings,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[Part, RowsAndRejects]:
    """Open the vectors; what is returned makes rows of ``NEAR`` of a part, and no rejects."""
    x, y = x.local(), y.local()
    groups = shared_groups(x, y)
    device = torch.device(pick_device(settings.device))
    most = neighbours_per_side(settings)
    indexes = Indexes(settings.index, trained) if settings.index else None

    def search(part: Part, advance: Advance) -> RowsAndRejects:
        tables: list[pa.Table] = []
        for block in part.blocks:
            of_x, of_y = x.vectors.of(groups[block.group].x), y.vectors.of(groups[block.group].y)
            queries, all_others = (of_y, of_x) if block.side == "y" else (of_x, of_y)
            queries, others = queries[slice(*block.queries)], all_others[slice(*block.others)]
            first = block.queries[0]
            if indexes:
                near, recall = indexes.search(
                    queries, all_others, block, most[block.side], recall=settings.recall, advance=advance
                )
                tables.append(neighbour_rows(block.group, block.side, first, near, recall))
                continue
            near_x, near_y = two_way_search(
                queries,
                others,
                max(most.values()),
                memory=int(settings.memory * 2**30),
                device=device,
                advance=advance,
            )
            near_y.ids.add_(first)
            tables.append(neighbour_rows(block.group, "x", first, _first_columns(near_x, most["x"])))
            tables.append(neighbour_rows(block.group, "y", 0, _first_columns(near_y, most["y"])))
        return pa.concat_tables(tables), to_table([], REJECT)

    return search


def _first_columns(near: Neighbours, most: int) -> Neighbours:
    return Neighbours(near.ids[:, :most].contiguous(), near.similarities[:, :most].contiguous())


def _card(settings: MineSettings) -> Card:
    return Card(
        title=f"Nearest neighbours of two corpora under {model_display_name(settings.encoder)}",
        description="For each text the numbers of its nearest texts in the other corpus, and their cosines.",
        provenance="The neighbours were computed from the texts' vectors.",
        tags=("embeddings",),
        licence="It contains no texts.",
        sources=sources_of(models=[settings.encoder]),
    )
