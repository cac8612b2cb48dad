"""The classifier of pairs that are like the seeds, against its loss and on pairs of which some are right."""

import numpy as np

from pairsmith.methods.mining.seed_classifier import C, SeedClassifier

WIDTH = 12


def cluster(rows, centre, seed):
    """Vectors about a centre, of any length."""
    return centre + np.random.default_rng(seed).standard_normal((rows, WIDTH))


def test_the_balanced_loss_with_its_penalty_is_least_there():
    seeds = cluster(9, 1.0, 1), cluster(9, -1.0, 2)
    mined = cluster(50, 0.0, 3), cluster(50, 0.0, 4)
    learned = SeedClassifier.learn(seeds, mined)

    def rows(pairs):
        return np.concatenate([side / np.linalg.norm(side, axis=1, keepdims=True) for side in pairs], axis=1)

    def loss(weight, bias):
        of_seeds, of_mined = (rows(pairs) @ weight + bias for pairs in (seeds, mined))
        # each kind as much as if there were as many of the other
        wrong = 59 / 2 * (np.log1p(np.exp(-of_seeds)).mean() + np.log1p(np.exp(of_mined)).mean())
        return C * wrong + weight @ weight / 2

    least = loss(learned.weight, learned.bias)
    for seed in range(20):
        step = 0.01 * np.random.default_rng(seed).standard_normal(2 * WIDTH + 1)
        assert loss(learned.weight + step[:-1], learned.bias + step[-1]) > least
    odds = learned.log_odds(*mined)
    assert odds.dtype == np.float32
    assert np.allclose(odds, rows(mined) @ learned.weight + learned.bias, atol=1e-6)


def test_of_pairs_that_hold_some_right_ones_these_come_first():
    seeds = cluster(100, 1.0, 1), cluster(100, -1.0, 2)
    inputs = np.concatenate([cluster(100, 1.0, 3), cluster(400, 0.0, 5)])
    outputs = np.concatenate([cluster(100, -1.0, 4), cluster(400, 0.0, 6)])
    odds = SeedClassifier.learn(seeds, (inputs, outputs)).log_odds(inputs, outputs)
    assert (np.argsort(-odds)[:100] < 100).mean() > 0.85
