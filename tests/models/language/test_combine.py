import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.models.language.combine import counter_maximum, self_debias


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


def test_by_hand_two_tokens():
    # delta = (-0.01, +0.01); alpha = exp(-1) = 0.36787944 on the first token only
    p = self_debias(rows([0.49, 0.51]), rows([0.50, 0.50]), decay=100.0, floor=0.01)
    first = 0.49 * 0.36787944
    total = first + 0.51
    torch.testing.assert_close(p, rows([first / total, 0.51 / total]), atol=1e-6, rtol=0)


def test_by_hand_the_floor_holds():
    # delta = (-0.5, +0.5): exp(-50) is far below the floor, so the first token keeps 0.2 * 0.01
    p = self_debias(rows([0.2, 0.8]), rows([0.7, 0.3]), decay=100.0, floor=0.01)
    torch.testing.assert_close(p, rows([0.002 / 0.802, 0.8 / 0.802]), atol=1e-6, rtol=0)


def test_by_hand_three_tokens_moderate_decay():
    # delta = (-0.1, 0.05, 0.05); decay 10: alpha = exp(-1) on the first
    p = self_debias(rows([0.3, 0.4, 0.3]), rows([0.4, 0.35, 0.25]), decay=10.0, floor=0.01)
    total = 0.3 * math.exp(-1) + 0.7
    torch.testing.assert_close(
        p, rows([0.3 * math.exp(-1) / total, 0.4 / total, 0.3 / total]), atol=1e-6, rtol=0
    )


def test_equal_probabilities_are_not_lowered():
    p = rows([0.25, 0.75])
    torch.testing.assert_close(self_debias(p, p.clone(), 100.0, 0.01), p)


def test_no_counter_prompt_or_no_decay_changes_nothing():
    p = rows([0.1, 0.2, 0.7], [0.5, 0.25, 0.25])
    torch.testing.assert_close(self_debias(p, torch.zeros_like(p), 100.0, 0.01), p)
    torch.testing.assert_close(self_debias(p, torch.ones_like(p), 0.0, 0.01), p)


def test_without_a_floor_underflow_cannot_empty_a_row():
    # Every token is likelier under a counter-prompt: all factors underflow in float32, exp(-300) and below.
    p = self_debias(rows([0.5, 0.5]), rows([0.8, 0.9]), decay=1000.0, floor=0.0)
    torch.testing.assert_close(p, rows([1.0, 0.0]), atol=1e-6, rtol=0)
    # decay 10 by hand: factors exp(-3) and exp(-4), so the ratio is e
    p = self_debias(rows([0.5, 0.5]), rows([0.8, 0.9]), decay=10.0, floor=0.0)
    torch.testing.assert_close(p, rows([math.e / (1 + math.e), 1 / (1 + math.e)]), atol=1e-6, rtol=0)


def test_arguments_are_left_as_they_were():
    p, q = rows([0.2, 0.8]), rows([0.7, 0.3])
    self_debias(p, q, 100.0, 0.01)
    assert p.tolist() == rows([0.2, 0.8]).tolist()
    assert q.tolist() == rows([0.7, 0.3]).tolist()


@pytest.mark.parametrize(
    ("main", "counter", "decay", "floor", "text"),
    [
        (torch.ones(1, 2), torch.ones(2, 2), 1.0, 0.1, r"not \(1, 2\) and \(2, 2\)"),
        (torch.ones(2), torch.ones(2), 1.0, 0.1, "rows, vocab"),
        (torch.ones(1, 2), torch.ones(1, 2), -1.0, 0.1, "decay must be at least 0"),
        (torch.ones(1, 2), torch.ones(1, 2), math.nan, 0.1, "decay must be at least 0"),
        (torch.ones(1, 2), torch.ones(1, 2), 1.0, 1.5, r"floor in \[0, 1\]"),
    ],
)
def test_faulty_arguments(main, counter, decay, floor, text):
    with pytest.raises(ValueError, match=text):
        self_debias(main, counter, decay, floor)


distributions = st.lists(st.floats(0, 50), min_size=2, max_size=8).map(
    lambda logits: torch.softmax(torch.tensor([logits]), dim=1)
)


@given(
    distributions,
    st.randoms(use_true_random=False),
    st.floats(0, 500),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
)
def test_a_distribution_comes_out_and_lowered_tokens_lose_against_the_others(p, random, decay, floor):
    order = list(range(p.shape[1]))
    random.shuffle(order)
    q = p[:, order]
    out = self_debias(p, q, decay, floor)
    assert torch.isfinite(out).all()
    assert abs(float(out.sum()) - 1) < 1e-5
    raised = (p >= q)[0]
    assert (out[0, raised] >= p[0, raised] * (1 - 1e-5)).all()


def test_counter_maximum_by_hand():
    probabilities = rows([0.1, 0.9], [0.6, 0.4], [0.3, 0.7], [0.5, 0.5])
    counters = torch.tensor([[1, 2], [3, -1], [-1, -1]])
    assert counter_maximum(probabilities, counters).tolist() == rows([0.6, 0.7], [0.5, 0.5], [0, 0]).tolist()
