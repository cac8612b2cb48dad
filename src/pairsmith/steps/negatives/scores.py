"""The scores of candidates and positives: their cosine with the query, or the score of a judge."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.data.schemas import rows_at
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.steps.corpora.encoded import CorpusTexts
from pairsmith.steps.judging import judge_texts
from pairsmith.steps.negatives.choosing import drawn_candidates
from pairsmith.steps.negatives.encoding import EncodedPositives, EncodedTexts
from pairsmith.steps.negatives.pairs import PAIRS_AT_ONCE
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, NeighbourFile


@dataclass(frozen=True, slots=True)
class ToJudge:
    """The texts that the judge scores: for each of n queries its candidates, and its pairs' positives.

    Attributes:
        positives: the pairs, and the text of each pair's positive.
        passages: the texts of the corpus.
        candidates: the numbers of the candidates in the corpus; the judge's scores replace their cosines.
        pairs: ``(pairs,)`` int64, the row numbers of the pairs, sorted by query.
        edges: ``(n + 1,)`` int64: ``pairs[edges[i]:edges[i + 1]]`` are the pairs of query i.
    """

    positives: EncodedPositives
    passages: CorpusTexts
    candidates: NeighbourFile
    pairs: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, positives: EncodedPositives, passages: CorpusTexts, candidates: NeighbourFile) -> Self:
        """All pairs without a fault, and the candidates of all queries."""
        good = positives.pairs.good
        rows = good[positives.pairs.query[good].argsort(kind="stable")]
        edges = np.searchsorted(positives.pairs.query[rows], np.arange(len(candidates.ids) + 1))
        return cls(positives, passages, candidates, rows, edges)

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
        texts = [row["text"] for row in self.passages.rows(ids[places, ranks].tolist())]
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
    todo = ToJudge.of(positives, texts.passages, candidates)
    count, size = len(candidates.ids), settings.shard_size
    texts_per_query = candidates.counts() + np.diff(todo.edges)
    judged = judge_texts(
        lambda number: todo.rows(number * size, min((number + 1) * size, count)),
        np.add.reduceat(texts_per_query, range(0, count, size)).tolist(),
        settings.judging(),
        revision,
        run.part("scores"),
        deciding=deciding,
        inputs={**texts.fingerprints, "search": search.manifest.fingerprint},
    )
    todo.unpack(judged, size, positive_scores)
    return candidates, positive_scores
