"""What the plans of steps share: the time for some items of a step is extrapolated to all of them.

A planner reads the first items of its sources (``read_first``), times the step's work on some of them
(``timed``), counts all items (``count_in_run``), and makes an estimate of both (``sharded_estimate``). The
plan of a step without a planner runs the step on some of its rows (``plan_by_slice``).
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import PairsmithError
from pairsmith.core.paths import files_below
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.sources import open_source
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

CALIBRATION_TEXTS = 256
"""Number of texts of a sample that is encoded or judged, and of rows that a step is run on."""
MOST_SECONDS = 20.0
"""A run of a step on more rows is not tried if it is likely to take more seconds."""
NEIGHBOUR_BYTES = 12
"""Size of a saved neighbour, its number and its similarity, in bytes."""


def timed(load: Callable[[], Callable[[Sequence[T]], R]], sample: Sequence[T]) -> tuple[float, float, R]:
    """Time a function on a sample.

    ``load`` loads a model, and returns the function. A first call on an eighth of the items warms it up.

    Returns:
        the seconds for loading and warming up, the seconds for each item of the sample, and the result of the
        function for the sample.
    """
    begun = time.monotonic()
    work = load()
    work(sample[: -(-len(sample) // 8)])
    loaded = time.monotonic()
    result = work(sample)
    return loaded - begun, (time.monotonic() - loaded) / max(1, len(sample)), result


def text_encoder(model: str, settings: Any) -> Callable[[Sequence[str]], Float32s]:
    """Load a sentence encoder as a step's settings say, and return the function that encodes n texts.

    The function returns vectors, ``(n, d)`` float32.
    """
    # Imported here, as it takes seconds.
    from pairsmith.models.encode import encode_texts
    from pairsmith.models.sentence_encoder import load_sentence_encoder

    values = dict(settings)
    batches: dict[str, Any] = {
        name: values[name] for name in ("batch_size", "batch_tokens") if name in values
    }
    return partial(encode_texts, load_sentence_encoder(model, **load_options(settings)), **batches)


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


def read_first(
    sources: Iterable[str],
    read: Callable[[str], Iterable[T]],
    before: Before,
    most: int = CALIBRATION_TEXTS,
    split: str | None = None,
) -> tuple[list[T], int]:
    """The first items of each source, and the number of items that all sources will have in the run.

    Args:
        sources: the sources; one that an earlier step will make, without a sample, is only counted.
        read: returns the items of a source.
        before: the estimates of the earlier steps.
        most: the largest number of items that are returned from each source.
        split: as for ``count_in_run``.
    """
    first, count = list[T](), 0
    for source in sources:
        items = () if has_no_sample(source, before) else read(source)
        own, own_count = head_and_count(items, source, before, most, split)
        first += own
        count += own_count
    return first, count


def head_and_count(
    items: Iterable[T],
    source: str,
    before: Before,
    most: int = CALIBRATION_TEXTS,
    split: str | None = None,
) -> tuple[list[T], int]:
    """The first items of a source, at most ``most``, and the number of items that it will have in the run.

    ``items`` are all items of the source; ``before`` and ``split`` are as for ``count_in_run``.
    """
    remaining = iter(items)
    head = list(islice(remaining, most))
    return head, count_in_run(len(head) + sum(1 for _ in remaining), [source], before, split)


def read_first_passages(
    corpus: Iterable[str], before: Before, most: int = CALIBRATION_TEXTS, column: str | None = None
) -> tuple[list[str], int]:
    """``read_first`` of passages, each with its title; sources may be folders in BEIR's layout."""
    return read_first(
        corpus, lambda source: (row.whole for row in read_passages(in_beir(source), column)), before, most
    )


def count_in_run(number: int, sources: Iterable[str], before: Before, split: str | None = None) -> int:
    """The number of items that sources will have in the run, ``number`` of which were read.

    All items of existing sources were read. Of a source that an earlier step will make, only a sample was
    read, so the number is scaled to all its rows or, if ``split`` is given, to those of the split. If there
    are sources of both sorts, each row beyond the samples is added as one item.
    """
    existing, planned = list[str](), list[Estimate]()
    for source in sources:
        planned.append(before[source]) if source in before else existing.append(source)
    rows = sum(estimate.rows_of(split) for estimate in planned)
    in_samples = sum(len(estimate.sample or ()) for estimate in planned)
    if existing or not in_samples:
        return number + rows - in_samples
    return round(number * rows / in_samples)


def has_no_sample(source: str, before: Before) -> bool:
    """Whether an earlier step will make the source, and its estimate has no sample, or one without rows."""
    return source in before and not before[source].sample


def sharded_estimate(
    sample: pa.Table,
    rows: int,
    shards: int,
    *,
    loading: float,
    shared: float,
    size: int | None = None,
    tokens: int = 0,
) -> Estimate:
    """The estimate for a step that processes independent shards.

    Args:
        sample: some of the rows.
        rows: the number of rows.
        shards: the number of shards.
        loading: the seconds that each worker takes to load the model.
        shared: the seconds of the work that workers can share.
        size: the size of all rows in bytes; None: as in the sample.
        tokens: the number of generated tokens.
    """
    if size is None:
        size = sample.nbytes * rows // max(1, sample.num_rows)
    return Estimate(
        seconds=loading + shared,
        disk=size + FOLDER_BYTES + shards * SHARD_BYTES,
        rows={"train": rows},
        tokens=tokens,
        shared=shared,
        shards=shards,
        worker_memory=peak_memory(),
        sample=sample,
    )


def plan_by_slice(
    work: Callable[[Any, Run], object], rows_setting: str, settings: Settings, before: Before
) -> Estimate:
    """Do the work on one row and then on larger and larger slices, and extrapolate from the time per row.

    ``rows_setting`` is the name of the setting whose source is cut into slices.
    """
    source = getattr(settings, rows_setting)
    rows, count = head_and_count((row for _, row in open_source(source).rows()), source, before)
    count = min(count, getattr(settings, "limit", None) or count)
    rows = rows[:count]
    if not rows:
        return Estimate(seconds=0.0)
    name = f"{PurePath(source).stem.removeprefix('@')}.jsonl"  # as errors name the file

    def run_slice(first: int) -> _Trial:
        """Run the step on the ``first`` rows, in a temporary folder."""
        with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
            file, out = Path(folder) / name, Path(folder) / "out"
            lines = (json.dumps(dict(row), default=str) for row in rows[:first])
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            begun = time.monotonic()
            try:
                result = work(settings.model_copy(update={rows_setting: str(file)}), Run(out, Silent()))
            except PairsmithError as error:
                if str(file) not in str(error):
                    raise
                raise type(error)(str(error).replace(str(file), source)) from None
            seconds = time.monotonic() - begun
            table = result.table() if isinstance(result, DatasetFolder) else None
            return _Trial(first, seconds, sum(f.stat().st_size for f in files_below(out).values()), table)

    first_seconds = run_slice(1).seconds  # also loads the libraries, and the model's files from the disk
    smallest = largest = run_slice(1)
    seconds_per_row = bytes_per_row = 0.0
    next_rows = 2  # at least two slices, so that the time for loading does not count for each row
    while largest.rows < len(rows) and (
        largest is smallest or largest.seconds + seconds_per_row * (next_rows - largest.rows) < MOST_SECONDS
    ):
        largest = run_slice(min(next_rows, len(rows)))
        next_rows = 4 * largest.rows
        difference = largest.rows - smallest.rows
        seconds_per_row = max(0.0, largest.seconds - smallest.seconds) / difference
        bytes_per_row = max(0, largest.size - smallest.size) / difference
    libraries, remaining = max(0.0, first_seconds - smallest.seconds), count - largest.rows
    return Estimate(
        seconds=libraries + largest.seconds + remaining * seconds_per_row,
        disk=largest.size + round(remaining * bytes_per_row),
        rows={} if largest.table is None else {"train": largest.table.num_rows * count // largest.rows},
        sample=largest.table,
    )


class _Trial(NamedTuple):
    """A run of the step on a slice of its rows."""

    rows: int  # the number of rows in the slice
    seconds: float  # the duration of the run
    size: int  # the size of the result on the disk, in bytes
    table: pa.Table | None  # the rows of the result; None if it is not a dataset folder
