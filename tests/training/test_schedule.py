"""The learning rate and the weight decay of each step, by their definitions (D10, M9, Q5)."""

import math

import pytest
import torch
from torch import nn

from pairsmith.training.fit import TrainingTask, same_rows, train_at_each_rate
from pairsmith.training.options import FewShotOptions

pytestmark = pytest.mark.slow


class Line(nn.Module):
    """Learns a number; its loss also depends on the weights of a layer and of a normalisation."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.norm = nn.LayerNorm(2)

    def forward(self, numbers):
        rows = self.norm(torch.stack([numbers, numbers**2], dim=1))
        return {"loss": (self.layer(rows).squeeze(1) - numbers).square().mean()}


@pytest.mark.parametrize(("steps", "warmup"), [(10, 0.1), (13, 0.3), (25, 0.1), (7, 0.0), (1, 0.5)])
def test_the_rate_rises_over_the_share_of_the_steps_rounded_up_and_falls_to_0(steps, warmup, monkeypatch):
    rates, decays = [], []
    step = torch.optim.AdamW.step

    def recorded(self, *args, **named):
        rates.append(self.param_groups[0]["lr"])
        decays.append({group["weight_decay"]: len(group["params"]) for group in self.param_groups})
        return step(self, *args, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    options = FewShotOptions(
        base="b",
        steps=steps,
        warmup=warmup,
        batch_size=4,
        learning_rate=[3e-5],
        device="cpu",
        dtype="float32",
    )
    task = TrainingTask(
        9, same_rows([float(n) for n in range(9)]), lambda rows: {"numbers": torch.tensor(rows)}, None, "none"
    )
    train_at_each_rate(lambda: (Line(), task), options)
    rising = min(math.ceil(warmup * steps), steps - 1)  # a single step is no warm-up, whose first rate is 0
    expected = [3e-5 * (n / rising if n < rising else (steps - n) / (steps - rising)) for n in range(steps)]
    assert rates == pytest.approx(expected, rel=1e-9)
    assert decays == [{0.01: 1, 0.0: 3}] * steps  # biases and the normalisation do not decay
