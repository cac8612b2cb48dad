"""Measures of rankings: how many of a query's relevant documents were retrieved, and how near the top.

They are those of trec_eval. A document's relevance is a whole number, above 0 for a relevant one; documents
that nobody judged have relevance 0, and negative ones count as 0.

Of a query's r retrieved documents ``ranked``, ``(r,)`` int64, holds the relevance, the best-ranked first, and
``judged``, ``(j,)`` int64, that of all j judged documents, in any order. All measures are within [0, 1].
nDCG, recall and average precision raise a ``ValueError`` where no document is relevant.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

Grades = NDArray[np.int64]
RankingMeasure = Callable[[Grades, Grades], float]
"""A figure within [0, 1] of a query's ranking, from ``ranked``, ``(r,)``, and ``judged``, ``(j,)``."""


def ndcg(ranked: Grades, judged: Grades, k: int) -> float:
    """Normalised discounted cumulative gain of the first ``k`` documents, within [0, 1].

    The gain of a document is its relevance divided by the binary logarithm of its rank plus 1, and the sum of
    the gains is divided by that of the best possible ranking.
    """
    check_relevant(judged)
    return _gain(ranked[:k]) / _gain(np.sort(judged)[::-1][:k])


def recall(ranked: Grades, judged: Grades, k: int) -> float:
    """Share of the relevant documents that are among the first ``k``, within [0, 1]."""
    return int((ranked[:k] > 0).sum()) / check_relevant(judged)


def precision(ranked: Grades, judged: Grades, k: int) -> float:  # noqa: ARG001 - the signature of RankingMeasure
    """Share of the first ``k`` places that hold a relevant document, within [0, 1].

    The ranking ``ranked``, ``(r,)``, may have fewer places.
    """
    return int((ranked[:k] > 0).sum()) / k


def reciprocal_rank(ranked: Grades, judged: Grades, k: int) -> float:  # noqa: ARG001 - the signature of RankingMeasure
    """1 divided by the rank of the first relevant document, or 0 if none is among the first ``k``."""
    ranks = np.flatnonzero(ranked[:k] > 0)
    return 1.0 / (int(ranks[0]) + 1) if ranks.size else 0.0


def average_precision(ranked: Grades, judged: Grades) -> float:
    """The precision at the rank of each relevant document, averaged over all relevant documents.

    A relevant document that was not retrieved adds 0.
    """
    ranks = np.flatnonzero(ranked > 0) + 1
    return float((np.arange(1, ranks.size + 1) / ranks).sum()) / check_relevant(judged)


MEASURES: Mapping[str, RankingMeasure] = {
    "ndcg@10": partial(ndcg, k=10),
    "recall@100": partial(recall, k=100),
    "recall@10": partial(recall, k=10),
    "precision@10": partial(precision, k=10),
    "mrr@10": partial(reciprocal_rank, k=10),
    "map": average_precision,
}
"""The usual measures, by the names of their means over queries."""


def check_relevant(judged: Grades) -> int:
    """The number of relevant documents in ``judged``, ``(j,)``; a ``ValueError`` where there is none."""
    relevant = int((judged > 0).sum())
    if not relevant:
        raise ValueError("a query without a relevant document has no figures")
    return relevant


def _gain(grades: Grades) -> float:
    """The discounted cumulative gain of a ranking with this relevance, ``(k,)``, the best-ranked first."""
    gains = np.maximum(grades, 0) / np.log2(np.arange(2, len(grades) + 2))
    return float(gains.sum())
