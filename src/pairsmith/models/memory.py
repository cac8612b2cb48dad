"""The free memory of a device, and limits for the numbers of rows and tokens in a batch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pairsmith.core.errors import SettingsError

MOST_ROWS = {"cpu": 256, "other": 4096}
"""Largest number of rows in a batch of the decoder, by device: larger batches decode no faster per row."""

CALL = 5e12
"""Floating-point operations in 16 bits that a GPU computes in the time that Python needs to call a model."""

MOST_TOKENS = 65_536
"""Largest result of ``call_tokens``."""

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Parts of torch's error messages when memory runs out: on Linux, on Windows, and on other devices."""

_LIMITS = (  # the files with a container's memory limit and usage, in both versions of control groups
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_UNKNOWN = 4 * 2**30
"""Free memory in bytes that is assumed if the system does not report it."""


def free_memory(device: torch.device) -> int:
    """The number of bytes that can still be allocated on a device, within the limit of a container.

    Several processes that call this at the same time get the same number, so they must not each use all of
    it. On a GPU, memory that torch has reserved for this process and that no tensor uses counts as free.
    Otherwise a second decoder in a process would get few rows on a GPU that is shared with other processes.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    sizes = [size for size in (_available(), *map(_below_limit, _LIMITS)) if size is not None]
    return max(0, min(sizes, default=_UNKNOWN))


def call_tokens(model: Any, token: int) -> int:
    """The number of tokens that a model computes in the time that one call takes in Python; 0 except on CUDA.

    To compute this many more tokens in a call is not slower than another call. A model of 135 million
    parameters computes 18,000 tokens in that time, one of seven billion parameters 360. The number is limited
    so that the tokens, their keys and values and their computation, take at most a quarter of the free
    memory. ``token`` is the number of bytes of the keys and values of one token.
    """
    if model.device.type != "cuda":
        return 0
    parameters = sum(parameter.numel() for parameter in model.parameters())
    operations = CALL if model.dtype.itemsize == 2 else CALL / 10
    room = free_memory(model.device) // 8 // token
    return int(min(MOST_TOKENS, operations / (2 * parameters), room))


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether an error says that memory ran out, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def told_if_out_of_memory(rows: int | None) -> Iterator[None]:
    """Raise a ``SettingsError`` if memory runs out for the ``rows`` that a caller gave; None: gave none."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if rows is None or not is_out_of_memory(error):
            raise
        raise SettingsError(
            f"{rows:,} rows at once do not fit into memory; give fewer, or leave rows out for as many as fit"
        ) from error


def _available() -> int | None:
    """The free memory of the machine in bytes; None if it is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _below_limit(files: tuple[str, str]) -> int | None:
    """The bytes that a container may still use, from its files of limit and usage; None without a limit."""
    try:
        limit, used = (Path(file).read_text(encoding="ascii").strip() for file in files)
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such limit, or the word max
        return None
