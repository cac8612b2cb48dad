"""Cross-encoders in short number formats."""

import numpy as np
import pytest
import torch
from tests.tiny_bart import make_bart

from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs

pytestmark = pytest.mark.slow

INPUTS = [f"who plays the instrument number {number}?" for number in range(200)]
OUTPUTS = [f"somebody does, {number * 7 % 200} times" for number in range(200)]


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_scores_in_a_short_format_keep_their_digits(kind, tiny_gpt2, tmp_path):
    """A bias brings all scores near 3, where numbers of bfloat16 lie 1/64 apart."""
    base = tiny_gpt2 if kind == "gpt2" else make_bart(tmp_path / "bart")
    scores = {}
    for dtype in ("float32", "bfloat16"):
        cross = load_cross_encoder(str(base), device="cpu", dtype=dtype, fresh_head=True, seed=1)
        last = [module for module in cross.model.modules() if getattr(module, "out_features", 0) == 1][-1]
        if last.bias is not None:
            with torch.no_grad():
                last.bias.fill_(3)
        scores[dtype] = score_pairs(cross, INPUTS, OUTPUTS)
    assert len(np.unique(scores["bfloat16"])) > 150
    assert np.abs(scores["bfloat16"] - scores["float32"]).max() < 0.05
