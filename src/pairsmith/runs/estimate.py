"""What a step will make and cost, told before it runs."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of one step on this machine.

    Attributes:
        seconds: with the workers that the settings say, from start to end, libraries loaded.
        starting: seconds until the libraries are.
        memory: bytes that its processes together need at most.
        disk: bytes that stay on the disk.
        scratch: bytes that it needs there besides, until it is finished.
        rows: rows that it makes, by split.
        tokens: tokens that a language model writes.
        shared: seconds of the work that several workers share out among them, if one does it.
        workers: how many the settings say.
        worker_memory: bytes that one of several workers needs.
        pieces: into how many pieces that work can be cut.
        sample: some of the rows that it would make.
    """

    seconds: float
    memory: int
    disk: int
    rows: Mapping[str, int]
    scratch: int = 0
    tokens: int = 0
    shared: float = 0.0
    pieces: int = 1
    sample: pa.Table | None = None
    workers: int = 1
    worker_memory: int = 0
    starting: float = 0.0

    def seconds_with(self, workers: int) -> float:
        """The time with so many workers, each with as much computing power as one has now."""
        return self.seconds + self._shared_by(workers) - self._shared_by(self.workers)

    def _shared_by(self, workers: int) -> float:
        """The shared work's time: that of the worker with the most pieces."""
        return self.shared * -(-self.pieces // max(1, workers)) / max(1, self.pieces)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a recipe's steps cost together; ``peak_disk`` is the most that lies on the disk at one time."""

    seconds: float
    memory: int
    disk: int
    peak_disk: int
    tokens: int


def totals(estimates: Mapping[str, Estimate]) -> Totals:
    """The sum over steps that run one after the other and leave their results."""
    disk = peak_disk = 0
    for each in estimates.values():
        peak_disk = max(peak_disk, disk + each.disk + each.scratch)
        disk += each.disk
    return Totals(
        seconds=sum(each.seconds for each in estimates.values())
        + max((each.starting for each in estimates.values()), default=0.0),
        memory=max((each.memory for each in estimates.values()), default=0),
        disk=disk,
        peak_disk=peak_disk,
        tokens=sum(each.tokens for each in estimates.values()),
    )


Before = Mapping[str, Estimate]
"""The estimates of earlier steps, by what refers to them: ``@name``."""


FOLDER_BYTES = 10_000
"""About what card, manifest and log of a dataset folder take,"""
SHARD_BYTES = 1_400
"""and what they and the journal take for each shard."""


def peak_memory() -> int:
    """Bytes that this process has needed at most so far, models and libraries included; 0 where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
