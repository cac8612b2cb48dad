"""Loading a language model by name."""

from pathlib import Path
from typing import Any

import torch

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_files import check_model_folder, pick_device, pick_dtype, quiet_loading
from pairsmith.core.model_names import DtypeName, model_revision, not_on_hub, resolve_model
from pairsmith.models.language.packing import packed
from pairsmith.models.language.transformers_backend import TransformersModel


def load_model(name: str, *, device: str = "auto", dtype: DtypeName = "float32") -> TransformersModel:
    """Load a causal language model for decoding.

    Args:
        name: ``pairsmith:tiny``, a folder in the format of transformers, or a Hub id.
        device: ``auto`` (a GPU where there is one), or any of torch's names.
        dtype: number format of the weights, as for ``pick_dtype``; distributions are computed in float32.
    """
    tokenizer, network = load_causal(name, device=device, dtype=dtype)
    return TransformersModel(packed(network), tokenizer, name=name, revision=model_revision(name))


def load_causal(name: str, *, device: str = "auto", dtype: DtypeName = "float32") -> tuple[Any, Any]:
    """The tokenizer and the network of a causal language model, as transformers loads them.

    Arguments and errors as for ``load_model``.
    """
    where = resolve_model(name)
    chosen = pick_device(device)
    local = Path(where).is_dir()
    if local:
        check_model_folder(Path(where), name)
    tokenizer, model, missing = _load(name, where, getattr(torch, pick_dtype(dtype, chosen)), local=local)
    if missing:
        raise ModelError(
            f"model {name}: its weights lack {missing[0]} ({len(missing)} in all), so it is not a causal "
            "language model; give one that was trained to continue text"
        )
    return tokenizer, model.to(chosen)


def _load(name: str, where: str, dtype: torch.dtype, *, local: bool) -> tuple[Any, Any, list[str]]:
    """The tokenizer, the model, and the names of the weights that its files lack."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_loading(local=local):
            tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local)
            model, report = AutoModelForCausalLM.from_pretrained(
                where, dtype=dtype, local_files_only=local, output_loading_info=True
            )
    except Exception as error:  # whatever a library raises on a damaged or unknown model
        if not local:
            raise ModelError(not_on_hub(name, error)) from error
        raise ModelError(
            f"model {name}: cannot be loaded as a causal language model: {first_line(error)}"
        ) from error
    return tokenizer, model, sorted(report["missing_keys"])
