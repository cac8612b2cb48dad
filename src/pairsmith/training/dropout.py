"""Dropout of attention, which costs a processor more than the rest of a step's chance."""

from torch import nn

from pairsmith.errors import SettingsError

_NAMES = ("dropout", "attention_dropout", "attn_dropout")
"""What models of transformers call it in their attention: a number, or a module that holds one as ``p``."""


def set_attention_dropout(model: nn.Module, share: float) -> None:
    """Drop another share of the attention weights in training, in place; 0 drops none.

    Without it, torch multiplies queries and keys block by block and keeps no weights.

    Args:
        model: of transformers, or one that holds such.
        share: in [0, 1).

    Raises:
        SettingsError: the model's attention has none that could be set.
    """
    found = 0
    for module in model.modules():
        inside = [each for each in module.modules() if type(each).__name__.endswith("Attention")]
        if inside != [module]:  # another module, or one around the attention, whose dropout is another
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
