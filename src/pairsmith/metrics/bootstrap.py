"""Percentile bootstrap intervals: how far a correlation would vary on other pairs of the same kind."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.metrics.correlation import dense_groups, group_ranks, pearson

Floats = NDArray[np.float64]


def spearman_draws(
    a: NDArray[np.floating], b: NDArray[np.floating], *, draws: int, rng: np.random.Generator
) -> Floats:
    """Spearman's correlation of ``draws`` bootstrap resamples, each of n pairs drawn with replacement.

    A resample changes only how often each value occurs, so the values are sorted once and the ranks of
    each resample follow from counting.

    Args:
        a: values, shape (n,), finite.
        b: values, shape (n,), finite.
        draws: number of resamples, at least 0.
        rng: random generator of the resamples.

    Returns:
        Shape (draws,), within [-1, 1]; NaN for a resample in which a series is constant.

    Raises:
        ValueError: the shapes differ or are not (n,), n is 0, or a value is not finite.
    """
    if a.shape != b.shape or a.size == 0:
        raise ValueError(
            f"expected two series of one length of at least 1, got shapes {a.shape} and {b.shape}"
        )
    groups_a, groups_b = dense_groups(a), dense_groups(b)
    found = np.empty(draws)
    for draw in range(draws):
        chosen = rng.integers(0, a.size, size=a.size)
        found[draw] = pearson(group_ranks(groups_a[chosen]), group_ranks(groups_b[chosen]))
    return found


def interval(draws: Floats, *, level: float = 0.95) -> tuple[float, float] | None:
    """The central ``level`` of ``draws``, shape (draws,); None where no draw is defined.

    Undefined (NaN) draws are left out; they occur only for a handful of pairs.

    Args:
        draws: correlations within [-1, 1], or NaN.
        level: the share of the draws that the interval holds, above 0 and below 1.

    Raises:
        ValueError: ``level`` is out of range.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be above 0 and below 1, got {level}")
    defined = draws[np.isfinite(draws)]
    if defined.size == 0:
        return None
    tail = (1.0 - level) / 2
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def mean_draws(parts: Sequence[Floats]) -> Floats:
    """The mean over subsets of each draw, so that resampling stays within a subset.

    Args:
        parts: the draws of each subset, at least one, shape (draws,), within [-1, 1] or NaN.

    Returns:
        Shape (draws,), within [-1, 1]; NaN where a subset's draw is.

    Raises:
        ValueError: there are no parts, or their shapes differ.
    """
    averages: Floats = np.mean(np.stack(parts), axis=0)
    return averages
