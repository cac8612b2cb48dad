"""The plan of a step that has none of its own: the step is run on a part of its rows, and extrapolated."""

import json
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from pairsmith.cli.steps import Step
from pairsmith.core.errors import SettingsError
from pairsmith.core.paths import files_below
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.sources import open_source
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate, peak_memory

SLICE = 256
"""Rows in the larger of the two slices."""

_FEW = 16
"""Rows in the smaller one, which shows what the step costs before its first row."""


def plan_by_slice(
    step: Step, settings: Settings, before: Mapping[str, Estimate], base: str | None = None
) -> Estimate:
    """Run the step on two slices of its rows; what a row costs more in the larger one is the price of a row.

    The step's ``sliced`` names the setting whose rows are cut. The sample of an earlier step stands for what
    that will make, and ``base`` for a model that an earlier step will train.
    """
    if base is not None and getattr(settings, step.reads) in before:
        settings = settings.model_copy(update={step.reads: base})
    source = getattr(settings, step.sliced)
    rows, count = _rows(source, before)
    if not rows:
        return Estimate(seconds=0.0, memory=peak_memory(), disk=0, rows={})
    name = f"{PurePath(source.removeprefix('@')).stem}.jsonl"  # an error names the file

    def tried(some: int) -> tuple[float, int, pa.Table | None]:
        """Seconds that the step takes for the first rows, bytes that it writes, and the rows it makes."""
        with TemporaryDirectory(prefix="pairsmith-plan-") as folder:
            file, out = Path(folder) / name, Path(folder) / "out"
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows[:some])
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            begun = time.monotonic()
            made = step.run(settings.model_copy(update={step.sliced: str(file)}), Run(out, Silent()))
            seconds = time.monotonic() - begun
            table = made.table() if isinstance(made, DatasetFolder) else None
            return seconds, sum(f.stat().st_size for f in files_below(out).values()), table

    small = min(_FEW, len(rows))
    first, *_ = tried(small)  # also loads libraries and the model's files
    (few, few_bytes, _), (many, many_bytes, sample) = tried(small), tried(len(rows))
    left, more = count - len(rows), max(1, len(rows) - small)
    return Estimate(
        seconds=max(0.0, first - few) + many + left * max(0.0, many - few) / more,
        memory=peak_memory(),
        disk=many_bytes + left * max(0, many_bytes - few_bytes) // more,
        rows={} if sample is None else {"train": sample.num_rows * count // len(rows)},
        sample=sample,
    )


def _rows(source: str, before: Mapping[str, Estimate]) -> tuple[list[dict[str, Any]], int]:
    """Up to ``SLICE`` rows of a source, and the number of all."""
    if source in before:
        sample = before[source].sample
        if sample is None:
            raise SettingsError(f"{source}: plan cannot estimate a step that reads this step's output")
        return sample.slice(0, SLICE).to_pylist(), sum(before[source].rows.values())
    every = (dict(row) for _, row in open_source(source).rows())
    some = list(islice(every, SLICE))
    return some, len(some) + sum(1 for _ in every)
