"""Estimates what a report will cost. It is little, so no trial is run."""

from collections.abc import Mapping

from pairsmith.core.errors import FolderError
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import Estimate, peak_memory
from pairsmith.tools.report.settings import ReportSettings

ROW_SECONDS = 5e-5
"""Seconds for a row, measured by benchmarks/report.py."""
COMPARED_SECONDS = 1e-4
"""Extra seconds to compare a pair of 20-word sentences with evaluation data."""
ENCODED_SECONDS = 5e-3
"""Seconds for a pair with a small sentence encoder."""
PAGE_BYTES = 100_000


def plan_report(settings: ReportSettings, before: Mapping[str, Estimate]) -> Estimate:
    """An estimate from the number of rows; a report on anything else takes hardly any time."""
    rows = _rows(settings.data, before)
    encoded = min(rows, settings.sample) * ENCODED_SECONDS if settings.encoder else 0.0
    each = ROW_SECONDS + (COMPARED_SECONDS if settings.against else 0.0)
    return Estimate(seconds=1.0 + rows * each + encoded, memory=peak_memory(), disk=PAGE_BYTES, rows={})


def _rows(data: str, before: Mapping[str, Estimate]) -> int:
    if data in before:
        return sum(before[data].rows.values())
    try:
        return DatasetFolder.open(data).rows
    except FolderError:
        return 0
