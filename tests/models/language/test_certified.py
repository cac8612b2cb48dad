"""Steps certified from lists of likeliest tokens, against the same from whole distributions."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairsmith.models.language.certified import certified
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.sampling import Sampling, truncate

D4 = Sampling(top_k=2, top_p=1.0)


def logs(probabilities):
    return {token: float(np.log(p)) for token, p in probabilities.items()}


def test_tokens_that_no_counter_prompt_can_find_likelier_keep_their_probability():
    # Tokens 2 and 3 share the 0.1 that is left; whatever they get, 0 and 1 are the two to draw from.
    main = logs({0: 0.6, 1: 0.3})
    kept, tokens = certified(main, [logs({5: 0.8, 6: 0.1})], D4, decay=100.0, floor=0.01)
    assert tokens.tolist() == [[0, 1]]
    assert kept[0].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_a_token_on_both_lists_is_lowered_by_exactly_d3():
    # delta = 0.5 - 0.52; factor exp(100 * -0.02) = 0.1353.
    kept, tokens = certified(logs({0: 0.5, 1: 0.45}), [logs({0: 0.52, 1: 0.3})], D4, decay=100.0, floor=0.01)
    assert tokens.tolist() == [[1, 0]]
    lowered = 0.5 * np.exp(-2.0)
    assert kept[0].tolist() == pytest.approx([0.45 / (0.45 + lowered), lowered / (0.45 + lowered)], abs=1e-6)


@pytest.mark.parametrize(
    ("main", "counter"),
    [
        ({0: 0.6, 1: 0.05}, {0: 0.5, 2: 0.3}),  # 1 may have up to 0.2 under the counter-prompt
        ({0: 0.6, 1: 0.1}, {0: 0.595, 2: 0.4}),  # an unlisted token may be as likely as 1
        ({0: 0.9}, {0: 0.5, 1: 0.4}),  # fewer tokens than top-k keeps
        ({5: 0.4, 7: 0.2}, {5: 0.4, 7: 0.2}),  # token 3 may be as likely as 7, and would come before it
        ({5: 0.4, 7: 0.21}, {5: 0.4, 7: 0.21}),  # likewise, for a number that float32 rounds the other way
    ],
)
def test_lists_that_leave_it_open_certify_nothing(main, counter):
    assert certified(logs(main), [logs(counter)], D4, decay=100.0, floor=0.01) is None


def test_without_top_k_nothing_can_be_certified():
    with pytest.raises(ValueError, match="top-k"):
        certified({0: 0.0}, [], Sampling(top_k=0), decay=100.0, floor=0.01)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.floats(0.5, 6.0),
    counters=st.integers(0, 3),
    listed=st.lists(st.integers(0, 30), min_size=4, max_size=4),
    top_k=st.integers(1, 6),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    decay=st.sampled_from([0.0, 10.0, 100.0]),
    floor=st.sampled_from([0.0, 0.01]),
)
@example(
    seed=355381, sharpness=6.0, counters=0, listed=[5, 0, 0, 0], top_k=5, top_p=1.0, decay=0.0, floor=0.0
)
def test_what_is_certified_is_what_whole_distributions_give(
    seed, sharpness, counters, listed, top_k, top_p, decay, floor
):
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(40, generator=generator)
    noise = torch.randn(1 + counters, 40, generator=generator)
    p = torch.softmax(sharpness * (shared + 0.5 * noise), dim=1)
    lists = []
    for row, count in zip(p, listed, strict=False):
        top = row.topk(count)
        lists.append(dict(zip(top.indices.tolist(), top.values.log().tolist(), strict=True)))
    sampling = Sampling(top_k, top_p)
    choices = certified(lists[0], lists[1:], sampling, decay, floor)
    if choices is None:
        return
    largest = p[1:].amax(dim=0, keepdim=True) if counters else torch.zeros(1, 40)
    kept, tokens = truncate(self_debias(p[:1], largest, decay, floor), top_k, top_p)
    count = int((kept > 0).sum())
    assert choices[1].tolist() == tokens[:, :count].tolist()
    assert torch.allclose(choices[0], kept[:, :count], atol=1e-5)
