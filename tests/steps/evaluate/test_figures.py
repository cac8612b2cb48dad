"""Means over splits or prompts: their error is over these, their interval over the test rows."""

import numpy as np
import pytest
from sklearn.metrics import f1_score
from tests.resamples import loop_interval

from pairsmith.metrics.classification import binary_counts
from pairsmith.steps.evaluate.figures import over_repetitions, over_splits, uncertainty_line, with_error
from pairsmith.steps.evaluate.retrieval import retrieval_table
from pairsmith.steps.evaluate.summaries import summary_table


def test_all_splits_have_the_same_rows_in_a_resample_and_the_mean_is_taken_in_each():
    rng = np.random.default_rng(0)
    gold = rng.random(25) < 0.4
    predicted = {13: gold ^ (rng.random(25) < 0.1), 21: gold ^ (rng.random(25) < 0.4)}
    counts = {split: binary_counts(positive, gold) for split, positive in predicted.items()}
    figures = over_splits(counts, bootstrap=30, seed=6)

    def limits(*splits):
        def mean(rows):
            return np.mean([f1_score(gold[rows], predicted[n][rows], zero_division=0) for n in splits])

        return pytest.approx(loop_interval(25, mean, draws=30, seed=6), abs=1e-4)

    assert figures["splits_ci"] == {"13": limits(13), "21": limits(21)}
    assert figures["f1_ci"] == limits(13, 21)
    assert figures["splits_ci"]["13"] != limits(21)
    first, second = (100 * f1_score(gold, positive) for positive in predicted.values())
    assert figures["splits"] == {"13": pytest.approx(first, abs=1e-4), "21": pytest.approx(second, abs=1e-4)}
    assert figures["f1"] == pytest.approx((first + second) / 2, abs=1e-4)
    assert figures["error"] == pytest.approx(abs(first - second) / 2, abs=1e-4)


def test_a_table_says_what_both_are_and_only_what_it_has():
    figures = {"f1": 50.0, "error": 1.5, "f1_ci": [47.25, 53.0]}
    assert with_error(figures, "f1") == "50.00 ± 1.50  [47.25, 53.00]"
    assert uncertainty_line(figures, "f1", "splits", "pairs") == [
        "±: standard error over the splits; brackets: 95 % interval over the pairs"
    ]
    assert uncertainty_line(figures | {"error": None}, "f1", "splits", "pairs") == [
        "brackets: 95 % interval over the pairs"
    ]
    assert with_error({"f1": 50.0, "error": None, "f1_ci": None}, "f1") == "50.00"
    assert uncertainty_line({"f1": 50.0, "error": None, "f1_ci": None}, "f1", "splits", "pairs") == []


def test_a_mean_over_prompts_with_its_uncertainty_by_hand():
    draws = np.array([[40.0, 90.0], [60.0, 100.0]])  # means 65 and 80
    assert over_repetitions("accuracy", "prompts", [50.0, 100.0], draws) == {
        "accuracy": 75.0, "accuracy_ci": [65.375, 79.625], "error": 25.0, "prompts": [50.0, 100.0],
        "prompts_ci": [[40.5, 59.5], [90.25, 99.75]],
    }  # fmt: skip
    without = over_repetitions("accuracy", "prompts", [50.0, 100.0], np.empty((0, 2)))
    assert (without["accuracy_ci"], without["prompts_ci"]) == (None, [None, None])


def test_a_table_of_one_row_has_the_singular():
    figures = dict.fromkeys(("ndcg@10", "recall@100", "recall@10", "precision@10", "mrr@10", "map"), 50.0)
    table = retrieval_table({**figures, "queries": 1, "documents": 2_000})
    assert table.splitlines()[0] == "1 query, 2,000 documents"
    rouge = dict.fromkeys(("rouge1", "rouge2", "rougeL", "rougeLsum"), 50.0)
    shares = {"written": rouge, "gold": rouge}
    assert summary_table({**rouge, "count": 1, "abstractiveness": shares}).splitlines()[0] == "1 document"
