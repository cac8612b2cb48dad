"""Percentile bootstrap intervals of correlations, means, sums and measures of tables of counts.

The module also computes the standard error of a mean over repetitions.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.correlation import dense_groups, group_ranks, pearson

Counts = NDArray[np.int64]

_CELLS = 10_000_000
"""Largest number of counts that are drawn at once."""


def spearman_draws(
    a: NDArray[np.floating], b: NDArray[np.floating], *, draws: int, rng: np.random.Generator
) -> Float64s:
    """Spearman's correlation of each of ``draws`` bootstrap resamples: ``(draws,)`` float64, in [-1, 1]
    (D11).

    A resample draws n pairs with replacement. Its correlation is NaN if one of the series is constant in it.
    A resample changes only how often each value occurs, so the values are sorted once, and the ranks in a
    resample are computed by counting.

    Args:
        a: ``(n,)`` of any floating dtype, n >= 1.
        b: ``(n,)`` of any floating dtype.
        draws: the number of resamples.
        rng: the generator of random numbers.

    Raises:
        ValueError: the shapes differ, the series are empty, or a value is not finite.
    """
    if a.shape != b.shape or a.size == 0:
        raise ValueError(
            f"expected two series of one length of at least 1, got shapes {a.shape} and {b.shape}"
        )
    groups_a, groups_b = dense_groups(a), dense_groups(b)
    correlations = np.empty(draws)
    for draw in range(draws):
        rows = rng.integers(0, a.size, size=a.size)
        correlations[draw] = pearson(group_ranks(groups_a[rows]), group_ranks(groups_b[rows]))
    return correlations


def interval(draws: Float64s) -> tuple[float, float] | None:
    """The 95 % percentile interval: the limits of the central 95 % of ``draws``, ``(draws,)``.

    Undefined (NaN) draws are left out; they occur only if there are very few pairs. The result is None if all
    draws are undefined.
    """
    defined = draws[np.isfinite(draws)]
    if defined.size == 0:
        return None
    tail = (1.0 - 0.95) / 2
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def rounded_interval(limits: tuple[float, float] | None) -> list[float] | None:
    """The limits of an interval, rounded to four decimal places; None stays None."""
    return None if limits is None else [round(limit, 4) for limit in limits]


def mean_draws(figures: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int) -> dict[str, Float64s]:
    """The means over bootstrap resamples of n rows, ``(bootstrap,)`` float64 for each name.

    Each resample draws n rows with replacement, the same rows for all names.

    Args:
        figures: for each name, the figures of the same n rows, n >= 1.
        bootstrap: the number of resamples.
        seed: random seed of the resamples.
    """
    values: Float64s = np.array(list(figures.values()), np.float64)  # (names, n)
    count = values.shape[1]
    rng = np.random.default_rng(seed)
    draws: Float64s = np.empty((bootstrap, len(figures)))
    for draw in draws:
        draw[:] = values[:, rng.integers(0, count, size=count)].mean(axis=1)
    return dict(zip(figures, draws.T, strict=True))


def mean_intervals(
    figures: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int
) -> dict[str, list[float] | None]:
    """95 % bootstrap intervals of means over n rows, from the draws of ``mean_draws``.

    The two limits of each mean's interval, rounded to four decimal places, are under ``{name}_ci``; None if
    there are no resamples.
    """
    draws = mean_draws(figures, bootstrap=bootstrap, seed=seed)
    return {f"{name}_ci": rounded_interval(interval(means)) for name, means in draws.items()}


def resampled_sums(counts: NDArray[np.number], *, draws: int, rng: np.random.Generator) -> Float64s:
    """The sums of the counts of n rows over bootstrap resamples of the rows: ``(draws, ...)`` float64.

    A resample draws n rows with replacement. All counts of a row are counted as often as the row is drawn, so
    that figures of several models on the same rows are computed over the same resamples.

    Args:
        counts: ``(n, ...)`` of any numeric dtype, n >= 1: for each row, one or more numbers to sum.
        draws: the number of resamples.
        rng: the generator of random numbers.
    """
    count = len(counts)
    columns = counts.reshape(count, -1).astype(np.float64)
    sums: Float64s = np.empty((draws, columns.shape[1]))
    for draw in sums:
        draw[:] = np.bincount(rng.integers(0, count, size=count), minlength=count) @ columns
    return sums.reshape(draws, *counts.shape[1:])


def resampled_tables(
    table: Counts,
    measures: Sequence[Callable[[Counts], Float64s]],
    *,
    draws: int,
    rng: np.random.Generator,
) -> list[Float64s]:
    """The values of measures of a table of counts on bootstrap resamples: ``(draws,)`` float64 per measure.

    A resample draws as many rows as ``table`` counts, with replacement. Only the counts of a resample matter,
    so they are drawn directly, from a multinomial distribution over the entries of ``table``. Counts are
    drawn in blocks, so that memory does not grow with the product of draws and entries.

    Args:
        table: ``(k, m)`` int64, such as a confusion matrix: at least one row, counted by two properties.
        measures: functions from b tables, ``(b, k, m)``, to their values, ``(b,)``.
        draws: the number of resamples.
        rng: the generator of random numbers.
    """
    total = int(table.sum())
    block = max(1, _CELLS // table.size)
    by_measure: list[list[Float64s]] = [[np.empty(0)] for _ in measures]
    for start in range(0, draws, block):
        drawn = rng.multinomial(total, table.ravel() / total, size=min(block, draws - start))
        for values, measure in zip(by_measure, measures, strict=True):
            values.append(measure(drawn.reshape(-1, *table.shape)))
    return [np.concatenate(values) for values in by_measure]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of the values and its standard error, rounded to four decimal places.

    The standard error of a single value is undefined, and None.
    """
    mean = round(float(np.mean(values)), 4)
    if len(values) < 2:
        return mean, None
    return mean, round(float(np.std(values, ddof=1)) / len(values) ** 0.5, 4)
