"""A model's files and device: its weights, what its folder must contain, and where it runs.

All loaders use this module, so that the same fault has the same message. Torch and transformers are
imported inside functions, as settings import this module through ``model_names``.
"""

import ctypes
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.paths import Place

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
_FLOAT16 = ("amx_fp16", "avx512_fp16", "fp16_arith")
"""Processor instructions for 16-bit products, by torch's names: those of x86, then those of ARM."""
_SHORTER = (
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_reduced_precision_reduction",
    "allow_fp16_accumulation",
    "allow_tf32",
)
META = "meta"
"""Torch's device without memory. A model on it has a tokenizer and limits, and can compute nothing."""
_DEVICE = re.compile(r"(cpu|mps|cuda)(?::(\d+))?")
_worker: int | None = None
"""The number of this worker process on its machine, from 0; None in a process that is no worker."""


def work_as(number: int) -> None:
    """Make this process the worker of this number, which has a GPU of its own where there are enough."""
    global _worker
    _worker = number


COMPILED_PRODUCTS = 128
"""How many matrix products oneDNN may keep compiled on a CPU, each for one shape and of some megabytes.

With its default of 1,024, a training on texts of many lengths grows by 12 MB a step (SmolLM2); with this it
does not grow, and takes as long.
"""


def pick_device(device: str) -> str:
    """The torch device here: for ``auto`` CUDA, else MPS, else the CPU; or ``cpu``, ``mps``, ``cuda``,
    ``cuda:1``; or ``meta``, for which no weights are read. Of several GPUs, ``auto`` and ``cuda`` give the
    workers of a machine one after the other.
    """
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # read at the first product
        os.environ.setdefault(variable, str(COMPILED_PRODUCTS))
    import torch

    if device == META:
        return device
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if device == "auto":
        device = next(kind for kind, count in counts.items() if count)
    if device == "cuda" and counts["cuda"] > 1 and _worker is not None:
        return f"cuda:{_worker % counts['cuda']}"
    named = _DEVICE.fullmatch(device)
    if named is None:
        raise SettingsError(f"no device is called {device!r}; known: auto, cpu, mps, cuda, cuda:1 …")
    kind, count = named[1], counts[named[1]]
    if count == 0:
        raise SettingsError(f"no {kind.upper()} device here; use --device cpu")
    if int(named[2] or 0) >= count:
        raise SettingsError(
            f"no device {device} here, the last one is {kind}:{count - 1}; use --device {kind}"
        )
    return device


def pick_dtype(dtype: str, device: str) -> Literal["float32", "bfloat16", "float16"]:
    """The number format for ``dtype`` on a device as ``pick_device`` returns it.

    ``auto`` is bfloat16 if the device multiplies it fast, else float32.
    """
    if dtype == "auto":
        return "bfloat16" if multiplies_fast("bfloat16", device) else "float32"
    return cast(Literal["float32", "bfloat16", "float16"], dtype)


def multiplies_fast(dtype: str, device: str) -> bool:
    """Whether a device has instructions for products of this 16-bit number format.

    A processor without them converts every number, and took 7 times as long for a product as in float32.
    Apple's GPUs were not measured with bfloat16 and are assumed to have no such instructions.
    """
    import torch

    if device.startswith("cuda"):
        available = torch.cuda.is_available()  # if it is not, another machine with a GPU is assumed
        return dtype == "float16" or not available or torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return dtype == "float16"
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch
        return dtype == "bfloat16" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    instructions = {"bfloat16": _BFLOAT16, "float16": _FLOAT16}[dtype]
    return any(processor_has(instruction) for instruction in instructions)


def processor_has(instructions: str) -> bool:
    """Whether this processor has instructions, by torch's name; always false with an old torch."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    return bool(torch.cpu.get_capabilities().get(instructions, False))


@contextmanager
def products_in_float32() -> Iterator[None]:
    """Make NVIDIA GPUs sum 16-bit products in float32, and round no float32 factors, inside the context."""
    import torch

    matmul = torch.backends.cuda.matmul
    before = {name: getattr(matmul, name) for name in _SHORTER}
    for name in _SHORTER:
        setattr(matmul, name, False)
    try:
        yield
    finally:
        for name, allowed in before.items():
            setattr(matmul, name, allowed)


@contextmanager
def quiet_loading(*, local: bool = True) -> Iterator[None]:
    """Hide the progress bars of transformers inside the context; keep them for downloads (not ``local``)."""
    from transformers.utils import logging

    hide = local and logging.is_progress_bar_enabled()
    if hide:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            logging.enable_progress_bar()


@contextmanager
def unsaid(logger: str, *phrases: str) -> Iterator[None]:
    """Suppress a logger's messages that contain one of the phrases, inside the context."""
    log = logging.getLogger(logger)

    def keep(record: logging.LogRecord) -> bool:
        return not any(phrase in record.getMessage() for phrase in phrases)

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)


def check_model_folder(folder: Path, name: str) -> None:
    """Check that an existing model folder is complete, to report in a line what loading would in a traceback.

    ``name`` is the model's name as the user gave it.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"model {name}: the folder holds no config.json; give a folder saved by transformers"
        )
    if not weight_files(folder):
        raise ModelError(f"model {name}: the folder holds no weights (model.safetensors)")
    _check_tokenizer([folder], name)


def check_module_folder(folder: Path, name: str) -> None:
    """Check that a folder of sentence-transformers has the tokenizer of each of its transformers.

    Without its files transformers makes a tokenizer that knows no word. ``name`` is as above. A folder of
    other modules needs none, and a ``modules.json`` that cannot be read is left to the library to report.
    """
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
        transformers = [folder / module["path"] for module in modules if _is_transformer(module["type"])]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return
    for transformer in transformers:
        _check_tokenizer([folder, transformer], name)


def _is_transformer(kind: str) -> bool:
    """Whether a module of ``modules.json`` is the library's own that computes token vectors."""
    return kind.startswith("sentence_transformers.") and kind.endswith(".Transformer")


def _check_tokenizer(folders: Iterable[Path], name: str) -> None:
    """Check that one of the folders of a model holds a tokenizer's vocabulary."""
    if not any((folder / file).is_file() for folder in folders for file in _TOKENIZERS):
        raise ModelError(
            f"model {name}: the folder holds no tokenizer (tokenizer.json); "
            "save it there with tokenizer.save_pretrained(FOLDER)"
        )


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a model folder in name order: safetensors, else the older format.

    A sentence-transformers folder keeps the weights of its modules one level deeper.
    """
    for pattern in _WEIGHTS:
        files = sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
        if files:
            return files
    return []


def hash_file(path: Place) -> str:
    """SHA-256 of the file's bytes as 64 hexadecimal digits; the file is read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def hash_files(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 of the names, relative to ``folder``, and the bytes of files, as ``sha256:…``."""
    listing = "".join(f"{hash_file(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"


def trim() -> None:
    """Return the freed memory that the C library keeps to the operating system.

    Batches of varying lengths leave gaps into which the next batch does not fit: without this, a training
    run of 600 steps grew to six gigabytes.
    """
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return
