"""The files of a model's folder, and the device and number format with which it runs.

All loaders use this module, so that they report the same fault with the same message. torch and transformers
are imported inside functions, because settings import this module through ``model_names``.
"""

import ctypes
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

from pairsmith.core.errors import ModelError, SettingsError, first_line
from pairsmith.core.folder_kinds import A_MODEL, folder_kind, json_object
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
"""CPU instructions for products of 16-bit numbers, by torch's names: those of x86, then those of ARM."""
_SHORTER = (
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_reduced_precision_reduction",
    "allow_fp16_accumulation",
    "allow_tf32",
)
_MAKE_AGAIN = "rerun the command that trained it, or copy or download the folder again"
META = "meta"
"""torch's device without memory. A model on it has a tokenizer and limits, but no weights to compute with."""
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_DEVICE = re.compile(r"(cpu|mps|cuda)(?::(\d+))?")
_worker: int | None = None
"""The number of this worker process on its machine, from 0; None if this process is not a worker."""


def set_worker_number(number: int) -> None:
    """Set the number of this worker process, which decides its GPU on a machine with several GPUs."""
    global _worker
    _worker = number


COMPILED_PRODUCTS = 128
"""Largest number of compiled matrix products that oneDNN caches on a CPU: one per shape, some megabytes each.

With oneDNN's default of 1,024, the memory of a training on texts of many lengths grows by 12 MB per step
(SmolLM2). With this number it does not grow, and the training takes the same time.
"""


def pick_device(device: str) -> str:
    """The torch device for a setting, which is checked to exist.

    ``device`` is ``cpu``, ``mps``, ``cuda``, ``cuda:1`` …, ``meta`` (no weights are read), or ``auto``: CUDA
    if available, else MPS, else the CPU. For ``auto`` and ``cuda``, the workers of a machine with several
    GPUs get these in turn.
    """
    # oneDNN reads these variables at its first matrix product.
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(COMPILED_PRODUCTS))
    import torch

    if device == META:
        return device
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if device == "auto":
        device = next(kind for kind, count in counts.items() if count)
    if device == "cuda" and counts["cuda"] > 1 and _worker is not None:
        return f"cuda:{_worker % counts['cuda']}"
    device = str(device)  # which may be an object of torch
    match = _DEVICE.fullmatch(device)
    if match is None:
        raise SettingsError(f"no device is called {device!r}; known: auto, cpu, mps, cuda, cuda:1 …")
    kind, count = match[1], counts[match[1]]
    if count == 0:
        raise SettingsError(f"no {kind.upper()} device here; use device cpu")
    if int(match[2] or 0) >= count:
        raise SettingsError(f"no device {device} here, the last one is {kind}:{count - 1}; use device {kind}")
    return device


def pick_dtype(dtype: str, device: str) -> Literal["float32", "bfloat16", "float16"]:
    """The number format for the setting ``dtype`` on ``device``, a result of ``pick_device``.

    For ``auto`` it is bfloat16 if the device has fast instructions for bfloat16, else float32.
    """
    if dtype not in _DTYPES:
        raise SettingsError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}")
    if dtype == "auto":
        return "bfloat16" if multiplies_fast("bfloat16", device) else "float32"
    return cast(Literal["float32", "bfloat16", "float16"], dtype)


def processor_of(device: str) -> str:
    """What is known of the processor of a device that affects the numbers that a model computes.

    The result is the name of a GPU's model, or the CPU's instructions for matrix products. On processors with
    different results, a model's numbers differ in their last bits, even in the same number format. ``device``
    is a result of ``pick_device``.
    """
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    if device != "cpu":
        return device
    return " ".join(
        ["cpu", torch.backends.cpu.get_cpu_capability(), *filter(processor_has, (*_BFLOAT16, *_FLOAT16))]
    )


def multiplies_fast(dtype: str, device: str) -> bool:
    """Whether a device has fast instructions for products of this 16-bit number format, bfloat16 or float16.

    A CPU without such instructions converts every number, and a product took 7 times as long as in float32.
    With Intel's AVX-512 instructions for bfloat16 and without AMX, as in some virtual machines, it took 1.8
    times as long; with AMD's, half as long. Apple's GPUs were not measured with bfloat16; they are assumed to
    be slow.
    """
    import torch

    if device.startswith("cuda"):
        available = torch.cuda.is_available()  # if not, the device is a GPU of another machine
        return dtype == "float16" or not available or torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return dtype == "float16"
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch
        return dtype == "bfloat16" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    instructions = {"bfloat16": _BFLOAT16, "float16": _FLOAT16}[dtype]
    slow = {"avx512_bf16"} if torch.cpu.get_capabilities().get("cpu_name", "").startswith("Intel") else set()
    return any(processor_has(instruction) for instruction in instructions if instruction not in slow)


def processor_has(instructions: str) -> bool:
    """Whether this CPU has the instructions with this name in torch; False with an old version of torch."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    return bool(torch.cpu.get_capabilities().get(instructions, False))


@contextmanager
def products_in_float32() -> Iterator[None]:
    """A context in which NVIDIA GPUs sum 16-bit products in float32, and do not round float32 factors."""
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
    """A context without the progress bars of transformers, unless files are downloaded (not ``local``)."""
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
def without_log_messages(logger: str, *phrases: str) -> Iterator[None]:
    """A context in which messages of ``logger`` that contain one of the phrases are suppressed."""
    log = logging.getLogger(logger)

    def keep(record: logging.LogRecord) -> bool:
        return not any(phrase in record.getMessage() for phrase in phrases)

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)


def check_model_folder(folder: Path, name: str) -> None:
    """Raise a ``ModelError`` if an existing model folder lacks files; loading would end with a traceback.

    ``name`` is the model's name as the user gave it.
    """
    refuse_no_model(folder, name)
    if not (folder / "config.json").is_file():
        trained = (folder / "training.json").is_file()
        remedy = _MAKE_AGAIN if trained else "give a folder saved by transformers"
        raise ModelError(f"model {name}: the folder holds no config.json; {remedy}")
    if not weight_files(folder):
        raise ModelError(
            f"model {name}: the folder holds no weights (model.safetensors); give a folder saved by "
            "transformers"
        )
    _check_tokenizer([folder], name)


def refuse_no_model(folder: Path, name: str) -> None:
    """Raise a ``ModelError`` if pairsmith wrote something other than a model into a folder without weights.

    ``name`` is the model's name as the user gave it.
    """
    if weight_files(folder) or not (kind := folder_kind(folder)) or kind == A_MODEL:
        return
    if kind.startswith("an unfinished model"):
        raise ModelError(f"model {name}: this is {kind}; run the same command again, and it will finish")
    if kind.startswith("a model"):
        raise ModelError(f"model {name}: this is {kind}, without its weights; {_MAKE_AGAIN}")
    raise ModelError(f"model {name}: this is {kind}, not a model; give a folder that a training step wrote")


def damage(folder: Path) -> str:
    """What is wrong with the first damaged file of a model folder, and what to do; empty if none is damaged.

    JSON files have to be JSON, safetensors files as long as their headers say, and all files that a training
    recorded have to exist, except the model's card.
    """
    from safetensors import SafetensorError, safe_open

    recorded = None
    with suppress(OSError):
        recorded = json_object(folder / "training.json").get("files")
    for name in recorded if isinstance(recorded, dict) else ():
        if not name.endswith(".md") and not (folder / name).is_file():
            return f"its file {name} is missing; {_MAKE_AGAIN}"
    for file in sorted([*folder.glob("*.json"), *folder.glob("*/*.json"), *weight_files(folder)]):
        try:
            if file.suffix == ".json":
                json.loads(file.read_bytes())
            elif file.suffix == ".safetensors":
                with safe_open(file, framework="np"):
                    pass
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            return f"its file {file.relative_to(folder)} is damaged ({first_line(error)}); {_MAKE_AGAIN}"
    return ""


def check_module_folder(folder: Path, name: str) -> None:
    """Raise a ``ModelError`` if the transformer in a sentence-transformers folder has no tokenizer.

    Without the tokenizer's files, transformers would make a tokenizer without a vocabulary. Modules other
    than transformers need no tokenizer. A ``modules.json`` that cannot be read is reported by the library.
    ``name`` is the model's name as the user gave it.
    """
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
        own = [module for module in modules if module["type"].startswith("sentence_transformers.")]
        transformers = [folder / module["path"] for module in own if module["type"].endswith(".Transformer")]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return
    for transformer in transformers:
        _check_tokenizer([folder, transformer], name)


def _check_tokenizer(folders: Sequence[Path], name: str) -> None:
    """Raise a ``ModelError`` if none of a model's folders contains the vocabulary of a tokenizer."""
    if not any((folder / file).is_file() for folder in folders for file in _TOKENIZERS):
        trained = any((folder / "training.json").is_file() for folder in folders)
        remedy = _MAKE_AGAIN if trained else "save it there with tokenizer.save_pretrained(FOLDER)"
        raise ModelError(f"model {name}: the folder holds no tokenizer (tokenizer.json); {remedy}")


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a model folder, sorted by name: safetensors files or, without these, older ones.

    In a folder of sentence-transformers the weights of modules are in subfolders.
    """
    for pattern in _WEIGHTS:
        files = sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
        if files:
            return files
    return []


def hash_file(path: Place) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits; the file is read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def hash_files(folder: Path, files: Iterable[Path]) -> str:
    """The SHA-256 of the bytes of files and of their names relative to ``folder``, as ``sha256:…``."""
    listing = "".join(f"{hash_file(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"


def return_freed_memory() -> None:
    """Return memory that was freed, and that the C library still holds, to the operating system.

    Batches of different lengths leave gaps in memory that are too small for the next batch. Without this, a
    training of 600 steps grew to six gigabytes.
    """
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return
