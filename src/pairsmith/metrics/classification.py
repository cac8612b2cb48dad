"""Accuracy and F1 of a classifier, from its confusion matrix (D14); F1 from counts (Q9, Q10)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.bootstrap import resampled_sums

ConfusionCounts = NDArray[np.int64]
F1Counts = NDArray[np.int64]


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


def binary_counts(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> F1Counts:
    """What each of n predictions adds to the counts of ``f1_of_counts``, for the positive class (Q9).

    ``predicted`` and ``positive`` are ``(n,)`` bool: whether each row is predicted to be positive, and
    whether it is. The result is ``(n, 3)`` int64.
    """
    return np.stack([predicted & positive, predicted, positive], axis=1).astype(np.int64)


def f1_of_counts(counts: NDArray[np.number]) -> Float64s:
    """F1, in [0, 1], from numbers of correct, predicted and gold items: ``(...)`` float64 (Q9, Q10).

    ``counts``, ``(..., 3)``, has the three numbers in this order. F1 is 0 if nothing is predicted and nothing
    is gold.
    """
    correct, predicted, gold = np.moveaxis(counts, -1, 0)
    f1: Float64s = 2.0 * correct / np.maximum(1, predicted + gold)
    return f1


def f1_draws(counts: F1Counts, *, draws: int, rng: np.random.Generator) -> Float64s:
    """F1 on each of ``draws`` bootstrap resamples of n rows: ``(draws, ...)`` float64, in [0, 1].

    ``counts``, ``(n, ..., 3)``, are what each row adds to the counts of ``f1_of_counts``: a row is a pair of
    texts (Q9), or a sentence with all its entities (Q10). Each resample draws n rows with replacement, the
    same rows for all figures, sums their counts, and computes F1 from the sums.
    """
    return f1_of_counts(resampled_sums(counts, draws=draws, rng=rng))


def resampled_rows(
    gold: Sequence[int],
    predicted: Sequence[int],
    labels: int,
    measures: Sequence[Callable[[ConfusionCounts], Float64s]],
    *,
    draws: int,
    rng: np.random.Generator,
) -> list[Float64s]:
    """The values of measures on bootstrap resamples of n rows: ``(draws,)`` float64 for each measure.

    Unlike in ``resampled_tables`` of ``bootstrap.py``, the rows themselves are drawn, with replacement, so
    that two classifiers can be compared on the same resamples of the same rows.

    Args:
        gold: the true label of each row, from 0 to ``labels`` - 1.
        predicted: the predicted label of each row, likewise.
        labels: k, the number of labels.
        measures: functions from one confusion matrix, ``(k, k)`` int64, to a number, such as ``accuracy``.
        draws: the number of resamples.
        rng: draws n row numbers at once for each resample.
    """
    cells = np.asarray(gold, np.int64) * labels + np.asarray(predicted, np.int64)
    values: Float64s = np.empty((len(measures), draws))
    for draw in range(draws):
        rows = rng.integers(0, len(cells), size=len(cells))
        table = np.bincount(cells[rows], minlength=labels**2).reshape(labels, labels)
        values[:, draw] = [measure(table) for measure in measures]
    return list(values)


def _over(counts: Float64s, totals: ConfusionCounts) -> Float64s:
    """``counts`` divided by ``totals`` of the same shape; NaN where a total is 0."""
    shares: Float64s = np.full(counts.shape, np.nan)
    np.divide(counts, totals, out=shares, where=totals > 0)
    return shares
