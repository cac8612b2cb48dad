"""AUROC: how well scores rank one class above another (Q8, Q11)."""

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.correlation import dense_groups, group_ranks


def auroc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve: the share of positive-negative pairs in which the positive scores higher.

    Both are ``(n,)``, the scores of any floating dtype and finite, else a ``ValueError``. The area is within
    [0, 1], where equal scores count half, and NaN where one of the classes is missing (Q8, Q11).
    """
    if scores.ndim != 1 or scores.shape != positive.shape:
        raise ValueError(f"expected two series of one length, got shapes {scores.shape} and {positive.shape}")
    return _of_groups(dense_groups(scores), positive)


def auroc_draws(
    scores: NDArray[np.floating], positive: NDArray[np.bool_], *, draws: int, rng: np.random.Generator
) -> Float64s:
    """``auroc`` of bootstrap resamples, each of n rows drawn with replacement: ``(draws,)`` float64.

    It is NaN for a resample that lacks one of the classes.
    """
    groups, count = dense_groups(scores), len(scores)
    chosen = (rng.integers(0, count, size=count) for _ in range(draws))
    return np.array([_of_groups(groups[rows], positive[rows]) for rows in chosen], np.float64)


def _of_groups(groups: NDArray[np.intp], positive: NDArray[np.bool_]) -> float:
    """The Mann-Whitney statistic from the ranks of the positives, divided by the number of pairs.

    ``groups`` are ``dense_groups`` of the scores, ``(n,)``, and ``positive`` is ``(n,)`` bool.
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    above = group_ranks(groups)[positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
