"""A language model by name."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from pairsmith.errors import ModelError
from pairsmith.lm.transformers_backend import TransformersModel
from pairsmith.modelnames import DtypeName, first_line, model_revision, not_on_hub, resolve_model


def load_model(name: str, *, device: str = "auto", dtype: DtypeName = "float32") -> TransformersModel:
    """Load a causal language model for decoding.

    Args:
        name: ``pairsmith:tiny``, a folder in the format of transformers, or a Hub id.
        device: ``auto`` (a GPU where there is one), or any of torch's names.
        dtype: of the weights; distributions are always computed in float32.

    Raises:
        ModelError: there is no such model, it has no tokenizer, or it is not a causal language model.
        MissingExtra: an embedded model whose package is not installed.
    """
    where = resolve_model(name)
    if Path(where).is_dir():
        _check_folder(Path(where), name)
    tokenizer, model, missing = _load(name, where, getattr(torch, dtype))
    if missing:
        raise ModelError(
            f"model {name}: its weights lack {missing[0]} ({len(missing)} in all), so it is no causal "
            "language model; give one that was trained to continue text"
        )
    model.to(_device(device))
    return TransformersModel(model, tokenizer, name=name, revision=model_revision(name))


def _load(name: str, where: str, dtype: torch.dtype) -> tuple[Any, Any, list[str]]:
    """The tokenizer, the model, and the names of the weights that its files lack."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    local = Path(where).is_dir()
    bars = logging.is_progress_bar_enabled()
    if local:  # a download from the Hub keeps its bar: that one can take long
        logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local)
        model, report = AutoModelForCausalLM.from_pretrained(
            where, dtype=dtype, local_files_only=local, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        if not local:
            raise ModelError(not_on_hub(name, error)) from error
        raise ModelError(
            f"model {name}: cannot be loaded as a causal language model: {first_line(error)}"
        ) from error
    finally:
        if local and bars:
            logging.enable_progress_bar()
    return tokenizer, model, sorted(report["missing_keys"])


def _check_folder(folder: Path, name: str) -> None:
    """Say in words what is missing from a folder; loading would say it in a page of traceback."""
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"model {name}: the folder holds no config.json; give a folder saved by transformers"
        )
    if not any(
        (folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
    ):
        raise ModelError(
            f"model {name}: the folder holds no tokenizer (tokenizer.json); "
            "save it there with tokenizer.save_pretrained(FOLDER)"
        )


def _device(device: str) -> str:
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
