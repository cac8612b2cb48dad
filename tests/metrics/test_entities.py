"""Entities by hand, by a search for spans of its own, and by seqeval's own F1."""

import random
from statistics import mean

import numpy as np
import pytest
from seqeval.metrics import f1_score
from tests.resamples import loop_interval

from pairsmith.metrics.bootstrap import interval, rounded_interval
from pairsmith.metrics.classification import f1_draws, f1_of_counts
from pairsmith.metrics.entities import entity_counts

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O"]]


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (GOLD, [[2, 2, 2], [0, 0, 0]]),
        ([["B-PER", "O", "O", "B-LOC"], ["B-PER"]], [[1, 2, 2], [0, 1, 0]]),  # half a name is none
        ([["B-LOC", "I-LOC", "O", "B-LOC"], ["O"]], [[1, 2, 2], [0, 0, 0]]),  # nor is one of another type
        ([["O"] * 4, ["O"]], [[0, 0, 2], [0, 0, 0]]),
    ],
)
def test_whole_entities_of_the_right_type_are_correct(predicted, expected):
    assert entity_counts(GOLD, predicted).tolist() == expected


def spans(tags):
    """The entities of a sentence: type, first word, and the word after the last."""
    entities, first = set(), None
    for place, tag in enumerate([*tags, "O"]):
        if first is not None and tag != f"I-{tags[first][2:]}":
            entities.add((tags[first][2:], first, place))
            first = None
        if tag != "O" and first is None:
            first = place
    return entities


def random_tags(rng, sentences):
    """Gold and predicted tags, of which some I- follow no entity of their type."""
    tags = ["O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-creative_work", "I-creative_work"]
    gold = [[rng.choice(tags) for _ in range(rng.randint(1, 9))] for _ in range(sentences)]
    return gold, [[tag if rng.random() < 0.7 else rng.choice(tags) for tag in row] for row in gold]


def test_counts_of_random_tags_are_those_of_spans_and_give_the_f1_of_seqeval():
    rng = random.Random(1)
    for _ in range(100):
        gold, predicted = random_tags(rng, rng.randint(1, 6))
        sets = [(spans(first), spans(second)) for first, second in zip(gold, predicted, strict=True)]
        counts = entity_counts(gold, predicted)
        assert counts.tolist() == [[len(a & b), len(b), len(a)] for a, b in sets]
        f1 = f1_score(gold, predicted, zero_division=0)
        assert f1_of_counts(counts.sum(axis=0)) == pytest.approx(f1, abs=1e-12)


def test_the_interval_is_that_of_sentences_drawn_one_by_one_and_measured_by_seqeval():
    rng = random.Random(2)
    gold, predicted = random_tags(rng, 12)
    other = [[tag if rng.random() < 0.5 else "O" for tag in tags] for tags in predicted]
    counts = np.stack([entity_counts(gold, tags) for tags in (predicted, other)], axis=1)
    draws = f1_draws(counts, draws=50, rng=np.random.default_rng(3))

    def f1(rows, tags):
        return float(f1_score([gold[row] for row in rows], [tags[row] for row in rows], zero_division=0))

    for column, tags in zip(draws.T, (predicted, other), strict=True):
        limits = loop_interval(12, lambda rows, tags=tags: f1(rows, tags), draws=50, seed=3)
        assert rounded_interval(interval(100 * column)) == limits
    both = loop_interval(12, lambda rows: mean([f1(rows, predicted), f1(rows, other)]), draws=50, seed=3)
    assert rounded_interval(interval(100 * draws.mean(axis=1))) == both
