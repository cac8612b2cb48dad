"""Changes that make a training on a CPU faster; elsewhere nothing changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

_SHARES = 2**16
"""Dropout probabilities are rounded to multiples of 1 / 65,536."""


T = TypeVar("T")
AsUsual = Callable[[Callable[[], T]], T]
"""Calls a function with the model's usual attention, as it may process more at once than training does."""


@contextmanager
def quick_training(model: nn.Module, device: str) -> Iterator[AsUsual[Any]]:
    """Make training ``model`` within this context faster on a CPU; elsewhere change nothing.

    Attention is computed in full, as torch's block-wise attention costs more time in the backward pass than
    it saves in the forward pass, and dropout makes four numbers where torch's makes one.
    """
    if device != "cpu":
        yield lambda call: call()
        return
    usual = [(config, config._attn_implementation) for config in _configs(model)]
    dropouts = [
        (module, name, each)
        for module in model.modules()
        for name, each in module.named_children()
        if type(each) is nn.Dropout
    ]

    def attend(quickly: bool) -> None:
        for config, attention in usual:
            config._attn_implementation = "eager" if quickly else attention

    def as_usual(call: Callable[[], T]) -> T:
        attend(quickly=False)
        try:
            return call()
        finally:
            attend(quickly=True)

    attend(quickly=True)
    for module, name, dropout in dropouts:
        setattr(module, name, QuickDropout(dropout.p))
    try:
        yield as_usual
    finally:
        attend(quickly=False)
        for module, name, dropout in dropouts:
            setattr(module, name, dropout)


def _configs(model: nn.Module) -> list[PreTrainedConfig]:
    """The configurations that decide the attention of all transformers models in it, outer ones first.

    A layer's configuration may differ from its model's: an encoder that was given a decoder has a new one.
    There are none if the attention of one of the models cannot be changed.
    """
    models = [each for each in model.modules() if isinstance(each, PreTrainedModel)]
    if not all(each._can_set_attn_implementation() for each in models):
        return []
    found = {id(config): config for each in models for config in map(_config, each.modules()) if config}
    return list(found.values())


def _config(module: nn.Module) -> PreTrainedConfig | None:
    config = getattr(module, "config", None)
    return config if isinstance(config, PreTrainedConfig) else None


class QuickDropout(nn.Dropout):
    """Dropout with 16 random bits for each value; the generator makes 64 at once."""

    def forward(self, values: Tensor) -> Tensor:
        """Set a share ``p`` of values of any shape and floating dtype to 0; divide the others by 1 - p."""
        dropped = round(self.p * _SHARES)
        if not self.training or dropped == 0:
            return values
        if dropped == _SHARES:
            return values * 0
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        chance = words.view(torch.int16)[: values.numel()].view(values.shape)
        return values.masked_fill(chance < dropped - _SHARES // 2, 0) * (_SHARES / (_SHARES - dropped))
