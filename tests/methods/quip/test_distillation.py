import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.questions import Distribution
from pairsmith.methods.quip.distillation import (
    LabelledQuestion,
    PassageExample,
    is_read,
    sparse_cross_entropy,
    targets,
)
from pairsmith.models.token_vectors import TextTokens

ALL = torch.ones(1, 3, dtype=torch.bool)


def test_the_loss_of_two_places_by_hand():
    # exp: 1, 2, 5, so that p is 1/8, 2/8, 5/8.
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]])
    loss = sparse_cross_entropy(logits, ALL, torch.tensor([[2, 0]]), torch.tensor([[0.5, 0.25]]))
    assert loss.tolist() == pytest.approx([0.5 * math.log(8 / 5) + 0.25 * math.log(8)])


def test_tokens_that_are_not_there_have_no_probability_and_weight_0_counts_for_nothing():
    logits = torch.tensor([[0.0, math.log(2), 99.0]])
    there = torch.tensor([[True, True, False]])
    loss = sparse_cross_entropy(logits, there, torch.tensor([[1, 0]]), torch.tensor([[1.0, 0.0]]))
    assert loss.tolist() == pytest.approx([math.log(3 / 2)])


def test_it_is_the_divergence_but_for_the_teachers_entropy():
    teacher = torch.tensor([[0.7, 0.2, 0.1]])
    logits = torch.tensor([[0.3, -1.0, 2.0]])
    loss = sparse_cross_entropy(logits, ALL, torch.tensor([[0, 1, 2]]), teacher)
    entropy = -(teacher * teacher.log()).sum()
    divergence = torch.nn.functional.kl_div(logits.log_softmax(1), teacher, reduction="sum")
    assert float(loss) == pytest.approx(float(divergence + entropy))


@given(st.integers(0, 999))
def test_its_gradient_is_that_of_finite_differences(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 4, generator=generator, dtype=torch.float64).requires_grad_()
    places = torch.tensor([[0, 2], [3, 1]])
    weights = torch.rand(2, 2, generator=generator) / 2
    there = torch.tensor([[True, True, True, False], [True, True, True, True]])
    sparse_cross_entropy(logits, there, places, weights).sum().backward()
    with torch.no_grad():
        for row in range(2):
            for token in range(4):
                step = torch.zeros_like(logits)
                step[row, token] = 1e-2
                up, down = (
                    float(sparse_cross_entropy(logits + sign * step, there, places, weights).sum())
                    for sign in (1, -1)
                )
                assert float(logits.grad[row, token]) == pytest.approx((up - down) / 2e-2, abs=2e-4)


# "A man plays": [CLS] A man play ##s [SEP]
TOKENS = TextTokens(np.array([1, 2, 3, 4]), np.array([[0, 1], [2, 5], [6, 10], [10, 11]]))


def test_places_become_tokens_and_those_behind_the_last_are_left_out():
    question = LabelledQuestion("Who?", Distribution((2, 40), (0.9, 0.1)), Distribution((5, 11), (0.5, 0.25)))
    labels = targets(
        [TOKENS], [PassageExample("A man plays", [question, LabelledQuestion("What?", None, None)])]
    )
    assert labels["start_places"].tolist() == [[2], [0]]
    assert labels["start_weights"].tolist() == [[pytest.approx(0.9)], [1.0]]
    assert labels["end_places"].tolist() == [[2, 4], [0, 0]]  # no place stands for the first token of all
    assert labels["end_weights"].tolist() == [[0.5, 0.25], [1.0, 0.0]]


def test_a_question_is_read_where_any_place_of_its_answer_is():
    behind, there = Distribution((40,), (1.0,)), Distribution((2,), (0.1,))
    sides = [(there, behind), (behind, behind), (Distribution((), ()), behind), (None, None), (behind, there)]
    assert [is_read(TOKENS, LabelledQuestion("Who?", *pair)) for pair in sides] == [
        True,
        False,
        False,
        True,
        True,
    ]


def test_places_in_one_token_add_up_in_the_loss():
    # The teacher's tokens were letters: of "man" all three begin in one token of the student.
    question = LabelledQuestion(
        "Who?", Distribution((2, 3, 4), (0.5, 0.25, 0.125)), Distribution((5,), (1.0,))
    )
    labels = targets([TOKENS], [PassageExample("A man plays", [question])])
    logits = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    there = torch.ones(1, 6, dtype=torch.bool)
    one = sparse_cross_entropy(logits, there, labels["start_places"], labels["start_weights"])
    assert float(one) == pytest.approx(-0.875 * float(logits.log_softmax(1)[0, 2]))
