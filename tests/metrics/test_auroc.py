import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pairsmith.metrics.auroc import auroc, auroc_draws


def test_four_pairs_by_hand():
    # Of the four pairs of a positive and a negative three are in order, one is a tie.
    assert auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])) == 3.5 / 4


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_equal_to_that_of_scikit_learn(rows):
    scores, positive = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    if positive.all() or not positive.any():
        assert np.isnan(auroc(scores, positive))
    else:
        assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


def test_draws_lie_about_the_figure():
    rng = np.random.default_rng(0)
    positive = rng.random(400) < 0.4
    scores = rng.normal(size=400) + positive
    draws = auroc_draws(scores, positive, draws=200, rng=rng)
    assert draws.shape == (200,)
    assert draws.mean() == pytest.approx(auroc(scores, positive), abs=0.01)
    assert 0.01 < draws.std() < 0.04


def test_shapes_have_to_be_the_same():
    with pytest.raises(ValueError, match="one length"):
        auroc(np.zeros(2), np.zeros(3, bool))
