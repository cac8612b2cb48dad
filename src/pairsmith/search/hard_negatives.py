"""Which of a query's nearest texts become its hard negatives, by their scores and that of its positive.

A text that scores nearly as high as a known positive is often a positive that nobody labelled. A negative
therefore scores at most a share of the positive's score (Moreira et al. 2024, NV-Retriever, where this is
called TopK-PercPos), or lies below it by a margin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s


@dataclass(frozen=True, slots=True)
class NegativesRule:
    """How many negatives a pair gets, and which scores they may have; None sets no bound.

    Attributes:
        count: most negatives of a pair, at least 1.
        share: a negative scores at most this share of the positive's score c, above 0 and at most 1; where c
            is below 0, at most ``c - (1 - share) |c|``, which is lower than c, too.
        margin: a negative scores lower than the positive by at least this much.
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
    """The places of the negatives among the candidates of n pairs, the highest score first.

    Args:
        scores: ``(n, c)``, those of each pair's candidates, ties in the order of preference; minus infinity
            where there is no candidate.
        positive: ``(n,)``, the score that bounds each pair's negatives.
        rule: how many are taken, and which are allowed.
        draws: ``(n, c)``, a random number for each candidate: of those that are allowed, the ones with the
            smallest numbers are taken. Without, the ones with the highest scores are.

    Returns:
        ``(n, rule.count)``, columns of ``scores``; -1 in the last ones where fewer are allowed.
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
