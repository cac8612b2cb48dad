"""Spearman's correlation, to evaluate encoders (D10, D11), and Pearson's, to choose layers (Q8)."""

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman's correlation of two series, in [-1, 1]: Pearson's correlation of their ranks (D10, D11).

    Equal values have the mean of their ranks. The series are ``(n,)`` of any floating dtype. The correlation
    is NaN, as it is undefined, if n < 2 or a series is constant.

    Raises:
        ValueError: the shapes differ, or a value is not finite.
    """
    check_same_shape(a, b)
    return pearson(group_ranks(dense_groups(a)), group_ranks(dense_groups(b)))


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson's correlation of two series, in [-1, 1] (Q8).

    The series are ``(n,)`` of any floating dtype; sums are computed in float64. The correlation is NaN, as it
    is undefined, if n < 2 or a series is constant.

    Raises:
        ValueError: the shapes differ.
    """
    check_same_shape(a, b)
    if a.size < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    x, y = a - a.mean(dtype=np.float64), b - b.mean(dtype=np.float64)
    return float(np.clip((x @ y) / (np.sqrt(x @ x) * np.sqrt(y @ y)), -1.0, 1.0))


def dense_groups(values: NDArray[np.floating]) -> NDArray[np.intp]:
    """For each of n values, the number of distinct values that are smaller: ``(n,)`` intp, 0 for the
    smallest.

    Raises:
        ValueError: a value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError("ranks need finite values, got NaN or infinity")
    groups: NDArray[np.intp] = np.unique(values, return_inverse=True)[1]
    return groups


def group_ranks(groups: NDArray[np.intp]) -> Float64s:
    """The ranks of n values, from 1 to n, ``(n,)`` float64, from their ``dense_groups``, ``(n,)``.

    Equal values have the mean of their ranks: c equal values after s smaller values have the ranks s+1 … s+c,
    whose mean is s + (c+1)/2. A number may be missing among the groups, as in a resample.
    """
    counts = np.bincount(groups)
    ranks: Float64s = (np.cumsum(counts) - (counts - 1) / 2.0)[groups]
    return ranks


def check_same_shape(a: NDArray[np.generic], b: NDArray[np.generic]) -> None:
    """Raise a ``ValueError`` unless both series are ``(n,)``."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"expected two series of one length, got shapes {a.shape} and {b.shape}")
