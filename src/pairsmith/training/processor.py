"""What a training on a processor does otherwise than one on a GPU, as it takes less time there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

_SHARES = 2**16
"""A share to be dropped is rounded to a multiple of 1 / 65,536."""


T = TypeVar("T")
AsUsual = Callable[[Callable[[], T]], T]
"""Calls what it is given while the model attends as usual: it may read more at once than a training does."""


@contextmanager
def quick_training(model: nn.Module, device: str) -> Iterator[AsUsual[Any]]:
    """Within it a training of ``model`` on a processor takes less time; elsewhere nothing changes.

    Attention is written out, as torch's block-wise one takes longer backward than it saves forward, and
    dropout draws four numbers where torch's draws one.
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
    """By what the models of transformers in it attend, outer ones first.

    A layer's may be another one than its model's: an encoder that was given a decoder has a new one.
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
    """Dropout that takes its chance from 16 bits a number; the generator makes 64 at once."""

    def forward(self, values: Tensor) -> Tensor:
        """Of values of any shape and floating dtype a share ``p`` is 0, the others are divided by 1 - p."""
        dropped = round(self.p * _SHARES)
        if not self.training or dropped == 0:
            return values
        if dropped == _SHARES:
            return values * 0
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        chance = words.view(torch.int16)[: values.numel()].view(values.shape)
        return values.masked_fill(chance < dropped - _SHARES // 2, 0) * (_SHARES / (_SHARES - dropped))
