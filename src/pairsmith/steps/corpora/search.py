"""The search of nearest neighbours, part by part.

Each part is saved as a shard of the search's dataset folder as soon as a worker has computed it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa
import torch

from pairsmith.core.errors import SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RowsAndRejects, Shards, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.runs.writer import MOST_SHARDS
from pairsmith.search.exact import Neighbours, one_way_search, two_way_search
from pairsmith.search.faiss_search import needed_vectors
from pairsmith.steps.corpora.indexes import Indexes, SideVectors, train_indexes
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import (
    NEIGHBOURS,
    OTHER,
    Part,
    Sizes,
    cut_search,
    neighbour_rows,
    parts_by_index,
    queries_together,
)

NeighbourSettings = MineSettings | NegativesSettings
"""Settings of a step that searches nearest neighbours."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parts of a search.

    Attributes:
        parts: the parts of the search in all groups.
        most: the number of neighbours to search for each text, by the side that queries are from.
        needed: the number of vectors that the training of an index needs; 0 if there is no index, or if the
            index needs no training.
    """

    parts: Sequence[Part]
    most: Mapping[str, int]
    needed: int

    @classmethod
    def of(cls, sizes: Sizes, most: Mapping[str, int], width: int, settings: NeighbourSettings) -> Self:
        """Cut a search by vectors with ``width`` components; ``sizes`` are the sizes of the groups.

        With a number for both sides in ``most``, the search is in both directions.
        """
        if not settings.index:
            return cls(cut_search(sizes, settings.search_rows, "both" if "y" in most else "x"), most, 0)
        needed = needed_vectors(settings.index, width)
        return cls(parts_by_index(sizes, settings.index_rows, needed, most), most, needed)

    @property
    def two_way(self) -> bool:
        """Whether two corpora search each other; otherwise queries search one corpus."""
        return "y" in self.most

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
    settings: NeighbourSettings,
    inputs: Mapping[str, str],
    run: Run,
) -> DatasetFolder:
    """Search the neighbours, and save them in the subfolder ``search``.

    Parts that an earlier run has finished are not searched again. Indexes that have to be trained are saved
    in the subfolder ``indexes``.

    Args:
        plan: the parts of the search; if there are too many, a ``SettingsError`` is raised.
        load: opens the vectors on the machine of a worker.
        settings: the settings of the step.
        inputs: the fingerprints of all encoded texts, by name; in a search in one direction the texts that
            are searched are called ``corpus``.
        run: the run of the step.

    Returns:
        the folder, with the columns of ``NEIGHBOURS``.
    """
    if len(plan.parts) > MOST_SHARDS:
        remedy = "leave out --index" if settings.index else "give a larger --search-rows"
        raise SettingsError(f"the search has {len(plan.parts):,} parts, more than {MOST_SHARDS:,}; {remedy}")
    identity = Identity.of("search", _identity_settings(plan, settings), inputs)
    writer = start_part(run.part("search"), identity, NEIGHBOURS, planned=len(plan.parts))
    if not writer.finished:
        executor, trained = ExecutorChoice.of(settings), None
        if settings.index and (searched := plan.trained()):
            indexed = inputs if plan.two_way else {"corpus": inputs["corpus"]}
            trained = train_indexes(settings.index, load, searched, executor, indexed, run.part("indexes"))
        commit_each(
            writer,
            Shards(
                lambda numbers: [plan.parts[number] for number in numbers],
                [part.size for part in plan.parts],
                ("texts" if settings.index else "inputs") if plan.two_way else "queries",
            ),
            partial(_load_search, load, trained, plan.most, settings),
            executor,
            title="search",
        )
        writer.finish(_card(plan, settings.encoder))
    folder = writer.folder()
    if settings.index:
        recall = min(table["recall"][0].as_py() for table in folder.shards("train", ["recall"]))
        run.progress.say(
            f"index {settings.index}: finds at least {recall:.1%} of the nearest texts, as checked by an "
            "exact search for a sample"
        )
    return folder


def _identity_settings(plan: SearchPlan, settings: NeighbourSettings) -> dict[str, JSON]:
    """The settings that decide which neighbours are found, for the identity of the search."""
    names = ("index", "index_rows", "recall") if settings.index else ("search_rows",)
    deciding: dict[str, JSON] = {name: getattr(settings, name) for name in names}
    deciding["neighbours"] = dict(plan.most) if plan.two_way else plan.most["x"]
    if settings.index and plan.two_way:
        deciding["queries"] = {side: queries_together(count) for side, count in plan.most.items()}
    return deciding


def _card(plan: SearchPlan, encoder: str) -> Card:
    title, content = "Nearest texts of queries", "For each query the numbers of its nearest texts"
    if plan.two_way:
        title = "Nearest neighbours of two corpora"
        content = "For each text the numbers of its nearest texts in the other corpus"
    return Card(
        title=f"{title} under {model_display_name(encoder)}",
        description=f"{content}, and their cosines.",
        columns={
            "cell": "the number of the group of texts that was searched, from 0",
            "side": "x if the text is an input (or a query), y if it is an output",
            "number": "the number of the text in its group, from 0",
            "ids": "the numbers of its nearest texts on the other side, the nearest first",
            "similarities": "the cosines of the text and these texts",
            "recall": "with an index, the share of the true nearest texts that it found in a sample",
        },
        provenance="The neighbours were computed from the texts' vectors.",
        tags=("embeddings",),
        licence="It contains no texts.",
        sources=sources_of(models=[encoder]),
    )


def _load_search(
    load: Callable[[], SideVectors],
    trained: DatasetFolder | None,
    most: Mapping[str, int],
    settings: NeighbourSettings,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[Part, RowsAndRejects]:
    """Open the vectors; returns the function that searches a part and makes its rows of ``NEIGHBOURS``."""
    vectors = load()
    device, memory = torch.device(pick_device(settings.device)), int(settings.memory * 2**30)
    indexes = Indexes(settings.index, trained) if settings.index else None

    def search(part: Part, advance: Advance) -> RowsAndRejects:
        tables: list[pa.Table] = []
        for block in part.blocks:
            side, first = "x" if block.side == "both" else block.side, block.queries[0]
            queries = vectors(block.group, side)[slice(*block.queries)]
            all_others = vectors(block.group, OTHER[side])
            others = all_others[slice(*block.others)]
            if indexes:
                neighbours, recall = indexes.search(
                    queries, all_others, block, most[side], recall=settings.recall, advance=advance
                )
                tables.append(neighbour_rows(block.group, side, first, neighbours, recall))
            elif block.side == "both":
                neighbours, of_others = two_way_search(
                    queries, others, max(most.values()), memory=memory, device=device, advance=advance
                )
                of_others.ids.add_(first)
                tables.append(neighbour_rows(block.group, "x", first, _nearest_of(neighbours, most["x"])))
                tables.append(neighbour_rows(block.group, "y", 0, _nearest_of(of_others, most["y"])))
            else:
                neighbours = one_way_search(
                    queries, others, most[side], memory=memory, device=device, advance=advance
                )
                tables.append(neighbour_rows(block.group, side, first, neighbours))
        return pa.concat_tables(tables), to_table([], REJECT)

    return search


def _nearest_of(neighbours: Neighbours, most: int) -> Neighbours:
    return Neighbours(*(part[:, :most].contiguous() for part in (neighbours.ids, neighbours.similarities)))
