"""Figures against numbers worked out by hand."""

import numpy as np
import pytest

from pairsmith.core.errors import InputError, ModelError
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sts import StsSuite
from pairsmith.methods.dino.evaluation import classification_figures, separation, sts_scores

ANGLES = {"a": 0, "b": 10, "c": 40, "d": 90, "e": 170}


def by_angle(texts):
    """Each text a direction, so that the cosine of two is the cosine of their angle."""
    angles = np.radians([ANGLES[text] for text in texts])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def suite(name="s", **subsets):
    return StsSuite(name, {key: tuple(GradedPair(*pair) for pair in pairs) for key, pairs in subsets.items()})


# Angles of the pairs of x: 10, 40, 90, 170, in the order of the scores. Of y: 30 and 50, in the wrong order.
X = [("a", "b", 5.0), ("a", "c", 4.0), ("a", "d", 2.0), ("a", "e", 0.0)]
Y = [("b", "c", 1.0), ("c", "d", 3.0)]


def test_one_subset_in_perfect_order_is_100():
    score = sts_scores(by_angle, [suite(x=X)], bootstrap=0)["s"]
    assert (score.pairs, score.all.value, score.all.interval, score.mean) == (
        4,
        pytest.approx(100),
        None,
        None,
    )
    assert score.to_json() == {"all": 100.0, "all_ci": None, "pairs": 4}


def test_both_aggregations_worked_out_by_hand():
    score = sts_scores(by_angle, [suite(x=X, y=Y)], bootstrap=0)["s"]
    # Angles 10 40 90 170 30 50 rank the cosines 6 4 2 1 5 3; scores 5 4 2 0 1 3 rank 6 5 3 1 2 4.
    # Squared differences 0 1 1 0 9 1 = 12, so 1 - 6·12/(6·35) = 138/210.
    assert score.all.value == pytest.approx(100 * 138 / 210)
    assert score.subsets == pytest.approx({"x": 100.0, "y": -100.0})
    assert score.mean.value == pytest.approx(0.0)
    assert score.to_json()["subsets"] == {"x": 100.0, "y": -100.0}


def test_the_mean_of_three_subsets_is_their_average():
    # The cosines of z, of angles 10, 40 and 90, rank 3 2 1, its scores 2 3 1: 1 - 6·2/(3·8) = 0.5.
    z = [("a", "b", 2.0), ("a", "c", 3.0), ("a", "d", 1.0)]
    score = sts_scores(by_angle, [suite(x=X, y=Y, z=z)], bootstrap=0)["s"]
    assert score.subsets == pytest.approx({"x": 100.0, "y": -100.0, "z": 50.0})
    assert score.mean.value == pytest.approx(50 / 3)


def test_every_distinct_text_is_encoded_once():
    seen = []

    def encode(texts):
        seen.append(list(texts))
        return by_angle(texts)

    sts_scores(encode, [suite("s", x=X), suite("t", y=Y)], bootstrap=0)
    assert seen == [["a", "b", "c", "d", "e"]]


def many(count, seed):
    rng = np.random.default_rng(seed)
    names = [f"{seed}-{row}-{side}" for row in range(count) for side in "lr"]
    return [(names[2 * row], names[2 * row + 1], float(rng.integers(0, 6))) for row in range(count)]


def noise(texts):
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=4) for text in texts])


def test_the_interval_is_around_the_figure_seeded_and_the_suites_own():
    one, other = suite("one", x=many(80, 1), y=many(60, 2)), suite("two", x=many(50, 3))
    alone = sts_scores(noise, [one], bootstrap=200, seed=4)["one"]
    beside = sts_scores(noise, [other, one], bootstrap=200, seed=4)["one"]
    assert alone == beside
    assert alone != sts_scores(noise, [one], bootstrap=200, seed=5)["one"]
    for figure in (alone.all, alone.mean):
        low, high = figure.interval
        assert low < figure.value < high
        assert 5 < high - low < 70


def test_vectors_that_are_not_finite_are_an_error_that_names_a_sentence():
    def broken(texts):
        return np.where([[text == "c"] for text in texts], np.nan, by_angle(texts))

    with pytest.raises(ModelError, match="vectors of 1 of 5 sentences are not finite, the first that of 'c'"):
        sts_scores(broken, [suite(x=X)])


def test_a_model_that_gives_every_sentence_the_same_vector_is_an_error():
    with pytest.raises(ModelError, match="s x: the model gives every pair the same similarity"):
        sts_scores(lambda texts: np.ones((len(texts), 3)), [suite(x=X)])


@pytest.mark.parametrize("pairs", [[("a", "b", 1.0)], [("a", "b", 2.0), ("a", "c", 2.0)]])
def test_gold_without_an_order_is_an_error(pairs):
    with pytest.raises(InputError, match="s x: needs at least two pairs with different scores"):
        sts_scores(by_angle, [suite(x=pairs)])


def test_figures_of_a_classifier_by_hand():
    figures = classification_figures(("a", "b"), ["a", "a", "b", "b"], [0, 1, 1, 1], bootstrap=100)
    assert figures["accuracy"] == 75.0
    assert figures["macro_f1"] == pytest.approx((100 * 2 / 3 + 80) / 2, abs=1e-4)
    assert figures["labels"]["a"] == {
        "precision": 100.0,
        "recall": 50.0,
        "f1": 66.6667,
        "count": 2,
        "predicted": 1,
    }
    assert figures["confusion"] == {"a": {"a": 1, "b": 1}, "b": {"a": 0, "b": 2}}
    assert (figures["largest"], figures["count"]) == (50.0, 4)
    assert figures["accuracy_ci"][0] <= 75 <= figures["accuracy_ci"][1]
    assert classification_figures(("a", "b"), ["a"], [0], bootstrap=0)["accuracy_ci"] is None


PAIRS = [("a", "b", "1"), ("a", "c", "0.5"), ("a", "d", "0"), ("e", "f", "1"), ("e", "g", "0")]
COSINES = np.array([0.9, 0.5, 0.1, 0.7, 0.3])


def test_means_by_label_the_highest_first_and_the_gap():
    results = separation(PAIRS, COSINES, draws=200, seed=0)
    assert list(results["labels"]) == ["1", "0.5", "0"]
    assert {label: (figures["mean"], figures["count"]) for label, figures in results["labels"].items()} == {
        "1": (0.8, 2),
        "0.5": (0.5, 1),
        "0": (0.2, 2),
    }
    assert results["gap"] == 0.6
    # First texts are drawn whole: the gap is 0.8 of a alone, 0.4 of e alone, and 0.6 of both.
    assert results["gap_ci"] == [0.4, 0.8]
    assert results["labels"]["1"]["ci"] == [0.7, 0.9]
    assert results["labels"]["0.5"]["ci"] == [0.5, 0.5]  # of resamples with a alone
