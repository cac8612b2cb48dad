"""The search of nearest neighbours, part by part.

Each part is saved as a shard of the search's dataset folder as soon as a worker has computed it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import torch

from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RowsAndRejects, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.search.exact import Neighbours, one_way_search, two_way_search
from pairsmith.steps.corpora.indexes import Indexes, SideVectors, train_indexes
from pairsmith.steps.corpora.options import SearchOptions
from pairsmith.steps.search_parts import NEAR, OTHER, Part, check_part_count, neighbour_rows, report_recall


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parts of a search, and the settings that decide its result.

    Attributes:
        parts: the parts of the search in all groups.
        neighbours: the number of neighbours to search for each text, by its side, ``x`` or ``y``.
        decides: the settings that enter the fingerprint of the search's folder.
        needed: the number of vectors that the training of an index needs; 0 if there is no index, or if the
            index needs no training.
    """

    parts: Sequence[Part]
    neighbours: Mapping[str, int]
    decides: Mapping[str, JSON]
    needed: int = 0

    def trained(self) -> list[tuple[int, str]]:
        """The groups, each with a side of queries, whose index has enough vectors to be trained."""
        others: dict[tuple[int, str], int] = {}
        for block in (block for part in self.parts for block in part.blocks):
            key = block.group, block.side
            others[key] = max(others.get(key, 0), block.others[1])
        return [key for key, count in others.items() if 0 < self.needed <= count]


def run_search(
    plan: SearchPlan,
    load: Callable[[], SideVectors],
    options: SearchOptions,
    inputs: Mapping[str, str],
    run: Run,
    *,
    indexed: Mapping[str, str],
    unit: str,
    card: Card,
) -> DatasetFolder:
    """Search the neighbours, and save them in the subfolder ``search``.

    Parts that an earlier run has finished are not searched again. Indexes that have to be trained are saved
    in the subfolder ``indexes``.

    Args:
        plan: the parts of the search; if there are too many, a ``SettingsError`` is raised.
        load: opens the vectors on the machine of a worker.
        options: how the neighbours are searched, and on which executor.
        inputs: the fingerprints of all encoded texts, by name.
        run: the run of the step.
        indexed: the fingerprints of the encoded texts that the indexes hold, by name.
        unit: the plural of what the progress counts.
        card: the card of the search's folder.

    Returns:
        the folder, with the columns of ``NEAR``.
    """
    check_part_count(plan.parts, options.index)
    writer = start_part(
        run.part("search"), Identity.of("search", plan.decides, inputs), NEAR, planned=len(plan.parts)
    )
    where = ExecutorChoice(options.executor, options.workers, options.ray_address)
    if not writer.finished:
        trained = None
        if options.index and (searched := plan.trained()):
            trained = train_indexes(options.index, load, searched, where, indexed, run.part("indexes"))
        remaining = [part for part in plan.parts if not writer.is_done(part.number)]
        total = sum(part.size for part in plan.parts)
        commit_each(
            writer,
            partial(_load_search, load, trained, plan.neighbours, options),
            remaining,
            where,
            run,
            title="search",
            unit=unit,
            done=total - sum(part.size for part in remaining),
            total=total,
        )
        writer.finish(card)
    folder = writer.folder()
    if options.index:
        report_recall(folder, options.index, run)
    return folder


def search_card(title: str, description: str, encoder: str) -> Card:
    """The card of a search's folder; its title is ``title`` with the name of the encoder."""
    return Card(
        title=f"{title} under {model_display_name(encoder)}",
        description=description,
        provenance="The neighbours were computed from the texts' vectors.",
        tags=("embeddings",),
        licence="It contains no texts.",
        sources=sources_of(models=[encoder]),
    )


def _load_search(
    load: Callable[[], SideVectors],
    trained: DatasetFolder | None,
    most: Mapping[str, int],
    options: SearchOptions,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[Part, RowsAndRejects]:
    """Open the vectors; returns the function that searches a part and makes its rows of ``NEAR``."""
    vectors = load()
    device, memory = torch.device(pick_device(options.device)), int(options.memory * 2**30)
    indexes = Indexes(options.index, trained) if options.index else None

    def search(part: Part, advance: Advance) -> RowsAndRejects:
        tables: list[pa.Table] = []
        for block in part.blocks:
            side, first = "x" if block.side == "both" else block.side, block.queries[0]
            queries = vectors(block.group, side)[slice(*block.queries)]
            all_others = vectors(block.group, OTHER[side])
            others = all_others[slice(*block.others)]
            if indexes:
                near, recall = indexes.search(
                    queries, all_others, block, most[side], recall=options.recall, advance=advance
                )
                tables.append(neighbour_rows(block.group, side, first, near, recall))
            elif block.side == "both":
                near, of_others = two_way_search(
                    queries, others, max(most.values()), memory=memory, device=device, advance=advance
                )
                of_others.ids.add_(first)
                tables.append(neighbour_rows(block.group, "x", first, _first_columns(near, most["x"])))
                tables.append(neighbour_rows(block.group, "y", 0, _first_columns(of_others, most["y"])))
            else:
                near = one_way_search(
                    queries, others, most[side], memory=memory, device=device, advance=advance
                )
                tables.append(neighbour_rows(block.group, side, first, near))
        return pa.concat_tables(tables), to_table([], REJECT)

    return search


def _first_columns(near: Neighbours, most: int) -> Neighbours:
    return Neighbours(near.ids[:, :most].contiguous(), near.similarities[:, :most].contiguous())
