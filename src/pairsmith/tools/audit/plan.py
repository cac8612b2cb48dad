"""Estimates what an audit will cost: an annotator's time."""

from collections.abc import Mapping

from pairsmith.runs.estimate import Estimate, peak_memory
from pairsmith.tools.audit.settings import AuditSettings

ROW_SECONDS = 10.0
"""A guess at how long an annotator takes for a row."""
_ROW_BYTES = 2_000


def plan_audit(settings: AuditSettings, before: Mapping[str, Estimate]) -> Estimate:
    """An estimate from the number of rows; no trial is run."""
    earlier = before.get(settings.data)
    rows = min(settings.rows, sum(earlier.rows.values())) if earlier else settings.rows
    seconds = 0.0 if settings.finish else rows * ROW_SECONDS
    return Estimate(seconds=seconds, memory=peak_memory(), disk=rows * _ROW_BYTES, rows={})
