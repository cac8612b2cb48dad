"""A language model by name."""

from pathlib import Path

import torch

from pairsmith.encoders.names import DtypeName, first_line, model_revision, resolve_model
from pairsmith.errors import ModelError
from pairsmith.lm.transformers_backend import TransformersModel


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
    from transformers import AutoModelForCausalLM, AutoTokenizer

    local = Path(where).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local)
        model = AutoModelForCausalLM.from_pretrained(
            where, dtype=getattr(torch, dtype), local_files_only=local
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"model {name}: cannot be loaded as a causal language model: {first_line(error)}"
        ) from error
    model.to(_device(device))
    return TransformersModel(model, tokenizer, name=name, revision=model_revision(name))


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
