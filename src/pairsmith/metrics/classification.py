"""Accuracy and F1 of a classifier, from its confusion matrix (D14); binary F1 (Q9)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s

ConfusionCounts = NDArray[np.int64]

_CELLS = 10_000_000
"""The most counts that are drawn at once."""


def confusion_matrix(gold: Sequence[int], predicted: Sequence[int], labels: int) -> ConfusionCounts:
    """How many rows of each label (first axis) were given each label (second axis), for D14.

    The table is ``(labels, labels)`` int64. Both series hold numbers from 0 to ``labels`` - 1 and are of one
    length.
    """
    table: ConfusionCounts = np.zeros((labels, labels), np.int64)
    np.add.at(table, (np.asarray(gold, np.int64), np.asarray(predicted, np.int64)), 1)
    return table


def accuracy(table: ConfusionCounts) -> Float64s:
    """The share of rows on the diagonal, from 0 to 1 (D14).

    Of tables ``(..., k, k)`` int64, each with at least one row in it: ``(...)`` float64.
    """
    right: Float64s = np.trace(table, axis1=-2, axis2=-1) / table.sum(axis=(-2, -1))
    return right


def precision_recall_f1(table: ConfusionCounts) -> tuple[Float64s, Float64s, Float64s]:
    """Precision, recall and F1 of each label, from 0 to 1, of tables ``(..., k, k)`` int64 (D14).

    They are three arrays ``(..., k)`` float64.
    NaN where undefined: precision of a label that was never predicted, recall of one that no row has, F1 of
    one that is neither.
    """
    right = np.diagonal(table, axis1=-2, axis2=-1).astype(np.float64)
    gold, predicted = table.sum(axis=-1), table.sum(axis=-2)
    return _over(right, predicted), _over(right, gold), _over(2 * right, gold + predicted)


def macro_f1(table: ConfusionCounts) -> Float64s:
    """The mean F1, from 0 to 1, of the labels that rows have or were given (D14).

    Of tables ``(..., k, k)`` int64, each with at least one row in it: ``(...)`` float64.
    """
    mean: Float64s = np.nanmean(precision_recall_f1(table)[2], axis=-1)
    return mean


def binary_f1(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> float:
    """F1 of the positive class, from 0 to 1, of n predictions (Q9).

    Both are ``(n,)`` bool: which rows were predicted positive, and which are. Where there are none of either,
    F1 is 0.
    """
    both = int((predicted & positive).sum())
    return 2 * both / max(1, int(predicted.sum()) + int(positive.sum()))


def resampled(
    table: ConfusionCounts,
    measures: Sequence[Callable[[ConfusionCounts], Float64s]],
    *,
    draws: int,
    rng: np.random.Generator,
) -> list[Float64s]:
    """Each measure, ``(draws,)`` float64, on bootstrap resamples of the rows, with replacement.

    A resample has as many rows as ``table``, which is ``(k, k)`` int64 and has at least one. A measure maps
    tables ``(b, k, k)`` to ``(b,)``. To resample rows is to draw their cells, so the counts are drawn at
    once. With many labels the tables are drawn in blocks, so that memory does not grow with k².
    """
    total = int(table.sum())
    block = max(1, _CELLS // table.size)
    by_measure: list[list[Float64s]] = [[np.empty(0)] for _ in measures]
    for start in range(0, draws, block):
        drawn = rng.multinomial(total, table.ravel() / total, size=min(block, draws - start))
        for values, measure in zip(by_measure, measures, strict=True):
            values.append(measure(drawn.reshape(-1, *table.shape)))
    return [np.concatenate(values) for values in by_measure]


def _over(counts: Float64s, totals: ConfusionCounts) -> Float64s:
    """``counts`` divided by ``totals`` of the same shape; NaN where a total is 0."""
    shares: Float64s = np.full(counts.shape, np.nan)
    np.divide(counts, totals, out=shares, where=totals > 0)
    return shares
