"""Functions that the loaders of models share: locating a model's files, one-line errors, and padding."""

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.hub import hub_or_cache
from pairsmith.core.model_files import check_model_folder, check_module_folder, damage, quiet_loading
from pairsmith.core.model_names import not_on_hub, resolve_model

# Since 5.24 transformers calls this argument ``cache`` and accepts both names; older versions know only this.
warnings.filterwarnings("ignore", message="`past_key_values` is deprecated", category=FutureWarning)


_LOADING = threading.RLock()


@contextmanager
def opened(model: str, fault: str, *, modular: bool = False) -> Iterator[tuple[str, bool]]:
    """A context in which to load ``model``; yields its folder or Hub id, and whether it is a folder.

    Inside the context libraries show no progress bars, and their exceptions are converted to ``ModelError``.
    Other threads that load a model wait, as transformers changes settings of the process while it loads one.

    Args:
        model: the name of the model.
        fault: the message of the ``ModelError``, with ``{}`` for the first line of the library's message; a
            damaged file of a folder is named in place of it.
        modular: whether the model may be a folder of sentence-transformers with several modules.
    """
    where = resolve_model(model)
    local = Path(where).is_dir()
    if local:
        is_modular = modular and (Path(where) / "modules.json").is_file()
        check_folder = check_module_folder if is_modular else check_model_folder
        check_folder(Path(where), model)
    try:
        with _LOADING, quiet_loading(local=local), nullcontext() if local else hub_or_cache():
            yield where, local
    except ModelError:
        raise
    except Exception as error:  # libraries raise many types of exceptions for damaged or unknown files
        if not local:
            raise ModelError(not_on_hub(model, error)) from error
        raise ModelError(
            f"model {model}: {damage(Path(where)) or fault.format(first_line(error))}"
        ) from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which random weights depend on ``seed`` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def refuse_missing(model: str, missing: list[str]) -> None:
    """Raise a ``ModelError`` if weights of the model's configuration are missing from its files."""
    if missing:
        raise ModelError(
            f"model {model}: its weights lack {missing[0]} ({len(missing)} missing in all), "
            "so it does not match its config.json"
        )


def pad_on_the_right(model: str, tokenizer: Any, config: Any) -> None:
    """Have the tokenizer pad on the right; without a padding token that the model knows, with the end token.

    A tokenizer may have got a padding token for which the model has no vector. Padding is masked, so it does
    not matter which token is used. The side matters: learned positions are counted from the left, and BART's
    decoder has no mask of the padding.
    """
    tokenizer.padding_side = "right"
    known_tokens = getattr(config, "vocab_size", None) or math.inf
    if tokenizer.pad_token is None or tokenizer.pad_token_id >= known_tokens:
        substitute = tokenizer.eos_token or tokenizer.unk_token
        if substitute is None:
            raise ModelError(
                f"model {model}: its tokenizer has neither a padding nor an end token; name one of them in "
                "its tokenizer_config.json"
            )
        tokenizer.pad_token = substitute
    config.pad_token_id = tokenizer.pad_token_id  # trainers warn of a different one


def mark_pairs(tokenizer: Any) -> None:
    """Make a tokenizer put a line break between the two texts of a pair, if it puts no special token there.

    The tokenizers of most decoder-only models put nothing between them, so that a model could not tell where
    the second text begins. The tokenizer is changed in place, and the line break is saved with it. It belongs
    to neither text and is never truncated. A tokenizer without a token for line breaks, such as BERT's, is
    not changed.
    """
    from tokenizers.processors import TemplateProcessing

    line = tokenizer("\n", add_special_tokens=False)["input_ids"]
    if not line or tokenizer.unk_token_id in line:
        return
    pair = tokenizer("\n", "\n")  # not letters, for which a tokenizer of another script may have no tokens
    parts, tokens = pair.sequence_ids(0), pair["input_ids"]
    in_texts = [index for index, part in enumerate(parts) if part is not None]
    begin, end = in_texts[0], in_texts[-1] + 1
    if None in parts[begin:end]:
        return
    pieces = {"<start>": tokens[:begin], "<line>": line, "<end>": tokens[end:]}
    present = [name for name, ids in pieces.items() if ids]

    def template(*names: str) -> str:
        return " ".join(name for name in names if name in {"$A", "$B:1", *present})

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=template("<start>", "$A", "<end>"),
        pair=template("<start>", "$A", "<line>", "$B:1", "<end>"),
        special_tokens=[
            {"id": name, "ids": pieces[name], "tokens": tokenizer.convert_ids_to_tokens(pieces[name])}
            for name in present
        ],
    )
