"""Helpers of the plans of several steps: timing of samples, and extrapolation to the whole step."""

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
"""Size of a saved neighbour, its number and its similarity, in bytes."""


def timed(
    load: Callable[[], Callable[[Sequence[T]], R]], sample: Sequence[T], few: int = 8
) -> tuple[float, float, R]:
    """Time a function on a sample.

    ``load`` loads a model, and returns the function, which is first called with ``few`` items for warming up.

    Returns:
        the seconds for loading and warming up, the seconds for each item of the sample, and the result of the
        function for the sample.
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
    """Load the encoder of a classifier, and return a function that encodes texts.

    The classifier's head is left out, as it takes little time.
    """
    # Imported here, as it takes seconds.
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(settings.model, **load_options(settings))
    return partial(encode_texts, encoder, batch_size=settings.batch_size)


def load_search_encoder(
    settings: MineSettings | NegativesSettings | FilterQueriesSettings,
) -> tuple[Callable[[Sequence[str]], Float32s], int, float]:
    """Load the encoder of a search.

    Returns:
        a function that encodes texts, the width of the vectors, and the seconds that loading took.
    """
    begun = time.monotonic()
    # Imported here, as it takes seconds.
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder(settings.encoder, **load_options(settings))
    encode = partial(encode_texts, encoder, batch_tokens=settings.batch_tokens)
    return encode, encoder.get_embedding_dimension() or 1, time.monotonic() - begun


def search_seconds(
    search: "Callable[[Tensor, Tensor, int], object]", k: int, width: int, queries: int, others: int
) -> float:
    """The seconds for each comparison of a query vector and another vector, measured on random vectors.

    ``search(x, y, k)`` returns the k nearest of y, ``(others, width)`` float32, for each of x,
    ``(queries, width)``.
    """
    import torch

    x, y = (torch.nn.functional.normalize(torch.randn(n, width), dim=1) for n in (queries, others))
    search(x[:1024], y[:1024], k)
    begun = time.monotonic()
    search(x, y, k)
    return (time.monotonic() - begun) / (queries * others)


def evenly_spaced(items: Sequence[T], count: int) -> Sequence[T]:
    """About ``count`` items at equal distances in the sequence, or all items if there are fewer."""
    return items[:: max(1, len(items) // count)]


def first_items(items: Iterable[T], most: int) -> tuple[list[T], int]:
    """The first ``most`` items, and the number of all items."""
    remaining = iter(items)
    first = list(islice(remaining, most))
    return first, len(first) + sum(1 for _ in remaining)


def counted(source: str, before: Before, number: int, split: str | None = None) -> int:
    """The number of items that a source will have in the run.

    ``number`` items were read. A source that exists has no others. If an earlier step will make the source,
    they were read from a sample of its rows, and the number is scaled to all rows of the step or, if it is
    given, of ``split``.
    """
    if source not in before:
        return number
    estimate = before[source]
    rows = _rows_of(estimate, split)
    sample_rows = 0 if estimate.sample is None else estimate.sample.num_rows
    return round(number * rows / sample_rows) if sample_rows else rows


def beyond_samples(sources: Iterable[str], before: Before, split: str | None = None) -> int:
    """The number of rows that earlier steps will make, minus the rows in the samples that stand in for them.

    With a ``split`` the number may be negative, as a sample has rows of all splits.
    """
    estimates = [before[source] for source in sources if source in before]
    samples = [estimate.sample for estimate in estimates]
    rows = sum(_rows_of(estimate, split) for estimate in estimates)
    return rows - sum(0 if sample is None else sample.num_rows for sample in samples)


def _rows_of(estimate: Estimate, split: str | None) -> int:
    """The estimated number of rows of a split, or of all splits."""
    return sum(estimate.rows.values()) if split is None else estimate.rows.get(split, 0)


def has_no_sample(source: str, before: Before) -> bool:
    """Whether an earlier step will make the source, and its estimate has no sample, or one without rows."""
    return source in before and not before[source].sample


def first_passages(
    corpus: Sequence[str], before: Before, most: int, column: str | None = None
) -> tuple[list[str], int]:
    """The first passages of each source, each with its title, and the number of all passages.

    Args:
        corpus: sources as for ``read_passages``, folders in BEIR's layout, or results of earlier steps; if
            the estimate of such a step has no sample, its rows are only counted.
        before: the estimates of the earlier steps.
        most: the largest number of passages that are returned from each source.
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
    """The estimate for a step that processes independent shards.

    Args:
        loading: the seconds that each worker takes to load the model.
        shared: the seconds of the work that workers can share.
        size: the size of all rows in bytes.
        rows: the number of rows.
        shards: the number of shards.
        sample: some of the rows.
        tokens: the number of generated tokens.
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
