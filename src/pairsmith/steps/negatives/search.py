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
from pairsmith.core.errors import InputError
from pairsmith.data.text_keys import TextKeys
from pairsmith.methods.retrieval.negatives import without_own_texts
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles, storage_errors
from pairsmith.search.exact import Neighbours, merged
from pairsmith.search.faiss_search import needed_vectors
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import SideVectors
from pairsmith.steps.corpora.options import SearchOptions
from pairsmith.steps.corpora.search import SearchPlan, run_search, search_card
from pairsmith.steps.negatives.encoding import EncodedTexts
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import (
    NO_NEIGHBOUR,
    Part,
    SearchBlock,
    SearchGroup,
    ids_of_stored,
    parts_by_index,
)
from pairsmith.steps.vectors import VectorFile

QUERIES_AT_ONCE = 4_096
"""Queries whose neighbours are held in memory at once."""


def neighbours_per_query(settings: NegativesSettings) -> int:
    """How many nearest texts of each query are searched for."""
    return settings.last_rank + SPARE


def find_candidates(
    texts: EncodedTexts, settings: NegativesSettings, scratch: ScratchFiles, run: Run
) -> tuple["Nearest", int, DatasetFolder]:
    """The texts nearest to each query that may be its negatives, at the ranks that are set.

    Returned are also how many nearer ones were left out, and the folder of the search.
    """
    queries, corpus = texts.queries, texts.corpus
    folder = find_nearest(queries, corpus, settings, texts.fingerprints, run)
    files = scratch("ids"), scratch("cosines")
    near = gather(folder, len(queries), min(neighbours_per_query(settings), len(corpus)), files)
    own = texts.pairs.forbidden()
    left_out = leave_out(near, own, texts.copies, queries, corpus, settings.last_rank)
    ranks = slice(settings.first_rank - 1, settings.last_rank)
    candidates = Nearest(near.ids[:, ranks], near.similarities[:, ranks])
    if not candidates.ids.size or (candidates.ids[:, 0] == NO_NEIGHBOUR).all():  # NO_NEIGHBOUR comes last
        raise InputError(
            f"no query has a text at the ranks {settings.first_rank} to {settings.last_rank} besides its "
            f"positives, among {len(corpus):,} distinct texts of the corpus; give a larger corpus"
        )
    return candidates, left_out, folder


def find_nearest(
    queries: VectorFile, corpus: Encoded, settings: NegativesSettings, inputs: Mapping[str, str], run: Run
) -> DatasetFolder:
    """Search and save the nearest texts in the subfolder ``search``; finished parts are kept.

    An index that has to be trained is kept in ``indexes``. ``inputs`` are the fingerprints of the encoded
    queries and of the encoded corpus, by name.
    """
    options, needed = SearchOptions.of(settings), 0
    neighbours = dict.fromkeys(("x", "y"), neighbours_per_query(settings))
    if settings.index:
        group = SearchGroup(np.arange(len(queries)), np.arange(len(corpus)))
        needed = needed_vectors(settings.index, queries.width)
        both_ways = parts_by_index([group], settings.index_rows, needed, neighbours)
        blocks = [part.blocks[0] for part in both_ways if part.blocks[0].side == "x"]
    else:
        batches = in_batches(range(len(queries)), settings.search_rows)
        blocks = [SearchBlock(0, "x", (rows.start, rows.stop), (0, len(corpus))) for rows in batches]
    parts = [Part(number, (block,)) for number, block in enumerate(blocks)]
    decides = options.deciding() | {"neighbours": neighbours["x"]}
    card = search_card(
        "Nearest texts of queries",
        "For each query the numbers of its nearest texts, and their cosines.",
        settings.encoder,
    )
    return run_search(
        SearchPlan(parts, neighbours, decides, needed),
        partial(_open_vectors, queries, corpus),
        options,
        inputs,
        run,
        indexed={"corpus": inputs["corpus"]},
        unit="queries",
        card=card,
    )


def _open_vectors(queries: VectorFile, corpus: Encoded) -> SideVectors:
    """Open the vectors on this machine."""
    of_side = {"x": queries.local().every(), "y": corpus.local().vectors.every()}
    return lambda _, side: of_side[side]


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
