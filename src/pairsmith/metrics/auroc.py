"""AUROC: how well scores rank the positive class above the negative class (Q8, Q11)."""

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.correlation import check_same_shape, dense_groups, group_ranks


def auroc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve, in [0, 1]; NaN if one of the classes has no rows (Q8, Q11).

    The area is the share of the pairs of a positive and a negative row in which the positive row has the
    higher score; pairs with equal scores count half.

    Args:
        scores: ``(n,)`` of any floating dtype.
        positive: ``(n,)`` bool, whether each row belongs to the positive class.

    Raises:
        ValueError: the shapes differ, or a score is not finite.
    """
    check_same_shape(scores, positive)
    return _auroc_of_groups(dense_groups(scores), positive)


def auroc_draws(
    scores: NDArray[np.floating], positive: NDArray[np.bool_], *, draws: int, rng: np.random.Generator
) -> Float64s:
    """The ``auroc`` of each of ``draws`` bootstrap resamples: ``(draws,)`` float64, in [0, 1].

    A resample draws n rows with replacement. Its AUROC is NaN if one of the classes has no rows in it.
    """
    groups, count = dense_groups(scores), len(scores)
    resamples = (rng.integers(0, count, size=count) for _ in range(draws))
    return np.array([_auroc_of_groups(groups[rows], positive[rows]) for rows in resamples], np.float64)


def _auroc_of_groups(groups: NDArray[np.intp], positive: NDArray[np.bool_]) -> float:
    """The Mann-Whitney U statistic of the positives' ranks, divided by the number of pairs; NaN without
    pairs.

    ``groups``, ``(n,)``, are the ``dense_groups`` of the scores; ``positive`` is ``(n,)`` bool.
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    above = group_ranks(groups)[positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
