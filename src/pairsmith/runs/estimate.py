"""Estimates of what a step will produce and cost, made before it runs."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from pairsmith.core.settings import Settings


def peak_memory() -> int:
    """Peak memory of this process so far in bytes, including models and libraries; 0 where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate for one step on this machine."""

    seconds: float  # run time with the workers in the settings, once the libraries are loaded
    memory: int = field(default_factory=peak_memory)  # peak memory of all its processes together, in bytes
    disk: int = 0  # bytes of its results, which remain on the disk
    rows: Mapping[str, int] = field(default_factory=dict)  # rows that it makes, by split
    scratch: int = 0  # further bytes that it needs on the disk until it is finished
    tokens: int = 0  # tokens that a language model generates
    bought: tuple[int, int] = (0, 0)  # tokens that a server reads and writes, as the server counts them
    shared: float = 0.0  # seconds of the work that can be divided among workers, if one worker does it
    shards: int = 1  # the number of shards that the shared work can be divided into
    sample: pa.Table | None = None  # some of the rows that it would make
    workers: int = 1  # the number of workers in the settings
    worker_memory: int = 0  # bytes that one of several workers needs
    base: str = ""  # the model that a training starts from, which stands in for the trained one
    starting: float = 0.0  # seconds to load the libraries
    encoding: float = 0.0  # seconds of the run time in which a corpus is encoded
    vectors: str = ""  # identifies the vectors that the step keeps of this corpus; empty if it keeps none

    def rows_of(self, split: str | None = None) -> int:
        """The number of rows of a split, or of all splits."""
        return sum(self.rows.values()) if split is None else self.rows.get(split, 0)

    def with_kept_vectors(self, share: float) -> Self:
        """The estimate if an earlier step or run has stored this share (0 to 1) of the corpus's vectors.

        The step then reads these vectors instead of encoding texts.
        """
        read = share * self.encoding
        return replace(
            self,
            seconds=self.seconds - read,
            shared=max(0.0, self.shared - read),
            encoding=self.encoding - read,
        )

    def seconds_with(self, workers: int) -> float:
        """The run time in seconds with this many workers, each with the computing power of one worker now."""
        return self.seconds + self._shared_by(workers) - self._shared_by(self.workers)

    def _shared_by(self, workers: int) -> float:
        """Seconds of the divisible work: the time of the worker with the most shards."""
        return self.shared * -(-self.shards // max(1, workers)) / max(1, self.shards)


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The estimate of steps that run one after the other and keep their results.

    ``memory`` is the largest of all steps. ``scratch`` is how many bytes the disk needs beyond all results at
    its fullest moment. ``rows`` is empty.
    """
    steps = list(estimates)
    disk = peak_disk = 0
    for step in steps:
        peak_disk = max(peak_disk, disk + step.disk + step.scratch)
        disk += step.disk
    return Estimate(
        seconds=sum(step.seconds for step in steps) + max((step.starting for step in steps), default=0.0),
        memory=max((step.memory for step in steps), default=0),
        disk=disk,
        scratch=max(0, peak_disk - disk),
        tokens=sum(step.tokens for step in steps),
        bought=(sum(step.bought[0] for step in steps), sum(step.bought[1] for step in steps)),
    )


Before = Mapping[str, Estimate]
"""The estimates of earlier steps, by the reference ``@name`` to each step. A planner finds them by the name
of the folder or model that stands in for the step's result."""


FOLDER_BYTES = 10_000
"""Approximate size of a dataset folder's card, manifest and log, in bytes."""
SHARD_BYTES = 1_400
"""Approximate number of bytes that each shard adds to manifest, log and journal."""


def plan_tool(settings: Settings, before: Before) -> Estimate:  # noqa: ARG001 - as for every planner
    """The fixed estimate of a tool, which takes about a second; nothing is run for it."""
    return Estimate(seconds=1.0, disk=FOLDER_BYTES)
