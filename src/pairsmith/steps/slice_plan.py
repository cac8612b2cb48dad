"""Plans a step that has no planner of its own: runs it on some of its rows, and extrapolates."""

import json
import time
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

import pyarrow as pa

from pairsmith.core.paths import files_below
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.sources import open_source
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.planning import counted, first_items
from pairsmith.steps.step import Step

SLICE = 256
"""Most rows in a slice."""

MOST_SECONDS = 20.0
"""No slice is tried that is likely to take longer."""

_GROWTH = 4
"""A slice has this many times the rows of the one before."""


def plan_by_slice(step: Step, settings: Settings, before: Before) -> Estimate:
    """Time the step on one row and then on larger and larger slices, and extrapolate from the time per row.

    The step's ``planned_rows_setting`` names the setting whose rows are cut.
    """
    source = getattr(settings, step.planned_rows_setting)
    rows, count = first_items((dict(row) for _, row in open_source(source).rows()), SLICE)
    count = counted(source, before, count)
    limit = getattr(settings, "limit", None) or count
    rows, count = rows[:limit], min(count, limit)
    if not rows:
        return Estimate(seconds=0.0, memory=peak_memory(), disk=0, rows={})
    name = f"{PurePath(source).stem.removeprefix('@')}.jsonl"  # an error names the file

    def tried(first: int) -> _Trial:
        """The trial with the ``first`` rows."""
        with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
            file, out = Path(folder) / name, Path(folder) / "out"
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows[:first])
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            begun = time.monotonic()
            of_slice = settings.model_copy(update={step.planned_rows_setting: str(file)})
            result = step.run(of_slice, Run(out, Silent()))
            seconds = time.monotonic() - begun
            table = result.table() if isinstance(result, DatasetFolder) else None
            return _Trial(first, seconds, sum(f.stat().st_size for f in files_below(out).values()), table)

    libraries = tried(1).seconds  # and the model's files
    few = many = tried(1)
    libraries = max(0.0, libraries - few.seconds)
    seconds = size = 0.0
    wanted = 2  # at least, so that loading does not count once a row
    while many.rows < len(rows) and (
        many is few or many.seconds + seconds * (wanted - many.rows) < MOST_SECONDS
    ):
        many = tried(min(wanted, len(rows)))
        wanted = _GROWTH * many.rows
        more = many.rows - few.rows
        seconds = max(0.0, many.seconds - few.seconds) / more
        size = max(0, many.size - few.size) / more
    untried = count - many.rows
    return Estimate(
        seconds=libraries + many.seconds + untried * seconds,
        memory=peak_memory(),
        disk=many.size + round(untried * size),
        rows={} if many.table is None else {"train": many.table.num_rows * count // many.rows},
        sample=many.table,
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the step takes for its first ``rows``: seconds, and bytes on the disk; and the rows it makes."""

    rows: int
    seconds: float
    size: int
    table: pa.Table | None
