"""Faster attention, dropout and embedding gradients on a CPU, and the attention dropout of a training."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from pairsmith.core.errors import SettingsError
from pairsmith.training.embedding_gradients import kept_vocabulary_gradients
from pairsmith.training.processes import Processes

_LEVELS = 2**16
"""Dropout probabilities are rounded to multiples of 1 / 65,536."""

LONG = 256
"""Largest number of tokens over which attention is computed in full while training.

Full attention keeps its weights for the backward pass, so that memory and time grow with the square of the
length. With 2,048 tokens, a step of SmolLM2 takes two to three times as long as with block-wise attention,
and 7 GB more.
"""
_TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
"""Arguments of models of transformers that hold the tokens, ``(n, tokens)`` or ``(n, tokens, d)``."""

_NAMES = ("dropout", "attention_dropout", "attn_dropout")
"""Names of the attention dropout in modules of transformers: a number, or an ``nn.Dropout``."""

T = TypeVar("T")
AsUsual = Callable[[Callable[[], T]], T]
"""Calls a function, such as an evaluation, with the model's usual attention instead of that of training."""


@contextmanager
def quick_training(model: nn.Module, device: str) -> Iterator[AsUsual[Any]]:
    """Make training ``model`` within this context faster on a CPU; elsewhere change nothing.

    Attention over a few tokens is computed in full (``_QuickAttention``). Dropout makes four random numbers
    from each 64-bit number that torch generates (``QuickDropout``). Gradients of token embeddings are kept in
    the same memory step after step, unless they have to be sent to other processes.
    """
    if device != "cpu":
        yield lambda call: call()
        return
    dropouts = [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) is nn.Dropout
    ]
    for module, name, dropout in dropouts:
        setattr(module, name, QuickDropout(dropout.p))
    kept = kept_vocabulary_gradients(model) if Processes.current().size == 1 else nullcontext()
    try:
        with kept, _QuickAttention(model) as attention:
            yield attention.as_usual
    finally:
        for module, name, dropout in dropouts:
            setattr(module, name, dropout)


class _QuickAttention:
    """A context in which a model computes attention over at most ``LONG`` tokens in full.

    Attention over more tokens is computed block by block, as the model does outside of trainings. For short
    texts, torch's block-wise attention costs more time in the backward pass than it saves in the forward
    pass. Torch's block-wise attention has no dropout of attention weights; a model with such dropout computes
    all attention in full. For cross-attention the length of the decoder's text decides. Models whose layers
    are checkpointed are not supported: a layer that is recomputed in the backward pass would use the choice
    that was made for the last call.
    """

    def __init__(self, model: nn.Module) -> None:
        self._configs = _configs(model)
        self._usual = {id(config): config._attn_implementation for config in self._configs}
        self._always_full = any(share for _, _, share in _attention_dropouts(model))
        self._quick = True
        modules = model.modules() if self._configs else ()
        self._configs_of = {
            module: _configs(module) for module in modules if isinstance(module, PreTrainedModel)
        }

    def __enter__(self) -> Self:
        # A lambda, as copying a model copies its hooks, and a bound method with its object.
        self._hooks = [
            transformer.register_forward_pre_hook(
                lambda *call: self._choose_by_length(*call), with_kwargs=True
            )
            for transformer in self._configs_of
        ]
        self._attend(self._configs, in_full=True)
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._attend(self._configs, in_full=False)

    def as_usual(self, call: Callable[[], T]) -> T:
        """Call a function with the model's usual attention."""
        self._quick = False
        self._attend(self._configs, in_full=False)
        try:
            return call()
        finally:
            self._quick = True
            self._attend(self._configs, in_full=True)

    def _choose_by_length(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a module is called, choose its attention by the number of its tokens."""
        inputs = (kwargs.get(name) for name in _TOKENS)
        tokens = next((value for value in inputs if value is not None), args[0] if args else None)
        if self._quick and tokens is not None:
            in_full = self._always_full or tokens.shape[1] <= LONG
            self._attend(self._configs_of.get(module, ()), in_full=in_full)

    def _attend(self, configs: Iterable[PreTrainedConfig], *, in_full: bool) -> None:
        for config in configs:
            config._attn_implementation = "eager" if in_full else self._usual[id(config)]


def _configs(model: nn.Module) -> list[PreTrainedConfig]:
    """The configurations that decide the attention of all transformers models in ``model``, outer ones first.

    A layer's configuration may differ from its model's: an encoder that was given a decoder has a new one.
    The list is empty if the attention of one of the models cannot be changed.
    """
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    if not all(transformer._can_set_attn_implementation() for transformer in models):
        return []
    configs = (getattr(module, "config", None) for transformer in models for module in transformer.modules())
    by_id = {id(config): config for config in configs if isinstance(config, PreTrainedConfig)}
    return list(by_id.values())


class QuickDropout(nn.Dropout):
    """Dropout with 16 random bits for each value, so that a 64-bit random number serves four values."""

    def forward(self, values: Tensor) -> Tensor:
        """Set a share ``p`` of values of any shape and floating dtype to 0; divide the rest by 1 - p."""
        dropped = round(self.p * _LEVELS)
        if not self.training or dropped == 0:
            return values
        if dropped == _LEVELS:
            return values * 0
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        chance = words.view(torch.int16)[: values.numel()].view(values.shape)
        return values.masked_fill(chance < dropped - _LEVELS // 2, 0) * (_LEVELS / (_LEVELS - dropped))


def set_attention_dropout(model: nn.Module, share: float) -> None:
    """Set the share of attention weights, in [0, 1), that ``model`` drops in training, in place.

    ``model`` is a model of transformers, or a module that contains one. On a CPU, this dropout costs more
    than all other random numbers of a step. Without it, torch can compute attention block by block and need
    not keep the attention weights.
    """
    dropouts = list(_attention_dropouts(model))
    for module, name, _ in dropouts:
        value = getattr(module, name)
        if isinstance(value, nn.Dropout):
            value.p = share
        else:
            setattr(module, name, share)
    if not dropouts:
        raise SettingsError(
            f"attention_dropout {share:g}: no dropout was found in the attention of this base; leave the "
            "setting out"
        )


def _attention_dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str, float]]:
    """The attention modules of a model, each with the name of its dropout and the share that it drops."""
    for module in model.modules():
        inside = [layer for layer in module.modules() if type(layer).__name__.endswith("Attention")]
        if inside != [module]:  # no attention, or a module around it with another dropout
            continue
        for name in _NAMES:
            value = getattr(module, name, None)
            if isinstance(value, nn.Dropout):
                yield module, name, value.p
            elif isinstance(value, float):
                yield module, name, value
