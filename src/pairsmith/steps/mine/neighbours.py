"""Nearest neighbours between two encoded corpora, both ways: a map over parts of the search, then a merge.

Each part is saved as soon as a worker has computed it, as a shard of the search's dataset folder. Texts are
only compared within their group (``SearchGroup``); without groups, all texts are in one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.runs.writer import MOST_SHARDS
from pairsmith.search.exact import Neighbours, two_way_search
from pairsmith.search.faiss_search import faiss_search, needed_vectors
from pairsmith.steps.mine.encoded import Encoded
from pairsmith.steps.mine.indexes import Indexes, SearchedVectors, train_indexes
from pairsmith.steps.mine.settings import MineSettings

QUERIES = 2**24
"""Most queries that are searched in an index and saved together."""
SAVED = 2**26
"""Most neighbours that are saved together in a search by an index; each takes about 40 bytes of memory."""

NEAR: pa.Schema = pa.schema(
    [
        ("cell", pa.int64()), ("side", pa.string()), ("number", pa.int64()),
        ("ids", pa.list_(pa.int64())), ("similarities", pa.list_(pa.float32())), ("recall", pa.float32()),
    ]
)  # fmt: skip
"""The neighbours of a text, all by their numbers within the group; for a search by an index also its recall,
measured on a sample."""


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Texts that are compared with each other: the numbers of the inputs, ``(n,)``, and outputs, ``(m,)``."""

    x: NDArray[np.int64]
    y: NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class SearchBlock:
    """A part of the search within one group: a range of queries against a range of the other side.

    Attributes:
        group: number of the group.
        side: the side that the queries are from: ``x`` is searched in an index of y, ``y`` in one of x;
            ``both`` searches both ways at once, computes each product once, and has x as the queries.
        queries: begin and end of the range of queries; ``others`` those of the texts on the other side.
    """

    group: int
    side: Literal["both", "x", "y"]
    queries: tuple[int, int]
    others: tuple[int, int]

    @property
    def size(self) -> int:
        """The number of queries."""
        return self.queries[1] - self.queries[0]


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of the search that are computed and saved together."""

    number: int
    blocks: tuple[SearchBlock, ...]

    @property
    def size(self) -> int:
        """The number of queries."""
        return sum(block.size for block in self.blocks)


def parts(groups: Sequence[SearchGroup], rows: int) -> list[Part]:
    """Cut the exact search into parts of at least ``rows`` inputs each; the last may have fewer."""
    full_parts: list[Part] = []
    blocks: list[SearchBlock] = []
    for number, group in enumerate(groups):
        for start in range(0, len(group.x), rows):
            blocks.append(
                SearchBlock(number, "both", (start, min(start + rows, len(group.x))), (0, len(group.y)))
            )
            if sum(block.size for block in blocks) >= rows:
                full_parts.append(Part(len(full_parts), tuple(blocks)))
                blocks = []
    return [*full_parts, Part(len(full_parts), tuple(blocks))] if blocks else full_parts


def parts_by_index(
    groups: Sequence[SearchGroup], rows: int, needed: int, most: Mapping[str, int]
) -> list[Part]:
    """Cut the search by indexes into parts, one for each index and up to ``together`` queries.

    ``most`` are the neighbours that are looked up for a text of each side. An index holds at most ``rows``
    vectors, unless its training needs more: ``needed``.
    """
    blocks: list[SearchBlock] = []
    for number, group in enumerate(groups):
        x, y = len(group.x), len(group.y)
        sides: tuple[tuple[Literal["x", "y"], int, int], ...] = (("x", x, y), ("y", y, x))
        for side, queries, others in sides:
            blocks += [
                SearchBlock(number, side, query_range, held)
                for held in _stretches(others, rows, needed)
                for query_range in _stretches(queries, together(most[side]), 0)
            ]
    return [Part(number, (block,)) for number, block in enumerate(blocks)]


def together(neighbours: int) -> int:
    """How many queries are searched in an index and saved together, each with so many neighbours."""
    return max(1, min(QUERIES, SAVED // neighbours))


def _stretches(count: int, most: int, least: int) -> list[tuple[int, int]]:
    """Split ``count`` into as few equal ranges as possible, of up to ``most`` each, or ``least`` if more."""
    number = -(-count // most)
    if least:
        number = max(1, min(number, count // least))
    return [(i * count // number, (i + 1) * count // number) for i in range(number)]


def check_index(index: str) -> None:
    """Check that FAISS can build an index for vectors of some usual width."""
    parts = [8 * int(number) for number in re.findall(r"PQ(\d+)", index) if int(number)]
    for width in (384, 768, 896, 1024, *parts):
        with suppress(SettingsError):
            needed_vectors(index, width)
            return
    needed_vectors(index, 3840)


SPARE = {"x": 4, "y": 4}
"""Neighbours looked up beyond k for an input, ``x``, and an output, ``y``, as copies are left out later."""
SPARE_OF_SUMMARIES = {"x": 28, "y": 4}
"""The same for kind summaries: a document's own sentences are among its nearest, and are left out later."""


def looked_up(settings: MineSettings) -> dict[str, int]:
    """How many nearest neighbours are looked up for an input, ``x``, and for an output, ``y``."""
    if settings.verbatim == "keep":
        return {"x": settings.k, "y": settings.k}
    spare = SPARE_OF_SUMMARIES if settings.kind == "summaries" else SPARE
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
    neighbours = looked_up(settings)
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
        todo = parts(groups, settings.search_rows)
    if len(todo) > MOST_SHARDS:
        remedy = "leave out --index" if settings.index else "give a larger --search-rows"
        raise SettingsError(f"the search has {len(todo):,} parts, more than {MOST_SHARDS:,}; {remedy}")
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
        left = [part for part in plan.parts if not writer.is_done(part.number)]
        total = sum(part.size for part in plan.parts)
        trained = _trained_indexes(x, y, groups, plan, settings, inputs, run)
        commit_each(
            writer,
            partial(_load_search, x, y, trained, settings),
            left,
            ExecutorChoice.of(settings),
            run,
            title="search",
            unit="texts" if settings.index else "inputs",
            done=total - sum(part.size for part in left),
            total=total,
        )
        writer.finish(_card(settings))
    folder = writer.folder()
    if settings.index:
        _say_recall(folder, plan, settings.index, run)
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


def _say_recall(folder: DatasetFolder, plan: SearchPlan, index: str, run: Run) -> None:
    """Say how many of the nearest texts an index found, and which parts were searched without it."""
    recall = [table["recall"][0].as_py() for table in folder.shards("train", ["recall"])]
    run.progress.say(
        f"index {index}: finds at least {min(recall):.1%} of the nearest texts, as checked by an exact "
        "search for a sample"
    )
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
    most = looked_up(settings)
    indexes = Indexes(settings.index, trained) if settings.index else None

    def search(part: Part, advance: Advance) -> RowsAndRejects:
        tables: list[pa.Table] = []
        for block in part.blocks:
            of_x, of_y = x.vectors.of(groups[block.group].x), y.vectors.of(groups[block.group].y)
            queries, all_others = (of_y, of_x) if block.side == "y" else (of_x, of_y)
            queries, others = queries[slice(*block.queries)], all_others[slice(*block.others)]
            first = block.queries[0]
            if indexes:
                near, recall = faiss_search(
                    queries,
                    others,
                    most[block.side],
                    index=indexes.of(block.group, block.side, block.others, all_others),
                    recall=settings.recall,
                    advance=advance,
                )
                near.ids.add_(block.others[0])
                tables.append(rows_of(block.group, block.side, first, near, recall))
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
            tables.append(rows_of(block.group, "x", first, _first_columns(near_x, most["x"])))
            tables.append(rows_of(block.group, "y", 0, _first_columns(near_y, most["y"])))
        return pa.concat_tables(tables), to_table([], REJECT)

    return search


def _first_columns(near: Neighbours, most: int) -> Neighbours:
    return Neighbours(near.ids[:, :most].contiguous(), near.similarities[:, :most].contiguous())


def rows_of(group: int, side: str, first: int, near: Neighbours, recall: float | None = None) -> pa.Table:
    """Rows of ``NEAR``: the neighbours of consecutive texts of a side, from number ``first`` on."""
    count, width = near.ids.shape
    offsets = pa.array(np.arange(0, count * width + 1, width, dtype=np.int32))
    numbers = np.arange(first, first + count)
    columns = [
        pa.array(np.full(count, group)),
        pa.array([side]).take(pa.array(np.zeros(count, np.int64))),
        pa.array(numbers),
        pa.ListArray.from_arrays(offsets, pa.array(near.ids.numpy().ravel())),
        pa.ListArray.from_arrays(offsets, pa.array(near.similarities.numpy().ravel())),
        pa.array([recall] * count, pa.float32()),
    ]
    return pa.Table.from_arrays(columns, schema=NEAR)


def _card(settings: MineSettings) -> Card:
    return Card(
        title=f"Nearest neighbours of two corpora under {model_display_name(settings.encoder)}",
        description="For each text the numbers of its nearest texts in the other corpus, and their cosines.",
        provenance="The neighbours were computed from the texts' vectors.",
        tags=("embeddings",),
        licence="It contains no texts.",
        sources=sources_of(models=[settings.encoder]),
    )
