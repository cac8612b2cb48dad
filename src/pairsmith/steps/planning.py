"""What the plans of several steps share: the timing of a sample, and estimates extrapolated from it."""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import torch

from pairsmith.core.errors import SettingsError
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.readers import NAME_TEXTS, pick_column
from pairsmith.data.sources import Source
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory

T = TypeVar("T")
R = TypeVar("R")

NEIGHBOUR_BYTES = 12
"""Bytes of a saved neighbour on the disk: its number and its similarity."""


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
    result = work(sample)
    return loaded - begun, (time.monotonic() - loaded) / max(1, len(sample)), result


def search_seconds(
    search: Callable[[torch.Tensor, torch.Tensor, int], object],
    k: int,
    width: int,
    queries: int,
    others: int,
) -> float:
    """Seconds for each comparison of a query and another text, measured on random vectors of this width.

    ``search`` finds the k nearest of each query, ``(queries, width)`` float32, among ``(others, width)``.
    """
    x, y = (torch.nn.functional.normalize(torch.randn(n, width), dim=1) for n in (queries, others))
    search(x[:1024], y[:1024], k)
    begun = time.monotonic()
    search(x, y, k)
    return (time.monotonic() - begun) / (queries * others)


def spread(items: Sequence[T], count: int) -> Sequence[T]:
    """About ``count`` of the items, or all if there are fewer, from all over the sequence."""
    return items[:: max(1, len(items) // count)]


def sample_of(source: str, before: Before) -> pa.Table | None:
    """Some rows of a source that an earlier step will make; None for a source that exists."""
    return before[source].sample if source in before else None


def sample_texts(sample: pa.Table, names: Sequence[str], source: str) -> list[str]:
    """The texts that are not blank in the first of the columns ``names`` that the sample of a source has."""
    name = pick_column(dict.fromkeys(sample.column_names), names, source, NAME_TEXTS)
    return [text for text in sample[name].to_pylist() if text]


def no_sample(source: str) -> SettingsError:
    """The error for a step whose input is made by one that gives no sample."""
    return SettingsError(f"{source}: plan cannot estimate a step that reads this step's output")


def readable(source: str, before: Before) -> str | Source:
    """What readers of rows take: a source that exists, or the sample of one that a step will make."""
    if source not in before:
        return source
    sample = before[source].sample
    if sample is None:
        raise no_sample(source)
    return Source(source, lambda: ((source, row) for row in sample.to_pylist()))


def counted(source: str, before: Before, there: int) -> int:
    """How many rows an earlier step will make; for a source that exists the number that are ``there``."""
    return sum(before[source].rows.values()) if source in before else there


def some_passages(
    corpus: Sequence[str], before: Before, most: int, column: str | None = None
) -> tuple[list[str], int]:
    """Some texts that may answer queries, each with its title, and the number of all.

    Args:
        corpus: sources as for ``read_passages``, folders in BEIR's layout, and what earlier steps will make.
        before: the estimates of the earlier steps; one without a sample only counts.
        most: the number of texts that are returned of each source.
        column: as for ``read_passages``.
    """
    some, count = list[str](), 0
    for source in corpus:
        if source in before and before[source].sample is None:
            count += counted(source, before, 0)
            continue
        rows = read_passages(readable(in_beir(source), before), column)
        first = [row.whole for row in islice(rows, most)]
        some += first
        count += counted(source, before, len(first) + sum(1 for _ in rows))
    return some, count


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
