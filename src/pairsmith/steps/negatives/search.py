"""The candidates of each query: its nearest texts in the corpus, without its positives."""

from collections.abc import Mapping
from functools import partial

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.data.text_keys import TextKeys
from pairsmith.methods.retrieval.negatives import without_own_texts
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import merged
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import SideVectors
from pairsmith.steps.corpora.search import SearchPlan, run_search
from pairsmith.steps.negatives.encoding import EncodedTexts
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NeighbourFile, runs_of_neighbours
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
    nearest = NeighbourFile.empty(
        len(queries), min(neighbours_per_query(settings), len(corpus)), scratch("nearest")
    )
    for table in folder.batches("train"):
        for _, _, first, neighbours in runs_of_neighbours(table):
            parts = [nearest.read(first, first + len(neighbours.ids)), neighbours]
            nearest.write(first, merged(parts, nearest.ids.shape[1]))
    left_out = leave_out(nearest, texts.pairs.forbidden(), texts.copies, queries, corpus, settings.last_rank)
    ranks = slice(settings.first_rank - 1, settings.last_rank)
    candidates = nearest.of_ranks(ranks)
    if not candidates.counts().any():
        raise InputError(
            f"no query has a text at the ranks {settings.first_rank} to {settings.last_rank} besides its "
            f"positives, among {len(corpus):,} distinct texts of the corpus; give a larger corpus or a "
            "smaller --first-rank"
        )
    return candidates, left_out, folder


def find_nearest(
    queries: VectorFile, corpus: Encoded, settings: NegativesSettings, inputs: Mapping[str, str], run: Run
) -> DatasetFolder:
    """Search the nearest texts of each query; returns the folder of the search (``run_search``).

    ``inputs`` are the fingerprints of the encoded ``queries`` and of the encoded ``corpus``.
    """
    most = {"x": neighbours_per_query(settings)}
    plan = SearchPlan.of([(len(queries), len(corpus))], most, queries.width, settings)
    return run_search(plan, partial(_open_vectors, queries, corpus), settings, inputs, run)


def _open_vectors(queries: VectorFile, corpus: Encoded) -> SideVectors:
    """Open the vectors of queries, ``x``, and corpus, ``y``, on this machine."""
    of_side = {"x": queries.local().tensor(), "y": corpus.local().vectors.tensor()}
    return lambda _, side: of_side[side]


def leave_out(
    nearest: NeighbourFile,
    forbidden: TextKeys,
    copies: TextKeys,
    queries: VectorFile,
    corpus: Encoded,
    ranks: int,
) -> int:
    """Keep only the nearest texts of each query that may be negatives; returns how many were left out.

    Of several copies of a text, the nearest one is kept.

    Args:
        nearest: the nearest texts of all queries; they are replaced by the texts that are kept.
        forbidden: the ``query_text_keys`` of each query with the texts that are no negatives of it, sorted.
        copies: ``(texts, 2)`` uint64, the ``copy_keys`` of the texts of the corpus.
        queries: the vectors of the queries.
        corpus: the vectors of the corpus, in which a query is searched again if too few texts are left.
        ranks: the number of texts to keep for each query. Texts that are left out are nearer than the last
            of these.
    """
    query_vectors, texts, total = queries.tensor(), corpus.vectors.tensor(), 0
    for rows in in_batches(range(len(nearest.ids)), QUERIES_AT_ONCE):
        part = nearest.read(rows.start, rows.stop)
        kept, left_out = without_own_texts(
            part, ranks, query_vectors, texts, forbidden, copies, first=rows.start
        )
        nearest.write(rows.start, kept)
        total += left_out
    return total
