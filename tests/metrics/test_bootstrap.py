import time

import numpy as np
import pytest
import scipy.stats

from pairsmith.metrics.bootstrap import interval, resampled_sums, spearman_draws


def test_every_draw_is_spearman_of_its_resample():
    source = np.random.default_rng(1)
    a, b = source.integers(0, 9, 40).astype(float), source.integers(0, 9, 40).astype(float)
    draws = spearman_draws(a, b, draws=20, rng=np.random.default_rng(5))
    same = np.random.default_rng(5)
    for draw in draws:
        chosen = same.integers(0, 40, size=40)
        assert draw == pytest.approx(scipy.stats.spearmanr(a[chosen], b[chosen]).statistic, abs=1e-12)


def test_the_same_seed_gives_the_same_draws():
    a, b = np.arange(30.0), np.arange(30.0)[::-1] ** 2
    first, second = (spearman_draws(a, b, draws=3, rng=np.random.default_rng(1)) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first == pytest.approx([-1.0] * 3)


def test_another_seed_gives_other_draws():
    a, b = np.arange(30.0), np.arange(30.0) % 7
    first, other = (spearman_draws(a, b, draws=3, rng=np.random.default_rng(seed)) for seed in (1, 2))
    assert first.tolist() != other.tolist()


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(11)
    truth = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman of a normal pair whose Pearson correlation is 0.6
    inside = 0
    for _ in range(60):
        pairs = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=120)
        low, high = interval(spearman_draws(pairs[:, 0], pairs[:, 1], draws=200, rng=rng))
        inside += low <= truth <= high
    assert 50 <= inside <= 60


def test_an_interval_is_the_central_part_of_the_draws():
    assert interval(np.arange(201.0)) == pytest.approx((5.0, 195.0))


def test_undefined_draws_are_left_out_and_none_defined_gives_no_interval():
    assert interval(np.array([np.nan, 0.5, 0.5])) == (0.5, 0.5)
    assert interval(np.array([np.nan])) is None
    assert interval(np.array([])) is None


def test_all_counts_of_a_row_are_summed_as_often_as_the_row_is_drawn():
    counts = np.random.default_rng(0).integers(0, 4, (7, 2, 3))
    sums, same = resampled_sums(counts, draws=5, rng=np.random.default_rng(4)), np.random.default_rng(4)
    for drawn in sums:
        assert drawn.tolist() == sum(counts[row] for row in same.integers(0, 7, size=7)).tolist()
    assert resampled_sums(counts, draws=0, rng=same).shape == (0, 2, 3)


def test_a_thousand_resamples_of_three_thousand_sentences_and_five_splits_take_less_than_a_second():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (3000, 5, 3))
    started = time.process_time()
    resampled_sums(counts, draws=1000, rng=rng)
    assert time.process_time() - started < 1


def test_series_that_do_not_match_or_are_empty_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        spearman_draws(np.zeros(2), np.zeros(3), draws=1, rng=rng)
    with pytest.raises(ValueError, match="at least 1"):
        spearman_draws(np.zeros(0), np.zeros(0), draws=1, rng=rng)


def test_a_thousand_resamples_of_five_thousand_pairs_take_seconds():
    rng = np.random.default_rng(0)
    started = time.process_time()
    spearman_draws(rng.normal(size=5000), rng.integers(0, 20, 5000) / 4, draws=1000, rng=rng)
    assert time.process_time() - started < 5
