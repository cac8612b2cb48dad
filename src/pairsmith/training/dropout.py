"""Dropout of attention weights, which on a CPU costs more than all other random numbers of a step."""

from torch import nn

from pairsmith.core.errors import SettingsError

_NAMES = ("dropout", "attention_dropout", "attn_dropout")
"""Names of this dropout in attention modules of transformers: a number, or a module with one as ``p``."""


def set_attention_dropout(model: nn.Module, share: float) -> None:
    """Change the share of attention weights that is dropped in training, in place; 0 drops none.

    Without dropout, torch can compute attention block by block and need not keep the weights.

    Args:
        model: a model of transformers, or a module that contains one.
        share: the share that is dropped, in [0, 1).
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
