"""What the loaders of models share: finding a model's files, errors in one line, and padding."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_files import check_model_folder, quiet_loading
from pairsmith.core.model_names import not_on_hub, resolve_model


@contextmanager
def opened(model: str, fault: str, *, modular: bool = False) -> Iterator[tuple[str, bool]]:
    """Where ``model`` is, a folder or a Hub id, and whether it is a folder; it is loaded inside the context.

    Loading is quiet there, and what a library raises becomes a ``ModelError``: ``fault``, with the first line
    of the library's message for ``{}``. With ``modular``, a folder may be one of sentence-transformers.
    """
    where = resolve_model(model)
    local = Path(where).is_dir()
    if local and not (modular and (Path(where) / "modules.json").is_file()):
        check_model_folder(Path(where), model)
    try:
        with quiet_loading(local=local):
            yield where, local
    except ModelError:
        raise
    except Exception as error:  # whatever a library raises on damaged or unknown files
        if not local:
            raise ModelError(not_on_hub(model, error)) from error
        raise ModelError(f"model {model}: {fault.format(first_line(error))}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make the weights that are random inside the context depend on ``seed`` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def refuse_missing(model: str, missing: list[str]) -> None:
    """Check that no weight is missing that the model's configuration asks for."""
    if missing:
        raise ModelError(
            f"model {model}: its weights lack {missing[0]} ({len(missing)} missing in all), "
            "so it does not match its config.json"
        )


def pad_on_the_right(model: str, tokenizer: Any, config: Any) -> None:
    """Pad on the right, with the end token where a causal model has no padding token.

    Padding is masked out, so which token it is does not matter. The side does: models with learned
    positions count them from the left end, and BART's decoder is not told where padding is.
    """
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        stand_in = tokenizer.eos_token or tokenizer.unk_token
        if stand_in is None:
            raise ModelError(f"model {model}: its tokenizer has neither a padding nor an end token")
        tokenizer.pad_token = stand_in
    config.pad_token_id = tokenizer.pad_token_id  # trainers warn of a different one
