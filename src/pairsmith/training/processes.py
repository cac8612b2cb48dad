"""The processes that share one training: each computes its part of every batch (DDP).

``torchrun --nproc-per-node 4 -m pairsmith train-encoder …`` starts four of them, one for each GPU of a
machine. Gradients are averaged over the processes, so that all hold the same weights. The first one alone
writes files.
"""

import os
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.distributed
from torch import Tensor

from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Quiet
from pairsmith.runs.claim import Run


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and the others of a training: the ``number``-th, from 0, of ``size``."""

    number: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Self:
        """The processes according to the environment variables of torchrun; a single process without them."""
        if "LOCAL_RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
            return cls()
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def writes(self) -> bool:
        """Whether this process writes the files of the training."""
        return self.number == 0

    def join(self, device: str) -> None:
        """Connect the processes if there are several and they are not connected yet."""
        if self.size > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo" if device == "cpu" else "nccl")

    def wait(self) -> None:
        """Wait until every process has reached this call."""
        if self.size > 1:
            torch.distributed.barrier()

    def leave(self) -> None:
        """Wait for the other processes, and end the connection."""
        self.wait()
        if self.size > 1:
            torch.distributed.destroy_process_group()

    def mean(self, count: int | Tensor, device: torch.device) -> int | Tensor:
        """The mean of ``count`` over all processes, each of which must call this.

        The mean is ``()`` float32 on ``device``; a single process gets its ``count`` back unchanged.
        """
        if self.size == 1:
            return count
        total = torch.as_tensor(count, dtype=torch.float32, device=device).clone()
        torch.distributed.all_reduce(total)
        return total / self.size

    def arguments(self, device: str) -> dict[str, Any]:
        """The trainer's arguments for several processes; none for a single one."""
        if self.size == 1:
            return {}
        return {
            "ddp_backend": "gloo" if device == "cpu" else "nccl",
            # A batch is encoded in several calls, between which buffers must not change.
            "ddp_broadcast_buffers": False,
            # The processes must have equally many batches.
            "dataloader_drop_last": True,
        }

    def quiet_unless_writing(self, run: Run) -> Run:
        """The run; in processes that write no files, without progress messages."""
        return run if self.writes else replace(run, progress=Quiet())

    def part_of(self, batch_size: int) -> int:
        """The number of examples of a batch that this process computes: the same in all processes."""
        if batch_size % self.size:
            raise SettingsError(
                f"--batch-size {batch_size} cannot be shared by {self.size} processes; give a multiple of "
                f"{self.size}"
            )
        return batch_size // self.size
