"""Percentile bootstrap intervals of correlations and means, and the standard error of a mean over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.correlation import dense_groups, group_ranks, pearson


def spearman_draws(
    a: NDArray[np.floating], b: NDArray[np.floating], *, draws: int, rng: np.random.Generator
) -> Float64s:
    """Spearman's correlation of bootstrap resamples, each of n pairs drawn with replacement (D11).

    ``a`` and ``b`` are ``(n,)`` of any floating dtype, not empty and finite, else a ``ValueError``; the
    correlations are ``(draws,)`` float64 within [-1, 1], and NaN for a resample in which a
    series is constant. A resample changes only how often each value occurs, so the values are sorted once
    and the ranks of each resample follow from counting.
    """
    if a.shape != b.shape or a.size == 0:
        raise ValueError(
            f"expected two series of one length of at least 1, got shapes {a.shape} and {b.shape}"
        )
    groups_a, groups_b = dense_groups(a), dense_groups(b)
    correlations = np.empty(draws)
    for draw in range(draws):
        chosen = rng.integers(0, a.size, size=a.size)
        correlations[draw] = pearson(group_ranks(groups_a[chosen]), group_ranks(groups_b[chosen]))
    return correlations


def interval(draws: Float64s, *, level: float = 0.95) -> tuple[float, float] | None:
    """The interval that holds the central ``level``, above 0 and below 1, of ``draws``, ``(draws,)``.

    Undefined (NaN) draws are left out; they occur only for a handful of pairs. None where all are.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be above 0 and below 1, got {level}")
    defined = draws[np.isfinite(draws)]
    if defined.size == 0:
        return None
    tail = (1.0 - level) / 2
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def rounded_interval(limits: tuple[float, float] | None) -> list[float] | None:
    """The limits of an interval, rounded to four places; None stays None."""
    return None if limits is None else [round(limit, 4) for limit in limits]


def mean_draws(parts: Sequence[Float64s]) -> Float64s:
    """The mean over subsets of each draw, so that resampling stays within a subset: ``(draws,)`` (D11).

    ``parts`` are at least one, each ``(draws,)`` float64; NaN where a subset's draw is.
    """
    averages: Float64s = np.mean(np.stack(parts), axis=0)
    return averages


def mean_intervals(
    figures: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int
) -> dict[str, list[float] | None]:
    """95 % bootstrap intervals of means: each resample draws as many rows as there are, with replacement.

    ``figures`` holds for each name the figures of the same n rows, at least 1. The result has for each
    ``{name}_ci`` the two limits, rounded to four places, or None where ``bootstrap``, the number of
    resamples, is 0.
    """
    worth: Float64s = np.array(list(figures.values()), np.float64)  # (names, n)
    count = worth.shape[1]
    rng = np.random.default_rng(seed)
    draws: Float64s = np.empty((bootstrap, len(figures)))
    for draw in draws:
        draw[:] = worth[:, rng.integers(0, count, size=count)].mean(axis=1)
    return {f"{name}_ci": rounded_interval(interval(draws[:, column])) for column, name in enumerate(figures)}


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error, None for one value, which shows no spread; rounded to four places."""
    mean = round(float(np.mean(values)), 4)
    if len(values) < 2:
        return mean, None
    return mean, round(float(np.std(values, ddof=1)) / len(values) ** 0.5, 4)
