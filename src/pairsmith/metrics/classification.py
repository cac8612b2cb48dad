"""Accuracy and F1 of a classifier, from its confusion matrix (D14); binary F1 (Q9)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s

ConfusionCounts = NDArray[np.int64]

_CELLS = 10_000_000
"""Largest number of counts that are drawn at once."""


def confusion_matrix(gold: Sequence[int], predicted: Sequence[int], labels: int) -> ConfusionCounts:
    """The confusion matrix of n predictions: ``(labels, labels)`` int64 (D14).

    Entry (i, j) is the number of rows whose true label is i and whose predicted label is j. ``gold`` and
    ``predicted`` have n labels each, from 0 to ``labels`` - 1.
    """
    table: ConfusionCounts = np.zeros((labels, labels), np.int64)
    np.add.at(table, (np.asarray(gold, np.int64), np.asarray(predicted, np.int64)), 1)
    return table


def accuracy(table: ConfusionCounts) -> Float64s:
    """The share of correct predictions, in [0, 1]: ``(...)`` float64 (D14).

    ``table`` is one or more confusion matrices, ``(..., k, k)`` int64, each of at least one row.
    """
    shares: Float64s = np.trace(table, axis1=-2, axis2=-1) / table.sum(axis=(-2, -1))
    return shares


def precision_recall_f1(table: ConfusionCounts) -> tuple[Float64s, Float64s, Float64s]:
    """Precision, recall and F1 of each of k labels, in [0, 1]: three arrays ``(..., k)`` float64 (D14).

    ``table`` is one or more confusion matrices, ``(..., k, k)`` int64. Undefined figures are NaN: the
    precision of a label that is never predicted, the recall of a label that no row has, and the F1 of a label
    of which both are true.
    """
    correct = np.diagonal(table, axis1=-2, axis2=-1).astype(np.float64)
    gold, predicted = table.sum(axis=-1), table.sum(axis=-2)
    return _over(correct, predicted), _over(correct, gold), _over(2 * correct, gold + predicted)


def macro_f1(table: ConfusionCounts) -> Float64s:
    """The mean F1, in [0, 1], of the labels that occur as true or predicted labels: ``(...)`` float64 (D14).

    ``table`` is one or more confusion matrices, ``(..., k, k)`` int64, each of at least one row.
    """
    mean: Float64s = np.nanmean(precision_recall_f1(table)[2], axis=-1)
    return mean


def binary_f1(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> float:
    """The F1 of the positive class, in [0, 1], of n predictions (Q9).

    ``predicted`` and ``positive`` are ``(n,)`` bool: whether each row is predicted to be positive, and
    whether it is. F1 is 0 if no row is either.
    """
    true_positives = int((predicted & positive).sum())
    return 2 * true_positives / max(1, int(predicted.sum()) + int(positive.sum()))


def resampled(
    table: ConfusionCounts,
    measures: Sequence[Callable[[ConfusionCounts], Float64s]],
    *,
    draws: int,
    rng: np.random.Generator,
) -> list[Float64s]:
    """The values of measures on bootstrap resamples of the rows: ``(draws,)`` float64 for each measure.

    A resample draws as many rows as ``table`` has, with replacement. Only the counts of a resample matter, so
    they are drawn directly, from a multinomial distribution over the entries of ``table``. They are drawn in
    blocks, so that memory does not grow with draws · k².

    Args:
        table: the confusion matrix, ``(k, k)`` int64, of at least one row.
        measures: functions from b confusion matrices, ``(b, k, k)``, to their values, ``(b,)``.
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


def _over(counts: Float64s, totals: ConfusionCounts) -> Float64s:
    """``counts`` divided by ``totals`` of the same shape; NaN where a total is 0."""
    shares: Float64s = np.full(counts.shape, np.nan)
    np.divide(counts, totals, out=shares, where=totals > 0)
    return shares
