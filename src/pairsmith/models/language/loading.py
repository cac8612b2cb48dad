"""Loading a language model by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pairsmith.core.arguments import model_name
from pairsmith.core.errors import ModelError, SettingsError, redacted
from pairsmith.core.model_files import META, pick_device, pick_dtype
from pairsmith.core.model_names import DtypeName, model_revision
from pairsmith.models.language.remote import is_remote
from pairsmith.models.loading import opened

if TYPE_CHECKING:
    from pairsmith.models.language.transformers_backend import TransformersModel


def load_model(
    model: str | Path, *, device: str = "auto", dtype: DtypeName = "float32"
) -> "TransformersModel":
    """Load a causal language model whose next tokens can be steered (D3).

    Args:
        model: a folder, a Hub id, a GGUF file, ``embedded:smollm2-135m-instruct`` or ``pairsmith:tiny``.
        device: as for ``load_encoder``.
        dtype: number format of the weights, as for ``load_encoder``; probabilities are computed in float32.

    Returns:
        The model, for ``generate_pairs`` and ``generate_texts``. Its ``encode(text)`` returns a list of token
        ids, after those of the special tokens that the model expects before a text, and ``decode(ids)`` their
        text. Names of special tokens in the text, such as ``</s>``, are ordinary text.

    Raises:
        ModelError: the model cannot be loaded, or is no causal language model.
        SettingsError: there is no such device or number format, or the model is behind a server.
    """
    # Imported here, as transformers takes seconds, and the process that shares the work out decodes nothing.
    from pairsmith.models.language.packed_weights import packed
    from pairsmith.models.language.transformers_backend import TransformersModel

    name = model_name(model)
    if is_remote(name):
        raise SettingsError(
            f"model {redacted(name)}: a model behind a server cannot be loaded; the step generate writes "
            "with it, as a command or in a recipe"
        )
    tokenizer, network = load_causal(name, device=device, dtype=dtype)
    return TransformersModel(packed(network), tokenizer, name=name, revision=model_revision(name))


def load_causal(name: str, *, device: str = "auto", dtype: DtypeName = "float32") -> tuple[Any, Any]:
    """The tokenizer and the network of a causal language model, as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chosen = pick_device(device)
    number_format = getattr(torch, pick_dtype(dtype, chosen))
    with opened(name, "cannot be loaded as a causal language model: {}") as (where, local):
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local)
        network, report = AutoModelForCausalLM.from_pretrained(
            where,
            dtype=number_format,
            local_files_only=local,
            output_loading_info=True,
            device_map=META if chosen == META else None,
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"model {name}: its weights lack {missing[0]} ({len(missing)} in all), so it is not a causal "
            "language model; give one that was trained to continue text"
        )
    return tokenizer, network.to(chosen)
