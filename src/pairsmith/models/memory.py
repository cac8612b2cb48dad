"""Free memory of a device, and how many rows and tokens it can process at once."""

import os
from pathlib import Path
from typing import Any

import torch

MOST_ROWS = {"cpu": 256, "other": 4096}
"""Largest number of rows in a batch of the decoder, by device; larger ones decode no faster per row."""

CALL = 5e12
"""Floating-point operations in 16 bits that a GPU can do in the time that Python needs to call a model."""

MOST_TOKENS = 65_536
"""Largest result of ``call_tokens``."""

_LIMITS = (  # a container's limit and usage, in the two versions of control groups
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_UNKNOWN = 4 * 2**30
"""Free memory in bytes that is assumed if the system does not report it."""


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on a device; a container's limit counts.

    Processes that ask at the same time are all told of the same free memory. On a GPU the memory that this
    process keeps for its next tensors is free for them: without it, a decoder after the first would get few
    rows on a GPU that others use too.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    sizes = [size for size in (_available(), *map(_below_limit, _LIMITS)) if size is not None]
    return max(0, min(sizes, default=_UNKNOWN))


def call_tokens(model: Any, token: int) -> int:
    """How many tokens a model computes in the shortest time that a call takes; 0 on devices without CUDA.

    To compute that many tokens more is no slower than to call the model once more. A model of 135 million
    parameters computes 18,000 in that time, one of seven billion 360. ``token`` is the number of bytes that
    the keys and values of one take; they and their computation get a quarter of the free memory.
    """
    if model.device.type != "cuda":
        return 0
    parameters = sum(parameter.numel() for parameter in model.parameters())
    operations = CALL if model.dtype.itemsize == 2 else CALL / 10
    room = free_memory(model.device) // 8 // token
    return int(min(MOST_TOKENS, operations / (2 * parameters), room))


def _available() -> int | None:
    """Free memory of the whole machine in bytes; None where it is unknown."""
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
    try:
        limit, used = (Path(file).read_text(encoding="ascii").strip() for file in files)
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such limit, or the word max
        return None
