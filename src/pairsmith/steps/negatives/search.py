"""The candidates of each query: its nearest texts in the corpus, without its positives.

The search is cut into parts. Each part is saved as a shard of the search's dataset folder as soon as a worker
has computed it; then the parts are merged.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.data.text_keys import TextKeys
from pairsmith.methods.retrieval.negatives import without_own_texts
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
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
    NeighbourFile,
    Part,
    SearchBlock,
    SearchGroup,
    parts_by_index,
)
from pairsmith.steps.vectors import VectorFile

QUERIES_AT_ONCE = 4_096
"""Number of queries whose neighbours are held in memory at once."""


def neighbours_per_query(settings: NegativesSettings) -> int:
    """The number of nearest texts to search for each query: some more than its last rank."""
    return settings.last_rank + SPARE


def find_candidates(
    texts: EncodedTexts, settings: NegativesSettings, scratch: ScratchFiles, run: Run
) -> tuple[NeighbourFile, int, DatasetFolder]:
    """The candidates of each query: its nearest texts that may be negatives, at the ranks of the settings.

    Returned are the candidates, the number of nearer texts that were left out as positives or copies, and
    the folder of the search.
    """
    queries, corpus = texts.queries, texts.corpus
    folder = find_nearest(queries, corpus, settings, texts.fingerprints, run)
    near = NeighbourFile.empty(
        len(queries), min(neighbours_per_query(settings), len(corpus)), scratch("near")
    )
    gather(folder, near)
    forbidden = texts.pairs.forbidden()
    left_out = leave_out(near, forbidden, texts.copies, queries, corpus, settings.last_rank)
    ranks = slice(settings.first_rank - 1, settings.last_rank)
    candidates = NeighbourFile(near.ids[:, ranks], near.similarities[:, ranks])
    if not candidates.ids.size or (candidates.ids[:, 0] == NO_NEIGHBOUR).all():  # NO_NEIGHBOUR comes last
        raise InputError(
            f"no query has a text at the ranks {settings.first_rank} to {settings.last_rank} besides its "
            f"positives, among {len(corpus):,} distinct texts of the corpus; give a larger corpus or a "
            "smaller --first-rank"
        )
    return candidates, left_out, folder


def find_nearest(
    queries: VectorFile, corpus: Encoded, settings: NegativesSettings, inputs: Mapping[str, str], run: Run
) -> DatasetFolder:
    """Search the nearest texts of each query, and save them in the subfolder ``search``.

    Parts that an earlier run has finished are not searched again. An index that has to be trained is saved
    in the subfolder ``indexes``. ``inputs`` are the fingerprints of the encoded queries and of the encoded
    corpus, by name.
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
    """Open the vectors of queries, ``x``, and corpus, ``y``, on this machine."""
    of_side = {"x": queries.local().every(), "y": corpus.local().vectors.every()}
    return lambda _, side: of_side[side]


def gather(folder: DatasetFolder, near: NeighbourFile) -> None:
    """Merge the parts of a search: write the nearest texts of each query into ``near``, which is empty."""
    for table in folder.batches("train"):
        first = table["number"][0].as_py()
        ids, similarities = (
            torch.tensor(table[name].combine_chunks().flatten().to_numpy()).view(table.num_rows, -1)
            for name in ("ids", "similarities")
        )
        parts = [near.read(first, first + table.num_rows), Neighbours(ids, similarities)]
        near.write(first, merged(parts, near.ids.shape[1]))


def leave_out(
    near: NeighbourFile,
    forbidden: TextKeys,
    copies: TextKeys,
    queries: VectorFile,
    corpus: Encoded,
    ranks: int,
) -> int:
    """Keep only the nearest texts of each query that may be negatives; returns how many were left out.

    Of several copies of a text, the nearest one is kept.

    Args:
        near: the nearest texts of all queries; those that are kept replace them.
        forbidden: the ``query_text_keys`` of each query with the texts that are no negatives of it, sorted.
        copies: ``(texts, 2)`` uint64, the ``copy_keys`` of the texts of the corpus.
        queries: the vectors of the queries.
        corpus: the vectors of the corpus, in which a query is searched again if too few texts are left.
        ranks: the number of texts to keep for each query. Texts that are left out are nearer than the last
            of these.
    """
    query_vectors, texts, total = queries.every(), corpus.vectors.every(), 0
    for rows in in_batches(range(len(near.ids)), QUERIES_AT_ONCE):
        part = near.read(rows.start, rows.stop)
        kept, left_out = without_own_texts(
            part, ranks, query_vectors, texts, forbidden, copies, first=rows.start
        )
        near.write(rows.start, kept)
        total += left_out
    return total
