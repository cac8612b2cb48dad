"""The choice of a query's hard negatives among its nearest texts, by their scores and the positive's score.

A text that scores nearly as high as a known positive is often a positive that nobody labelled. The score of a
negative must therefore be at most a share of the positive's score (TopK-PercPos of Moreira et al. 2024,
NV-Retriever), or lie below it by a margin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s


@dataclass(frozen=True, slots=True)
class NegativesRule:
    """How many negatives a pair gets, and which scores they may have; None sets no bound.

    Attributes:
        count: largest number of negatives of a pair, at least 1.
        share: above 0, at most 1. A negative's score is at most this share of the positive's score c, that is
            ``c - (1 - share) |c|``, which lies below c for a negative c, too.
        margin: a negative's score is lower than the positive's by at least this much.
        lowest, highest: bounds of a negative's own score, inclusive.
    """

    count: int
    share: float | None = None
    margin: float | None = None
    lowest: float | None = None
    highest: float | None = None

    def limits(self, positive: NDArray[np.floating]) -> Float64s:
        """The highest score that a negative may have, for positives with these scores; the same shape."""
        scores = positive.astype(np.float64)
        highest = np.full(scores.shape, np.inf if self.highest is None else self.highest)
        if self.share is not None:
            highest = np.minimum(highest, scores - (1 - self.share) * np.abs(scores))
        if self.margin is not None:
            highest = np.minimum(highest, scores - self.margin)
        return highest


def chosen_places(
    scores: NDArray[np.floating],
    positive: NDArray[np.floating],
    rule: NegativesRule,
    draws: Float64s | None = None,
) -> NDArray[np.int64]:
    """The indices of the negatives among the candidates of n pairs, the highest score first.

    Args:
        scores: ``(n, c)``, the scores of each pair's c candidates; minus infinity where there is no
            candidate. Candidates with equal scores are preferred in their order.
        positive: ``(n,)``, the score that bounds each pair's negatives.
        rule: how many candidates are taken, and which scores they may have.
        draws: ``(n, c)``, a random number for each candidate: among the allowed candidates, those with the
            smallest numbers are taken. None: those with the highest scores are taken.

    Returns:
        ``(n, rule.count)`` int64, columns of ``scores``; if a pair has fewer negatives, its last entries
        are -1.
    """
    wide = scores.astype(np.float64)
    allowed = (wide > -np.inf) & (wide <= rule.limits(positive)[:, None])
    if rule.lowest is not None:
        allowed &= wide >= rule.lowest
    if draws is not None:
        rank = np.where(allowed, draws, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
        allowed &= rank < rule.count
    order = np.where(allowed, -wide, np.inf).argsort(axis=1, kind="stable")[:, : rule.count]
    places = np.full((len(scores), rule.count), -1, np.int64)
    places[:, : order.shape[1]] = np.where(np.take_along_axis(allowed, order, axis=1), order, -1)
    return places
