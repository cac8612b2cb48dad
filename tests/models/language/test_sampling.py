import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.models.language.sampling import Sampling, draw_tokens, truncate


def test_top_k_then_top_p_by_hand():
    p = torch.tensor([[0.4, 0.1, 0.3, 0.2]])
    kept, tokens = truncate(p, top_k=3, top_p=1.0)
    assert tokens.tolist() == [[0, 2, 3]]
    torch.testing.assert_close(kept, torch.tensor([[4 / 9, 3 / 9, 2 / 9]]))
    # top-p sees the renormalised 0.444, 0.333, 0.222: the second token crosses 0.5, the third is cut
    kept, _ = truncate(p, top_k=3, top_p=0.5)
    torch.testing.assert_close(kept, torch.tensor([[4 / 7, 3 / 7, 0.0]]))


def test_top_p_keeps_at_least_the_likeliest():
    kept, tokens = truncate(torch.tensor([[0.2, 0.5, 0.3]]), top_k=0, top_p=0.01)
    assert tokens[0, 0] == 1
    assert kept.tolist() == [[1.0, 0.0, 0.0]]


def test_top_p_keeps_no_token_beyond_its_share():
    kept, _ = truncate(torch.tensor([[0.25, 0.5, 0.25]]), top_k=0, top_p=0.5)
    assert kept.tolist() == [[1.0, 0.0, 0.0]]


def test_no_truncation_sorts_only():
    kept, tokens = truncate(torch.tensor([[0.25, 0.5, 0.25]]), top_k=0, top_p=1.0)
    assert tokens.tolist() == [[1, 0, 2]]
    assert kept.tolist() == [[0.5, 0.25, 0.25]]


def test_equal_tokens_come_in_the_order_of_their_numbers():
    _, tokens = truncate(torch.full((1, 8), 0.125), top_k=8, top_p=1.0)
    assert tokens.tolist() == [list(range(8))]
    assert truncate(torch.tensor([[0.1, 0.3, 0.3, 0.3]]), 3, 1.0)[1].tolist() == [[1, 2, 3]]


def test_of_equal_tokens_the_first_are_kept():
    assert truncate(torch.full((2, 300), 1 / 300), top_k=5, top_p=1.0)[1].tolist() == [[0, 1, 2, 3, 4]] * 2
    mixed = torch.tensor([[0.1, 0.2, 0.1, 0.2, 0.1, 0.3], [0.3, 0.25, 0.2, 0.15, 0.06, 0.04]])
    assert truncate(mixed, top_k=4, top_p=1.0)[1].tolist() == [[5, 1, 3, 0], [0, 1, 2, 3]]


def test_draw_by_hand():
    kept = torch.tensor([[0.5, 0.3, 0.2, 0.0]] * 5)
    tokens = torch.tensor([[7, 8, 9, 10]] * 5)
    uniforms = torch.tensor([0.0, 0.499, 0.5, 0.81, 1 - 2**-53], dtype=torch.float64)
    assert draw_tokens(kept, tokens, uniforms).tolist() == [7, 7, 8, 9, 9]
    halves, half = torch.tensor([[0.5, 0.5]]), torch.tensor([0.5], dtype=torch.float64)
    assert draw_tokens(halves, torch.tensor([[7, 8]]), half).tolist() == [8]


@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=12),
    st.integers(0, 13),
    st.floats(0.01, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_draw_is_among_the_kept(logits, top_k, top_p, uniform):
    p = torch.softmax(torch.tensor([logits]), dim=1)
    kept, tokens = truncate(p, top_k, top_p)
    assert abs(float(kept.sum()) - 1) < 1e-5
    assert kept.shape == tokens.shape
    if top_k:
        assert (kept > 0).sum() <= top_k
    token = int(draw_tokens(kept, tokens, torch.tensor([uniform], dtype=torch.float64)))
    assert float(kept[tokens == token]) > 0


@pytest.mark.parametrize(
    "values", [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"max_tokens": 0}, {"stop": ""}]
)
def test_sampling_out_of_range(values):
    with pytest.raises(ValueError, match="top_k >= 0"):
        Sampling(**values)
