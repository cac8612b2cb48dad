import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pairsmith.metrics.correlation import dense_groups, group_ranks, pearson, spearman


def test_equal_values_share_the_mean_of_their_ranks():
    groups = dense_groups(np.array([10.0, 20.0, 10.0, 30.0, 20.0, 20.0]))
    assert group_ranks(groups).tolist() == [1.5, 4, 1.5, 6, 4, 4]


def test_groups_count_distinct_smaller_values():
    assert dense_groups(np.array([0.5, -1.0, 0.5, 7.0])).tolist() == [1, 0, 1, 2]


def test_groups_that_no_value_is_in_take_no_rank():
    assert group_ranks(np.array([3, 0, 3])).tolist() == [2.5, 1.0, 2.5]


def test_spearman_worked_out_by_hand():
    # Ranks 1 2 3 4 against 2 1 4 3: squared differences 1+1+1+1, so 1 - 6·4/(4·15) = 0.6.
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([20.0, 10.0, 40.0, 30.0])) == pytest.approx(0.6)


def test_spearman_sees_order_only():
    a = np.array([0.1, 0.2, 0.3, 0.9])
    assert spearman(a, np.exp(20 * a)) == pytest.approx(1.0)
    assert spearman(a, -(a**3)) == pytest.approx(-1.0)


def test_pearson_worked_out_by_hand():
    # Deviations -1 0 1 and -2 1 1: 3 / (√2 · √6).
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([0.0, 3.0, 3.0])) == pytest.approx(3 / np.sqrt(12))


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [7.0, 7.0, 7.0]])
def test_a_constant_series_has_no_correlation(values):
    other = np.array([1.0, 2.0, 3.0])
    assert np.isnan(spearman(np.array(values), other))
    assert np.isnan(pearson(other, np.array(values)))


def test_one_value_has_no_correlation():
    assert np.isnan(spearman(np.array([1.0]), np.array([2.0])))


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite values"):
        spearman(np.array([1.0, np.nan]), np.array([1.0, 2.0]))


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        spearman(np.ones((2, 2)), np.ones((2, 2)))


# Few distinct values, so that ties are many.
series = arrays(np.float64, 12, elements=st.integers(0, 5).map(float))


@given(series, series)
def test_spearman_equals_scipy(a, b):
    assume(np.ptp(a) > 0 and np.ptp(b) > 0)
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    assert group_ranks(dense_groups(a)).tolist() == scipy.stats.rankdata(a).tolist()


def test_spearman_equals_scipy_on_thousands_of_values():
    rng = np.random.default_rng(3)
    a = rng.normal(size=5000)
    b = np.round(a + rng.normal(size=5000), 1)
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
