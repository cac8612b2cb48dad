"""Measures of a query's ranking of documents, defined as in trec_eval, all in [0, 1].

A document's relevance grade is an integer, above 0 if the document is relevant. Documents without a judgement
have grade 0, and negative grades count as 0.

Each measure has two arguments: ``ranked``, ``(r,)`` int64, has the grades of the r retrieved documents, from
the first rank on; ``judged``, ``(j,)`` int64, has the grades of all j judged documents, in any order. nDCG,
recall and average precision raise a ``ValueError`` if no document is relevant.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

Grades = NDArray[np.int64]
RankingMeasure = Callable[[Grades, Grades], float]
"""A function from ``ranked``, ``(r,)``, and ``judged``, ``(j,)``, to a figure in [0, 1]."""


def ndcg(ranked: Grades, judged: Grades, k: int) -> float:
    """Normalised discounted cumulative gain of the first ``k`` documents, in [0, 1].

    The gain of a document is its grade divided by log2(rank + 1). The sum of the gains is divided by the sum
    of the gains of the best possible ranking.
    """
    check_relevant(judged)
    return _gain(ranked[:k]) / _gain(np.sort(judged)[::-1][:k])


def recall(ranked: Grades, judged: Grades, k: int) -> float:
    """The share of the relevant documents that are among the first ``k``, in [0, 1]."""
    return int((ranked[:k] > 0).sum()) / check_relevant(judged)


def precision(ranked: Grades, judged: Grades, k: int) -> float:  # noqa: ARG001 - the signature of RankingMeasure
    """The number of relevant documents among the first ``k``, divided by ``k``, in [0, 1].

    The divisor is ``k`` even if fewer documents were retrieved.
    """
    return int((ranked[:k] > 0).sum()) / k


def reciprocal_rank(ranked: Grades, judged: Grades, k: int) -> float:  # noqa: ARG001 - the signature of RankingMeasure
    """1 divided by the rank of the first relevant document; 0 if none is among the first ``k``."""
    ranks = np.flatnonzero(ranked[:k] > 0)
    return 1.0 / (int(ranks[0]) + 1) if ranks.size else 0.0


def average_precision(ranked: Grades, judged: Grades) -> float:
    """The mean, over all relevant documents, of the precision at the document's rank, in [0, 1].

    The precision is 0 for a relevant document that was not retrieved.
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
"""The measures that evaluations report, by the names of their means over queries."""


def check_relevant(judged: Grades) -> int:
    """The number of relevant documents in ``judged``, ``(j,)``; a ``ValueError`` if there are none."""
    relevant = int((judged > 0).sum())
    if not relevant:
        raise ValueError("a query without a relevant document has no figures")
    return relevant


def _gain(grades: Grades) -> float:
    """The discounted cumulative gain of documents with these grades, ``(k,)``, from the first rank on."""
    gains = np.maximum(grades, 0) / np.log2(np.arange(2, len(grades) + 2))
    return float(gains.sum())
