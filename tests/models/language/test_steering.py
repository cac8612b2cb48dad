"""What a group may draw, from candidates and from the whole vocabulary."""

from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairsmith.models.language.combine import contrast, guidance, self_debias
from pairsmith.models.language.sampling import Sampling, truncate
from pairsmith.models.language.steering import full_distributions, normalisers, token_choices

VOCAB = 700
RULES = [
    partial(self_debias, decay=100.0, floor=0.01),
    partial(self_debias, decay=100.0, floor=0.0),
    partial(contrast, strength=0.5, plausible=0.1),
    partial(guidance, scale=1.5),
]


def some_rows(seed, sharpness, ties):
    """Logits of nine rows, alike as those of prompts about one text are, and four groups of them."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(VOCAB, generator=generator) + 0.5 * torch.randn(9, VOCAB, generator=generator)
    logits = sharpness * logits
    if ties:
        logits = logits.round()
    return logits, torch.tensor([[0, -1, -1], [1, 2, -1], [3, 4, 5], [6, 7, 8]])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.floats(0.1, 8.0),
    ties=st.booleans(),
    rule=st.sampled_from(RULES),
    top_k=st.sampled_from([0, 1, 5, 20]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
)
@example(seed=479001600, sharpness=4.828125, ties=False, rule=RULES[0], top_k=5, top_p=0.9)
def test_candidates_leave_what_the_whole_vocabulary_leaves(seed, sharpness, ties, rule, top_k, top_p):
    logits, rows = some_rows(seed, sharpness, ties)
    sampling = Sampling(top_k, top_p)
    kept, tokens = token_choices(logits, rows, rule, sampling)
    exact, _ = truncate(full_distributions(logits, rows, rule)[1], top_k, top_p)
    # Of two tokens that are equally likely but for rounding, either may be kept.
    for mine, which, whole in zip(kept, tokens, exact, strict=True):
        width = max(len(mine), len(whole))
        mine, whole = (torch.nn.functional.pad(row, (0, width - len(row))) for row in (mine, whole))
        assert len(set(which.tolist())) == len(which) or int((mine > 0).sum()) < len(which)
        # Sums in another order may move the border of top-p by one token whose share is a rounding away.
        assert torch.allclose(mine, whole, atol=2e-5) or int((mine > 0).sum() - (whole > 0).sum()) in (-1, 1)


def test_the_usual_case_needs_no_second_look(monkeypatch):
    logits, rows = some_rows(1, 3.0, ties=False)
    monkeypatch.setattr("pairsmith.models.language.steering._over_vocabulary", None)
    kept, _ = token_choices(logits, rows, RULES[0], Sampling(5, 0.9))
    assert kept.sum(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_equally_likely_tokens_are_left_to_the_whole_vocabulary():
    logits = torch.zeros(1, VOCAB)
    _, tokens = token_choices(logits, torch.tensor([[0]]), RULES[0], Sampling(3, 1.0))
    assert tokens[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_normalisers(dtype):
    logits = (4 * torch.randn(40, VOCAB, generator=torch.Generator().manual_seed(2))).to(dtype)
    exact = logits.double().logsumexp(1)
    assert torch.allclose(normalisers(logits).double().sum(1), exact, atol=1e-6)


def test_large_logits_lose_no_digits():
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3)) - 100
    kept, tokens = token_choices(logits, torch.tensor([[0]]), RULES[0], Sampling(5, 1.0))
    exact = logits.double().softmax(1).gather(1, tokens)
    assert torch.allclose(kept.double(), exact / exact.sum(), rtol=5e-7, atol=0)


def test_logits_that_are_no_numbers_stay_so():
    logits = torch.full((1, VOCAB), torch.nan)
    kept, _ = token_choices(logits, torch.tensor([[0]]), RULES[0], Sampling(5, 0.9))
    assert not bool(kept.isfinite().all())
