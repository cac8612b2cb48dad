"""Faster attention, dropout and embedding gradients on a CPU, and the attention dropout of a training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from pairsmith.core.errors import SettingsError
from pairsmith.training.embedding_gradients import kept_vocabulary_gradients
from pairsmith.training.processes import Processes

_LEVELS = 2**16
"""Dropout probabilities are rounded to multiples of 1 / 65,536."""

_NAMES = ("dropout", "attention_dropout", "attn_dropout")
"""Names of this dropout in attention modules of transformers: a number, or a module with one as ``p``."""

T = TypeVar("T")
AsUsual = Callable[[Callable[[], T]], T]
"""Calls a function with the model's usual attention, as it may process more at once than training does."""


@contextmanager
def quick_training(model: nn.Module, device: str) -> Iterator[AsUsual[Any]]:
    """Make training ``model`` within this context faster on a CPU; elsewhere change nothing.

    Attention is computed in full, as torch's block-wise attention costs more time in the backward pass than
    it saves in the forward pass, dropout makes four numbers where torch's makes one, and gradients of the
    vocabulary's vectors are kept in the same memory, unless they have to be sent to other processes.
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
    kept = kept_vocabulary_gradients(model) if Processes.here().size == 1 else nullcontext()
    try:
        with kept:
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
    configs = (getattr(module, "config", None) for each in models for module in each.modules())
    found = {id(config): config for config in configs if isinstance(config, PreTrainedConfig)}
    return list(found.values())


class QuickDropout(nn.Dropout):
    """Dropout with 16 random bits for each value; the generator makes 64 at once."""

    def forward(self, values: Tensor) -> Tensor:
        """Set a share ``p`` of values of any shape and floating dtype to 0; divide the others by 1 - p."""
        dropped = round(self.p * _LEVELS)
        if not self.training or dropped == 0:
            return values
        if dropped == _LEVELS:
            return values * 0
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        chance = words.view(torch.int16)[: values.numel()].view(values.shape)
        return values.masked_fill(chance < dropped - _LEVELS // 2, 0) * (_LEVELS / (_LEVELS - dropped))


def set_attention_dropout(model: nn.Module, share: float) -> None:
    """Change the share of attention weights, in [0, 1), that is dropped in training, in place; 0 drops none.

    ``model`` is one of transformers, or a module that contains one. This dropout costs more on a CPU than all
    other random numbers of a step; without it, torch can compute attention block by block and need not keep
    the weights.
    """
    found = 0
    for module in model.modules():
        inside = [each for each in module.modules() if type(each).__name__.endswith("Attention")]
        if inside != [module]:  # no attention, or a module around it with another dropout
            continue
        for name in _NAMES:
            value = getattr(module, name, None)
            if isinstance(value, nn.Dropout):
                value.p = share
                found += 1
            elif isinstance(value, float):
                setattr(module, name, share)
                found += 1
    if not found:
        raise SettingsError(
            f"--attention-dropout {share:g}: no dropout was found in the attention of this base; leave the "
            "setting out"
        )
