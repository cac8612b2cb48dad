"""Spearman's rank correlation, the figure every sentence encoder is judged by (D10, D11)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman's correlation of two series: Pearson's correlation of their average ranks.

    Args:
        a: values, shape (n,), any real dtype, finite.
        b: values, shape (n,).

    Returns:
        Within [-1, 1]; NaN where it is undefined: fewer than two values, or a constant series.

    Raises:
        ValueError: the shapes differ or are not (n,), or a value is not finite.
    """
    return pearson(average_ranks(a), average_ranks(_same_shape(b, a)))


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson's correlation of two series of shape (n,), within [-1, 1]; NaN where a series is constant.

    Raises:
        ValueError: the shapes differ or are not (n,).
    """
    _same_shape(b, a)
    if a.size < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    x, y = a - a.mean(dtype=np.float64), b - b.mean(dtype=np.float64)
    return float(np.clip((x @ y) / (np.sqrt(x @ x) * np.sqrt(y @ y)), -1.0, 1.0))


def average_ranks(values: NDArray[np.floating]) -> Floats:
    """Ranks 1…n of ``values``, shape (n,); equal values share the mean of their ranks.

    Raises:
        ValueError: not of shape (n,), or a value is not finite.
    """
    group = dense_groups(values)
    return group_ranks(np.bincount(group))[group]


def dense_groups(values: NDArray[np.floating]) -> NDArray[np.intp]:
    """For each value, shape (n,), the number of distinct smaller values: 0 for the smallest.

    Raises:
        ValueError: not of shape (n,), or a value is not finite.
    """
    if values.ndim != 1:
        raise ValueError(f"expected shape (n,), got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("ranks need finite values, got NaN or infinity")
    group: NDArray[np.intp] = np.unique(values, return_inverse=True)[1].astype(np.intp)
    return group


def group_ranks(counts: NDArray[np.intp]) -> Floats:
    """The average rank of each group of equal values, from the groups' sizes in ascending order.

    A group of c values after s smaller ones holds ranks s+1 … s+c, whose mean is s + (c+1)/2.
    """
    ranks: Floats = np.cumsum(counts) - (counts - 1) / 2.0
    return ranks


def _same_shape(b: NDArray[np.floating], a: NDArray[np.floating]) -> NDArray[np.floating]:
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"expected two series of one length, got shapes {a.shape} and {b.shape}")
    return b
