"""The plan of a step without a planner of its own: the step is run on some of its rows, and extrapolated."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from pairsmith.core.paths import files_below
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.sources import open_source
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.planning import counted, first_items

SLICE = 256
"""Largest number of rows in a slice."""

MOST_SECONDS = 20.0
"""A slice that is likely to take more seconds is not tried."""

_GROWTH = 4
"""The factor from the number of rows of a slice to that of the next slice."""


def plan_by_slice(
    work: Callable[[Any, Run], object], rows_setting: str, settings: Settings, before: Before
) -> Estimate:
    """Do the work on one row and then on larger and larger slices, and extrapolate from the time per row.

    ``rows_setting`` is the name of the setting whose source is cut into slices.
    """
    source = getattr(settings, rows_setting)
    rows, count = first_items((dict(row) for _, row in open_source(source).rows()), SLICE)
    count = counted(source, before, count)
    limit = getattr(settings, "limit", None) or count
    rows, count = rows[:limit], min(count, limit)
    if not rows:
        return Estimate(seconds=0.0, memory=peak_memory(), disk=0, rows={})
    name = f"{PurePath(source).stem.removeprefix('@')}.jsonl"  # as errors name the file

    def run_slice(first: int) -> _Trial:
        """Run the step on the ``first`` rows, in a temporary folder."""
        with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
            file, out = Path(folder) / name, Path(folder) / "out"
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows[:first])
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            begun = time.monotonic()
            slice_settings = settings.model_copy(update={rows_setting: str(file)})
            result = work(slice_settings, Run(out, Silent()))
            seconds = time.monotonic() - begun
            table = result.table() if isinstance(result, DatasetFolder) else None
            return _Trial(first, seconds, sum(f.stat().st_size for f in files_below(out).values()), table)

    first_seconds = run_slice(1).seconds  # also loads the libraries, and the model's files from the disk
    smallest = largest = run_slice(1)
    libraries = max(0.0, first_seconds - smallest.seconds)
    seconds_per_row = bytes_per_row = 0.0
    next_rows = 2  # at least two slices, so that the time for loading does not count for each row
    while largest.rows < len(rows) and (
        largest is smallest or largest.seconds + seconds_per_row * (next_rows - largest.rows) < MOST_SECONDS
    ):
        largest = run_slice(min(next_rows, len(rows)))
        next_rows = _GROWTH * largest.rows
        difference = largest.rows - smallest.rows
        seconds_per_row = max(0.0, largest.seconds - smallest.seconds) / difference
        bytes_per_row = max(0, largest.size - smallest.size) / difference
    remaining = count - largest.rows
    return Estimate(
        seconds=libraries + largest.seconds + remaining * seconds_per_row,
        memory=peak_memory(),
        disk=largest.size + round(remaining * bytes_per_row),
        rows={} if largest.table is None else {"train": largest.table.num_rows * count // largest.rows},
        sample=largest.table,
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """A run of the step on a slice of its rows."""

    rows: int  # the number of rows in the slice
    seconds: float  # the duration of the run
    size: int  # the size of the result on the disk, in bytes
    table: pa.Table | None  # the rows of the result; None if it is not a dataset folder
