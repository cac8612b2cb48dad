"""The plan of a step that has none of its own: the step is run on a part of its rows, and extrapolated."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from pairsmith.cli.steps import Step
from pairsmith.core.errors import SettingsError
from pairsmith.core.paths import files_below
from pairsmith.core.progress import Silent
from pairsmith.core.settings import Settings
from pairsmith.data.sources import open_source
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate, peak_memory

SLICE = 256
"""Rows in the larger of the two slices."""

_FEW = 16
"""Rows in the smaller one, which shows what the step costs before its first row."""


def plan_by_slice(
    step: Step[Any], settings: Settings, before: Mapping[str, Estimate], base: str | None = None
) -> Estimate:
    """Run the step on two slices of its rows; what a row costs more in the larger one is the price of a row.

    Args:
        step: its ``sliced`` names the setting whose rows are cut; ``reads`` one that may name a model.
        settings: of the step.
        before: estimates of earlier steps; the sample of one replaces what it will make.
        base: stands in for a model that an earlier step will train.
    """
    if base is not None and getattr(settings, step.reads) in before:
        settings = settings.model_copy(update={step.reads: base})
    source = getattr(settings, step.sliced)
    rows, count = _rows(source, before)
    if not rows:
        return Estimate(seconds=0.0, memory=peak_memory(), disk=0, rows={})
    name = f"{PurePath(source.removeprefix('@')).stem}.jsonl"  # an error names the file
    with TemporaryDirectory(prefix="pairsmith-plan-") as folder:

        def tried(some: int, trial: str) -> _Trial:
            file, out = Path(folder) / trial / name, Path(folder) / trial / "out"
            file.parent.mkdir()
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows[:some])
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            begun = time.monotonic()
            step.run(settings.model_copy(update={step.sliced: str(file)}), Run(out, Silent()))
            return _Trial(
                some, time.monotonic() - begun, sum(f.stat().st_size for f in files_below(out).values())
            )

        # The first trial also loads libraries and the model's files.
        few_rows = min(_FEW, len(rows))
        first, few, many = tried(few_rows, "first"), tried(few_rows, "few"), tried(len(rows), "many")
    more = max(1, many.rows - few.rows)
    return Estimate(
        seconds=max(0.0, first.seconds - few.seconds)
        + many.seconds
        + (count - many.rows) * max(0.0, many.seconds - few.seconds) / more,
        memory=peak_memory(),
        disk=many.bytes + (count - many.rows) * max(0, many.bytes - few.bytes) // more,
        rows={},
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    rows: int
    seconds: float
    bytes: int


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
