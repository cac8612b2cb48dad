"""What the plans of several steps share: the timing of a sample, and estimates extrapolated from it."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory

T = TypeVar("T")
R = TypeVar("R")


def timed(
    load: Callable[[], Callable[[Sequence[T]], R]], sample: Sequence[T], few: int = 8
) -> tuple[float, float, R]:
    """Time work on a sample.

    ``load`` loads a model, and returns the work that it does; ``few`` items warm it up.

    Returns:
        the seconds for loading and warming up, the seconds for each item of the sample, and what the work
        made of the sample.
    """
    begun = time.monotonic()
    work = load()
    work(sample[:few])
    loaded = time.monotonic()
    made = work(sample)
    return loaded - begun, (time.monotonic() - loaded) / max(1, len(sample)), made


def spread(items: Sequence[T], count: int) -> Sequence[T]:
    """About ``count`` of the items, or all if there are fewer, from all over the sequence."""
    return items[:: max(1, len(items) // count)]


def sample_of(source: str, before: Before) -> pa.Table | None:
    """Some rows of a source that an earlier step will make; None for a source that exists."""
    return before[source].sample if source in before else None


def sharded(
    *, loading: float, shared: float, size: int, rows: int, shards: int, sample: pa.Table, tokens: int = 0
) -> Estimate:
    """The estimate for a step whose work is a map over shards.

    ``loading`` and ``shared`` are seconds: those of loading, and those of the work that several workers can
    share; ``size`` is the bytes of ``rows`` rows.
    """
    return Estimate(
        seconds=loading + shared,
        memory=peak_memory(),
        disk=size + FOLDER_BYTES + shards * SHARD_BYTES,
        rows={"train": rows},
        tokens=tokens,
        shared=shared,
        shards=shards,
        worker_memory=peak_memory(),
        sample=sample,
    )
