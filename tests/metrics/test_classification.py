"""Accuracy and F1, against numbers worked out by hand and scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from pairsmith.metrics import bootstrap
from pairsmith.metrics.bootstrap import resampled_tables
from pairsmith.metrics.classification import (
    accuracy,
    binary_counts,
    confusion_matrix,
    f1_draws,
    f1_of_counts,
    macro_f1,
    precision_recall_f1,
)


def test_by_hand():
    #  a b c
    table = confusion_matrix([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 0], 3)
    assert table.tolist() == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert accuracy(table) == pytest.approx(3 / 6)
    precision, recall, f1 = precision_recall_f1(table)
    # a: 2 right of 4 predicted and 3 given; b: 1 of 2 and 2; c: never predicted, 1 given.
    assert precision[:2].tolist() == [0.5, 0.5]
    assert np.isnan(precision[2])
    assert recall.tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert f1.tolist() == pytest.approx([4 / 7, 1 / 2, 0])
    assert macro_f1(table) == pytest.approx((4 / 7 + 1 / 2) / 3)


def test_a_label_that_is_neither_given_nor_predicted_has_no_part_in_the_mean():
    table = confusion_matrix([0, 1, 1], [0, 1, 0], 4)
    assert macro_f1(table) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_as_scikit_learn_has_it():
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    table = confusion_matrix(gold, predicted, 5)
    assert macro_f1(table) == pytest.approx(f1_score(gold, predicted, average="macro"))
    theirs = precision_recall_fscore_support(gold, predicted)[:3]
    np.testing.assert_allclose(precision_recall_f1(table), theirs)


def test_resamples_have_as_many_rows_and_vary_as_rows_drawn_one_by_one(monkeypatch):
    table = confusion_matrix([0] * 60 + [1] * 40, [0] * 50 + [1] * 50, 2)

    def measured():
        measures = (accuracy, macro_f1, lambda tables: tables.sum(axis=(1, 2)))
        return resampled_tables(table, measures, draws=4_000, rng=np.random.default_rng(1))

    rates, scores, rows = measured()
    assert rates.shape == (4_000,)
    assert (rows == 100).all()
    assert rates.mean() == pytest.approx(0.9, abs=0.005)
    assert rates.std() == pytest.approx((0.9 * 0.1 / 100) ** 0.5, rel=0.05)
    assert np.isfinite(scores).all()
    monkeypatch.setattr(bootstrap, "_CELLS", 12)  # three tables at once
    np.testing.assert_array_equal(measured()[0], rates)


def test_f1_of_the_positive_class_by_hand():
    def f1(predicted, positive):
        return f1_of_counts(binary_counts(np.array(predicted), np.array(positive)).sum(axis=0))

    assert f1([True, True, False, False], [True, False, True, False]) == 0.5
    assert f1([False, False], [True, False]) == 0.0
    assert f1([False, False], [False, False]) == 0.0


def test_the_f1_of_a_resample_is_scikit_learns_of_the_rows_drawn():
    rng = np.random.default_rng(0)
    gold, first, second = rng.random((3, 9)) < 0.3
    counts = np.stack([binary_counts(first, gold), binary_counts(second, gold)], axis=1)
    draws, same = f1_draws(counts, draws=40, rng=np.random.default_rng(5)), np.random.default_rng(5)
    for both in draws:
        rows = same.integers(0, 9, size=9)
        expected = [f1_score(gold[rows], predicted[rows], zero_division=0) for predicted in (first, second)]
        assert both.tolist() == pytest.approx(expected, abs=1e-12)
