"""The candidates of each query, its nearest texts in the corpus without its positives, and their scores.

A score is the cosine with the query, or the score of a judge.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.data.schemas import rows_at
from pairsmith.methods.retrieval.negatives import without_own_texts
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import merged
from pairsmith.search.permitted import SPARE
from pairsmith.steps.corpora.encoded import Encoded
from pairsmith.steps.corpora.indexes import SideVectors
from pairsmith.steps.corpora.search import SearchPlan, run_search
from pairsmith.steps.judging import judge_texts
from pairsmith.steps.negatives.choosing import drawn_candidates
from pairsmith.steps.negatives.encoding import EncodedPositives, EncodedTexts
from pairsmith.steps.negatives.pairs import PAIRS_AT_ONCE
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, NeighbourFile, runs_of_neighbours
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
    queries, corpus, most = texts.queries, texts.corpus, neighbours_per_query(settings)
    plan = SearchPlan.of([(len(queries), len(corpus))], {"x": most}, queries.width, settings)
    folder = run_search(plan, partial(_open_vectors, queries, corpus), settings, texts.fingerprints, run)
    nearest = NeighbourFile.empty(len(queries), min(most, len(corpus)), scratch("nearest"))
    for table in folder.batches("train"):
        for _, _, first, neighbours in runs_of_neighbours(table):
            parts = [nearest.read(first, first + len(neighbours.ids)), neighbours]
            nearest.write(first, merged(parts, nearest.ids.shape[1]))
    left_out = _leave_out(nearest, texts, settings.last_rank)
    candidates = nearest.of_ranks(slice(settings.first_rank - 1, settings.last_rank))
    if not candidates.counts().any():
        raise InputError(
            f"no query has a text at the ranks {settings.first_rank} to {settings.last_rank} besides its "
            f"positives, among {len(corpus):,} distinct texts of the corpus; give a larger corpus or a "
            "smaller --first-rank"
        )
    return candidates, left_out, folder


def _open_vectors(queries: VectorFile, corpus: Encoded) -> SideVectors:
    """Open the vectors of queries, ``x``, and corpus, ``y``, on this machine."""
    of_side = {"x": queries.local().tensor(), "y": corpus.local().vectors.tensor()}
    return lambda _, side: of_side[side]


def _leave_out(nearest: NeighbourFile, texts: EncodedTexts, ranks: int) -> int:
    """Keep only the ``nearest`` texts of each query that may be negatives; returns how many were left out.

    Left out are the query itself, its positives and copies; of several copies of another text, the nearest is
    kept. If too few texts are left, the query is searched again. ``ranks`` is the number of texts to keep for
    each query: texts that are left out are nearer than the last of these.
    """
    forbidden, total = texts.pairs.forbidden(), 0
    queries, corpus = texts.queries.tensor(), texts.corpus.vectors.tensor()
    for rows in in_batches(range(len(nearest.ids)), QUERIES_AT_ONCE):
        part = nearest.read(rows.start, rows.stop)
        kept, left_out = without_own_texts(
            part, ranks, queries, corpus, forbidden, texts.copies, first=rows.start
        )
        nearest.write(rows.start, kept)
        total += left_out
    return total


@dataclass(frozen=True, slots=True)
class ToJudge:
    """The texts that the judge scores: for each of n queries its candidates, and its pairs' positives.

    Attributes:
        positives: the pairs, the text of each pair's positive, and the texts of the corpus.
        candidates: the numbers of the candidates in the corpus; the judge's scores replace their cosines.
        pairs: ``(pairs,)`` int64, the row numbers of the pairs, sorted by query.
        edges: ``(n + 1,)`` int64: ``pairs[edges[i]:edges[i + 1]]`` are the pairs of query i.
    """

    positives: EncodedPositives
    candidates: NeighbourFile
    pairs: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, positives: EncodedPositives, candidates: NeighbourFile) -> Self:
        """All pairs without a fault, and the candidates of all queries."""
        good = positives.pairs.good
        rows = good[positives.pairs.query[good].argsort(kind="stable")]
        edges = np.searchsorted(positives.pairs.query[rows], np.arange(len(candidates.ids) + 1))
        return cls(positives, candidates, rows, edges)

    def rows(self, first: int, stop: int) -> pa.Table:
        """The pairs of texts to judge, for the queries from number ``first`` up to ``stop``.

        The candidates of all these queries come first, then their positives. The columns are input, the
        query, and output, the candidate or positive.
        """
        ids = self.candidates.ids[first:stop]
        places, ranks = (ids != NO_NEIGHBOUR).nonzero()
        pairs = self.pairs[self.edges[first] : self.edges[stop]]
        numbers = np.concatenate([places + first, self.positives.pairs.query[pairs]])
        query_pairs = self.positives.pairs
        queries = rows_at(query_pairs.table, query_pairs.first[numbers])["query"]
        texts = [row["text"] for row in self.positives.passages.rows(ids[places, ranks].tolist())]
        self.candidates.release()
        return pa.table({"input": queries, "output": [*texts, *self.positives.texts(pairs)]})

    def unpack(self, folder: DatasetFolder, size: int, pairs: Float32s) -> None:
        """Write the saved scores of candidates into the candidates, and of positives into an array.

        Args:
            folder: the judge's scores in the order of ``rows``.
            size: the number of queries in a shard of the folder.
            pairs: ``(rows,)``, to be filled with the scores of the rows' positives.
        """
        for number, table in enumerate(folder.shards("train")):
            first, stop = number * size, (number + 1) * size
            scores = table["score"].to_numpy()
            is_candidate = self.candidates.ids[first:stop] != NO_NEIGHBOUR
            part = np.full(is_candidate.shape, -np.inf, np.float32)
            part[is_candidate] = scores[: is_candidate.sum()]
            self.candidates.similarities[first:stop] = part
            self.candidates.release()
            edge = self.edges[[first, min(stop, len(self.edges) - 1)]]
            pairs[self.pairs[edge[0] : edge[1]]] = scores[is_candidate.sum() :]


def score(
    texts: EncodedTexts,
    candidates: NeighbourFile,
    search: DatasetFolder,
    settings: NegativesSettings,
    revision: str,
    scratch: ScratchFiles,
    run: Run,
) -> tuple[NeighbourFile, Float32s]:
    """The candidates with their scores, and the score of each row's positive, ``(rows,)`` float32.

    A score is the cosine with the query or, if there is a judge, the judge's score. If negatives are drawn
    whatever their scores, the judge scores only the drawn candidates, and all other candidates are left out.
    A row that is not a pair has the score NaN. ``search`` is the folder of the search that gave the
    candidates, and ``revision`` the revision of the judge.
    """
    positives, pairs = texts.positives, texts.pairs
    positive_scores = np.full(len(pairs.fault), np.nan, np.float32)
    for rows in in_batches(pairs.good, PAIRS_AT_ONCE):
        positive_scores[rows] = positives.similarities(rows, texts.queries, texts.corpus)
    if not settings.judge:
        return candidates, positive_scores
    deciding = {"first_rank": settings.first_rank, "last_rank": settings.last_rank}
    if settings.drawn_before_scores:
        candidates = drawn_candidates(pairs, candidates, settings, scratch("drawn"))
        deciding |= {"drawn": settings.negatives, "seed": settings.seed}
    to_judge = ToJudge.of(positives, candidates)
    count, size = len(candidates.ids), settings.shard_size
    texts_per_query = candidates.counts() + np.diff(to_judge.edges)
    judged = judge_texts(
        lambda number: to_judge.rows(number * size, min((number + 1) * size, count)),
        np.add.reduceat(texts_per_query, range(0, count, size)).tolist(),
        settings.judging(),
        revision,
        run.part("scores"),
        deciding=deciding,
        inputs={**texts.fingerprints, "search": search.manifest.fingerprint},
    )
    to_judge.unpack(judged, size, positive_scores)
    return candidates, positive_scores
