"""Which candidates become negatives: worked by hand, against the definition, and against a search both ways."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pairsmith.search import exact
from pairsmith.search.exact import one_way_search, two_way_search
from pairsmith.search.hard_negatives import NegativesRule, chosen_places


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # Scores 0.9, 0.78, 0.77, 0.5, 0.1 and a positive of 0.8.
        (NegativesRule(5), [0, 1, 2, 3, 4]),
        (NegativesRule(2), [0, 1]),
        (NegativesRule(2, share=1.0), [1, 2]),
        (NegativesRule(2, share=0.97), [2, 3]),  # at most 0.776
        (NegativesRule(5, margin=0.25), [3, 4, -1, -1, -1]),  # at most 0.55
        (NegativesRule(3, share=0.97, highest=0.4), [4, -1, -1]),
        (NegativesRule(3, lowest=0.5, share=1.0), [1, 2, 3]),
        (NegativesRule(1, lowest=0.95), [-1]),
    ],
)
def test_rules_by_hand(rule, expected):
    places = chosen_places(np.array([[0.9, 0.78, 0.77, 0.5, 0.1]]), np.array([0.8]), rule)
    assert places.tolist() == [expected]


def test_a_limit_is_below_a_positive_that_scores_below_zero():
    rule = NegativesRule(1, share=0.95)
    assert rule.limits(np.array([1.0, 0.0, -2.0])).tolist() == pytest.approx([0.95, 0.0, -2.1])
    both = NegativesRule(1, share=0.5, margin=0.1, highest=0.3)
    assert both.limits(np.array([1.0, 0.5, 0.1])).tolist() == pytest.approx([0.3, 0.25, 0.0])


def test_a_draw_takes_those_with_the_smallest_numbers_and_sorts_them_by_score():
    scores = np.array([[0.9, 0.7, 0.6, 0.5]])
    draws = np.array([[0.0, 0.8, 0.3, 0.1]])
    places = chosen_places(scores, np.array([0.8]), NegativesRule(2, share=1.0), draws)
    assert places.tolist() == [[2, 3]]  # the first is above the positive


numbers = st.floats(-1, 1, width=32, allow_subnormal=False)


@given(
    data=st.data(),
    shape=st.tuples(st.integers(0, 4), st.integers(0, 7)),
    rule=st.builds(
        NegativesRule,
        count=st.integers(1, 4),
        share=st.none() | st.floats(0.1, 1),
        margin=st.none() | numbers,
        lowest=st.none() | numbers,
        highest=st.none() | numbers,
    ),
    drawn=st.booleans(),
)
def test_the_definition_one_candidate_at_a_time(data, shape, rule, drawn):
    scores = data.draw(arrays(np.float32, shape, elements=st.just(-np.inf) | numbers))
    positive = data.draw(arrays(np.float32, shape[0], elements=numbers))
    draws = data.draw(arrays(np.float64, shape, elements=st.floats(0, 1), unique=True)) if drawn else None
    places = chosen_places(scores, positive, rule, draws)
    assert places.shape == (shape[0], rule.count)
    for row in range(shape[0]):
        own, allowed = float(positive[row]), []
        for place, score in enumerate(map(float, scores[row])):
            good = score > -np.inf
            good &= rule.share is None or score <= own - (1 - rule.share) * abs(own)
            good &= rule.margin is None or score <= own - rule.margin
            good &= rule.highest is None or score <= rule.highest
            good &= rule.lowest is None or score >= rule.lowest
            if good:
                allowed.append(place)
        if draws is not None:
            allowed = sorted(allowed, key=lambda place: draws[row, place])[: rule.count]
        expected = sorted(allowed, key=lambda place: (-scores[row, place], place))[: rule.count]
        assert places[row].tolist() == expected + [-1] * (rule.count - len(expected))


@pytest.mark.parametrize("short", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize(("n", "m", "k"), [(40, 2_000, 3), (300, 130, 5), (1, 700, 800), (20, 1, 2)])
def test_one_way_is_a_half_of_both(n, m, k, short, monkeypatch):
    monkeypatch.setattr(exact, "FULL_ROWS", 16)
    x, y = (
        torch.nn.functional.normalize(
            torch.randn(count, 16, generator=torch.Generator().manual_seed(count)), dim=1
        )
        for count in (n, m)
    )
    done = []
    neighbours = one_way_search(x, y, k, short=short, advance=done.append)
    both, _ = two_way_search(x, y, k, short=short)
    assert neighbours.ids.equal(both.ids)
    assert neighbours.similarities.equal(both.similarities)
    assert sum(done) == n


def test_one_way_refuses_what_both_refuse():
    with pytest.raises(ValueError, match=r"expected \(n, d\), \(m, d\) and k >= 1"):
        one_way_search(torch.zeros(2, 3), torch.zeros(2, 4), 1)
