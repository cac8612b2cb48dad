"""What the plans of several steps share: the timing of a sample, and estimates extrapolated from it."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pairsmith.core.arrays import Float32s
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from torch import Tensor

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


def load_text_encoder(
    settings: ClassifySettings | EvaluateClassificationSettings,
) -> Callable[[Sequence[str]], object]:
    """What encodes texts as a classifier does; the head on top of the vectors takes little."""
    # Imported here, as it takes seconds.
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(settings.model, **load_options(settings))
    return partial(encode_texts, encoder, batch_size=settings.batch_size)


def load_search_encoder(
    settings: MineSettings | NegativesSettings | FilterQueriesSettings,
) -> tuple[Callable[[Sequence[str]], Float32s], int, float]:
    """What encodes the texts of a search, the width of its vectors, and the seconds that loading it took."""
    begun = time.monotonic()
    # Imported here, as it takes seconds.
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(settings.encoder, **load_options(settings))
    encode = partial(encode_texts, encoder, batch_tokens=settings.batch_tokens)
    return encode, encoder.get_embedding_dimension() or 1, time.monotonic() - begun


def search_seconds(
    search: "Callable[[Tensor, Tensor, int], object]",
    k: int,
    width: int,
    queries: int,
    others: int,
) -> float:
    """Seconds for each comparison of a query and another text, measured on random vectors of this width.

    ``search`` finds the k nearest of each query, ``(queries, width)`` float32, among ``(others, width)``.
    """
    import torch

    x, y = (torch.nn.functional.normalize(torch.randn(n, width), dim=1) for n in (queries, others))
    search(x[:1024], y[:1024], k)
    begun = time.monotonic()
    search(x, y, k)
    return (time.monotonic() - begun) / (queries * others)


def evenly_spaced(items: Sequence[T], count: int) -> Sequence[T]:
    """About ``count`` of the items, or all if there are fewer, from all over the sequence."""
    return items[:: max(1, len(items) // count)]


def first_items(items: Iterable[T], most: int) -> tuple[list[T], int]:
    """The first ``most`` items, and the number of all."""
    remaining = iter(items)
    first = list(islice(remaining, most))
    return first, len(first) + sum(1 for _ in remaining)


def counted(source: str, before: Before, number: int, split: str | None = None) -> int:
    """How many items a source will have, of which there are ``number`` now.

    ``number`` items were read: all of a source that exists, or those in the sample that stands in for what an
    earlier step will make. A sample has some of the rows of that step, or of its ``split``.
    """
    if source not in before:
        return number
    estimate = before[source]
    rows = _rows_of(estimate, split)
    sample_rows = 0 if estimate.sample is None else estimate.sample.num_rows
    return round(number * rows / sample_rows) if sample_rows else rows


def beyond_samples(sources: Iterable[str], before: Before, split: str | None = None) -> int:
    """How many rows earlier steps will make besides those in the samples that stand in for the sources.

    Of a step's ``split`` these may be fewer than none, as a sample has rows of all splits.
    """
    estimates = [before[source] for source in sources if source in before]
    samples = [estimate.sample for estimate in estimates]
    rows = sum(_rows_of(estimate, split) for estimate in estimates)
    return rows - sum(0 if sample is None else sample.num_rows for sample in samples)


def _rows_of(estimate: Estimate, split: str | None) -> int:
    return sum(estimate.rows.values()) if split is None else estimate.rows.get(split, 0)


def has_no_sample(source: str, before: Before) -> bool:
    """Whether an earlier step will make the source, and gives only the number of its rows, or has none."""
    return source in before and not before[source].sample


def first_passages(
    corpus: Sequence[str], before: Before, most: int, column: str | None = None
) -> tuple[list[str], int]:
    """Texts that may answer queries, each with its title, and the number of all.

    Args:
        corpus: sources as for ``read_passages``, folders in BEIR's layout, and what earlier steps will make;
            one without a sample only counts.
        before: the estimates of the earlier steps.
        most: the number of texts that are returned of each source.
        column: as for ``read_passages``.
    """
    passages, count = list[str](), 0
    for source in corpus:
        number = 0
        if not has_no_sample(source, before):
            rows = read_passages(in_beir(source), column)
            first, number = first_items((row.whole for row in rows), most)
            passages += first
        count += counted(source, before, number)
    return passages, count


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
