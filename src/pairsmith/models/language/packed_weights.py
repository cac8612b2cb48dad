"""Weights that are packed for the CPU once, instead of at every matrix product.

On a CPU, each of torch's matrix products first rearranges the blocks of the weight, which takes a quarter of
the time of a decoding step. Here linear layers are replaced by layers whose weights already have the layout
that oneDNN needs; an activation that follows such a layer is fused with it. Results stay the same except for
rounding. A packed model can only decode: it cannot be saved, copied or trained.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers.activations import FastGELUActivation, GELUTanh, NewGELUActivation
from transformers.pytorch_utils import Conv1D

from pairsmith.core.errors import ModelError
from pairsmith.models.language.transformers_backend import SHARED_ATTENTION_TYPES

_OPS = torch.ops.mkldnn
"""Not part of torch's documented interface: where an operator is missing, nothing is packed."""
PACKED_ROWS = 256
"""The batch size, in rows, that the layout is optimised for; other sizes work as well."""
TANH_GELUS = (NewGELUActivation, FastGELUActivation, GELUTanh)
"""Activations that compute the same formula, written in different ways."""
FIRST_AND_ACTIVATION = (("c_fc", "act"), ("dense_h_to_4h", "act"), ("fc1", "activation_fn"))
"""Names of a block's first linear layer and the activation after it, in GPT-2, GPT-NeoX, and Phi and OPT."""


class PackedLinear(nn.Module):
    """A linear layer with a packed weight; see the module's docstring."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, gelu: bool = False) -> None:
        super().__init__()
        self.out_features = weight.shape[0]
        self._packed = _OPS._reorder_linear_weight(weight.detach().contiguous(), PACKED_ROWS)
        self._bias = None if bias is None else bias.detach()
        self._then: tuple[str, list[float], str] = ("gelu", [], "tanh") if gelu else ("none", [], "")

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: torch cannot read the values of a packed weight.

        Raises:
            ModelError: in any case.
        """
        raise ModelError(
            "a language model whose weights are packed for the CPU cannot be pickled or copied; load it "
            "again where it is needed, such as in the other process, with pairsmith.load_language_model"
        )

    def forward(self, states: Tensor) -> Tensor:
        """Map ``(…, in)`` to ``(…, out)``."""
        product: Tensor = _OPS._linear_pointwise(states, self._packed, self._bias, *self._then)
        return product


def packed(model: Any) -> Any:
    """The model with packed linear layers, if the model and torch allow it; the layers have no gradients."""
    weight = next(model.parameters())
    if (
        weight.device.type != "cpu"
        or model.config.model_type not in SHARED_ATTENTION_TYPES
        or not _can_pack(weight.dtype)
    ):
        return model
    for module in model.modules():
        for first, activation in FIRST_AND_ACTIVATION:
            parts = _linear(getattr(module, first, None))
            if parts and isinstance(getattr(module, activation, None), TANH_GELUS):
                setattr(module, first, PackedLinear(*parts, gelu=True))
                setattr(module, activation, nn.Identity())
    for module in list(model.modules()):
        for name, child in module.named_children():
            if parts := _linear(child):
                setattr(module, name, PackedLinear(*parts))
    return model


def _linear(module: Any) -> tuple[Tensor, Tensor | None] | None:
    """Weight, ``(out, in)``, and bias of exactly an ``nn.Linear`` or ``Conv1D``; None for other modules."""
    if type(module) is nn.Linear:
        return module.weight, module.bias
    if type(module) is Conv1D:
        return module.weight.t(), module.bias
    return None


def _can_pack(dtype: torch.dtype) -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch has no type here
    needed = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if not available or not all(hasattr(_OPS, op) for op in needed):
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and bool(_OPS._is_mkldnn_bf16_supported()))
