"""Functions that all loaders of models use: for a model's files, for errors in one line, and for padding."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.hub import hub_or_cache
from pairsmith.core.model_files import check_model_folder, check_module_folder, quiet_loading
from pairsmith.core.model_names import not_on_hub, resolve_model

# Since 5.24 transformers calls this argument ``cache`` and takes both names; before, it knew this one only.
warnings.filterwarnings("ignore", message="`past_key_values` is deprecated", category=FutureWarning)


@contextmanager
def opened(model: str, fault: str, *, modular: bool = False) -> Iterator[tuple[str, bool]]:
    """Where ``model`` is, a folder or a Hub id, and whether it is a folder; it is loaded inside the context.

    Loading is quiet there, and what a library raises becomes a ``ModelError``: ``fault``, with the first line
    of the library's message for ``{}``. With ``modular``, a folder may be one of sentence-transformers.
    """
    where = resolve_model(model)
    local = Path(where).is_dir()
    if local:
        is_modular = modular and (Path(where) / "modules.json").is_file()
        check_folder = check_module_folder if is_modular else check_model_folder
        check_folder(Path(where), model)
    try:
        with quiet_loading(local=local), nullcontext() if local else hub_or_cache():
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
    """Refuse a model whose files lack a weight that its configuration requires."""
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
            raise ModelError(
                f"model {model}: its tokenizer has neither a padding nor an end token; name one of them in "
                "its tokenizer_config.json"
            )
        tokenizer.pad_token = stand_in
    config.pad_token_id = tokenizer.pad_token_id  # trainers warn of a different one


def mark_pairs(tokenizer: Any) -> None:
    """Have a tokenizer put a line break between two texts, in place, unless it puts special tokens there.

    Those of most decoder-only models put nothing there, so that nothing says where the second text begins.
    The line break is saved with the tokenizer. It belongs to neither text, and is never cut off. A tokenizer
    that knows no line breaks, as BERT's, is left as it is.
    """
    from tokenizers.processors import TemplateProcessing

    pair, line = tokenizer("a", "b"), tokenizer("\n", add_special_tokens=False)["input_ids"]
    parts, tokens = pair.sequence_ids(0), pair["input_ids"]
    texts = [place for place, part in enumerate(parts) if part is not None]
    begin, end = texts[0], texts[-1] + 1
    if None in parts[begin:end] or not line or tokenizer.unk_token_id in line:
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
