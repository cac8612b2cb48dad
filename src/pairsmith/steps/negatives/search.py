"""The nearest texts of each query: searched part by part, merged, and without the query's own positives.

Each part is saved as soon as a worker has computed it, as a shard of the search's dataset folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.model_files import pick_device
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.data.text_keys import TextKeys
from pairsmith.methods.retrieval.negatives import without_own_texts
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, commit_each, start_part
from pairsmith.runs.storage import storage_errors
from pairsmith.runs.work import Advance, Work
from pairsmith.search.exact import Neighbours, merged, one_way_search
from pairsmith.search.faiss_search import needed_vectors
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import Indexes, SearchedVectors, train_indexes
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import (
    NEAR,
    NO_NEIGHBOUR,
    Part,
    SearchBlock,
    SearchGroup,
    check_part_count,
    ids_of_stored,
    neighbour_rows,
    parts_by_index,
    report_recall,
)
from pairsmith.steps.vectors import VectorFile

QUERIES_AT_ONCE = 4_096
"""Queries whose neighbours are held in memory at once."""


def neighbours_per_query(settings: NegativesSettings) -> int:
    """How many nearest texts of each query are searched for."""
    return settings.last_rank + SPARE


def find_nearest(
    queries: VectorFile, corpus: Encoded, settings: NegativesSettings, inputs: Mapping[str, str], run: Run
) -> DatasetFolder:
    """Search and save the nearest texts in the subfolder ``search``; finished parts are kept.

    An index that has to be trained is kept in ``indexes``. ``inputs`` are the fingerprints of the encoded
    queries and of the encoded corpus, by name.
    """
    group = SearchGroup(np.arange(len(queries)), np.arange(len(corpus)))
    if settings.index:
        needed = needed_vectors(settings.index, queries.width)
        most = dict.fromkeys(("x", "y"), neighbours_per_query(settings))
        blocks = [part.blocks[0] for part in parts_by_index([group], settings.index_rows, needed, most)]
        blocks = [block for block in blocks if block.side == "x"]
    else:
        parts = in_batches(range(len(queries)), settings.search_rows)
        blocks = [SearchBlock(0, "x", (part.start, part.stop), (0, len(corpus))) for part in parts]
    todo = [Part(number, (block,)) for number, block in enumerate(blocks)]
    check_part_count(todo, settings.index)
    writer = start_part(
        run.part("search"),
        step="search",
        schema=NEAR,
        settings=settings.model_dump(
            mode="json", include={"index", "index_rows", "recall"} if settings.index else {"search_rows"}
        )
        | {"neighbours": neighbours_per_query(settings)},
        inputs=inputs,
        models={},
        planned=len(todo),
    )
    if not writer.finished:
        remaining = [part for part in todo if not writer.is_done(part.number)]
        total = sum(part.size for part in todo)
        trained = None
        if settings.index and 0 < needed <= len(corpus):
            of_corpus = {"corpus": inputs["corpus"]}
            load = partial(_searched, corpus)
            trained = train_indexes(
                settings.index,
                load,
                [(0, "x")],
                ExecutorChoice.of(settings),
                of_corpus,
                run.part("indexes"),
            )
        commit_each(
            writer,
            partial(_load_search, queries, corpus, trained, settings),
            remaining,
            ExecutorChoice.of(settings),
            run,
            title="search",
            unit="queries",
            done=total - sum(part.size for part in remaining),
            total=total,
        )
        writer.finish(
            Card(
                title=f"Nearest texts of queries under {model_display_name(settings.encoder)}",
                description="For each query the numbers of its nearest texts, and their cosines.",
                provenance="The neighbours were computed from the texts' vectors.",
                tags=("embeddings",),
                licence="It contains no texts.",
                sources=sources_of(models=[settings.encoder]),
            )
        )
    folder = writer.folder()
    if settings.index:
        report_recall(folder, settings.index, run)
    return folder


def _searched(corpus: Encoded) -> SearchedVectors:
    """The vectors of the corpus, opened on this machine."""
    texts = corpus.local().vectors.every()
    return lambda *_: texts


def _load_search(
    queries: VectorFile,
    corpus: Encoded,
    trained: DatasetFolder | None,
    settings: NegativesSettings,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[Part, RowsAndRejects]:
    """Open the vectors; what is returned makes rows of ``NEAR`` of a part, and no rejects."""
    query_vectors, texts = queries.local().every(), corpus.local().vectors.every()
    device = torch.device(pick_device(settings.device))
    memory, most = int(settings.memory * 2**30), neighbours_per_query(settings)
    indexes = Indexes(settings.index, trained) if settings.index else None

    def search(part: Part, advance: Advance) -> RowsAndRejects:
        (block,) = part.blocks
        of_block = query_vectors[slice(*block.queries)]
        recall = None
        if indexes:
            near, recall = indexes.search(
                of_block, texts, block, most, recall=settings.recall, advance=advance
            )
        else:
            near = one_way_search(of_block, texts, most, memory=memory, device=device, advance=advance)
        return neighbour_rows(0, "x", block.queries[0], near, recall), to_table([], REJECT)

    return search


@dataclass(frozen=True, slots=True)
class Nearest:
    """The texts at the first ranks of each query: numbers and cosines, ``(queries, ranks)``, in files.

    Where a query has fewer, the last have the number ``NO_NEIGHBOUR`` and the cosine minus infinity.
    """

    ids: NDArray[np.uint32]
    similarities: Float32s

    @classmethod
    def empty(cls, count: int, width: int, files: tuple[Path, Path]) -> Self:
        """Room for the neighbours of ``count`` queries, in new files; each place holds ``NO_NEIGHBOUR``."""
        for file in files:
            with storage_errors(file), file.open("wb") as out:
                out.truncate(4 * count * width)
        ids = np.memmap(files[0], np.uint32, "r+", shape=(count, width))
        similarities = np.memmap(files[1], np.float32, "r+", shape=(count, width))
        for start in range(0, count, QUERIES_AT_ONCE):
            ids[start : start + QUERIES_AT_ONCE], similarities[start : start + QUERIES_AT_ONCE] = (
                NO_NEIGHBOUR,
                -np.inf,
            )
        return cls(ids, similarities)

    def read(self, rows: slice) -> Neighbours:
        """Those of some queries; the id -1 stands where there is none."""
        ids = torch.from_numpy(ids_of_stored(self.ids[rows]))
        return Neighbours(ids, torch.tensor(self.similarities[rows]))

    def write(self, rows: slice, near: Neighbours) -> None:
        """Replace those of some queries; they may have fewer ranks."""
        width = min(near.ids.shape[1], self.ids.shape[1])
        self.ids[rows], self.similarities[rows] = NO_NEIGHBOUR, -np.inf
        self.ids[rows, :width] = near.ids[:, :width].numpy().astype(np.uint32)  # -1 becomes ``NO_NEIGHBOUR``
        self.similarities[rows, :width] = near.similarities[:, :width].numpy()


def gather(folder: DatasetFolder, count: int, width: int, files: tuple[Path, Path]) -> Nearest:
    """The nearest texts of each of ``count`` queries, merged from all parts of a search."""
    merged_near = Nearest.empty(count, width, files)
    for table in folder.batches("train"):
        first = table["number"][0].as_py()
        ids, similarities = (
            torch.tensor(table[name].combine_chunks().flatten().to_numpy()).view(table.num_rows, -1)
            for name in ("ids", "similarities")
        )
        rows = slice(first, first + table.num_rows)
        merged_near.write(rows, merged([merged_near.read(rows), Neighbours(ids, similarities)], width))
    return merged_near


def leave_out(
    near: Nearest, forbidden: TextKeys, copies: TextKeys, queries: VectorFile, corpus: Encoded, ranks: int
) -> int:
    """Leave the texts of the first ``ranks`` that may be negatives; returns how many nearer ones may not.

    ``forbidden`` are the numbers of queries with the keys of their own texts, sorted, and ``copies``
    ``(texts, 2)`` the keys of the corpus. Of several copies of a text the nearest counts.
    """
    query_vectors, texts, total = queries.every(), corpus.vectors.every(), 0
    for first in range(0, len(near.ids), QUERIES_AT_ONCE):
        rows = slice(first, min(first + QUERIES_AT_ONCE, len(near.ids)))
        kept, left_out = without_own_texts(
            near.read(rows), ranks, query_vectors, texts, forbidden, copies, first=first
        )
        near.write(rows, kept)
        total += left_out
    return total
