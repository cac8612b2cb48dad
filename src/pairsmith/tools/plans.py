"""Estimates of what the tools will cost. It is little, so no trial is run."""

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import files_below, is_folder, place, size_of
from pairsmith.data.sources import open_source
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.tools.settings import AuditSettings, ExportSettings, PushSettings, ReportSettings

_REPORTED_SECONDS = 5e-5
"""Seconds for a row of a report, measured by benchmarks/report.py."""
_COMPARED_SECONDS = 1e-4
"""Extra seconds to compare a pair of 20-word sentences with evaluation data."""
_ENCODED_SECONDS = 5e-3
"""Seconds for a pair with a small sentence encoder."""
_PAGE_BYTES = 100_000

_LABELLED_SECONDS = 10.0
"""A guess at how long an annotator takes for a row."""
_LABELLED_BYTES = 2_000

_EXPORTED_SECONDS = 1e-4
_EXPORTED_BYTES = 500

_SENT_BYTES_A_SECOND = 10e6
"""Assumed speed of the connection."""
_RECORD_BYTES = 2_000


def plan_report(settings: ReportSettings, before: Before) -> Estimate:
    """An estimate from the number of rows; a report on anything else takes hardly any time."""
    rows = _rows_before(settings.data, before)
    if rows is None:
        try:
            rows = DatasetFolder.open(settings.data).rows
        except FolderError:
            rows = 0
    encoded = min(rows, settings.sample) * _ENCODED_SECONDS if settings.encoder else 0.0
    row_seconds = _REPORTED_SECONDS + (_COMPARED_SECONDS if settings.against else 0.0)
    return _estimate(1.0 + rows * row_seconds + encoded, _PAGE_BYTES)


def plan_audit(settings: AuditSettings, before: Before) -> Estimate:
    """An estimate from the number of rows: the annotator's time."""
    earlier = _rows_before(settings.data, before)
    rows = settings.rows if earlier is None else min(settings.rows, earlier)
    return _estimate(0.0 if settings.finish else rows * _LABELLED_SECONDS, rows * _LABELLED_BYTES)


def plan_export(settings: ExportSettings, before: Before) -> Estimate:
    """An estimate from the number of rows; raises ``InputError`` where they cannot be read."""
    rows = _rows_before(settings.data, before)
    if rows is None:
        rows = sum(1 for _ in open_source(settings.data).rows())
    return _estimate(1.0 + rows * _EXPORTED_SECONDS, rows * _EXPORTED_BYTES)


def plan_push(settings: PushSettings, before: Before) -> Estimate:
    """An estimate from the size of the folder: nearly all of it is the transfer, whose speed is not known."""
    if settings.data in before:
        size = before[settings.data].disk
    else:
        folder = place(settings.data)
        files = files_below(folder).values() if is_folder(folder) else ()
        size = sum(size_of(file) or 0 for file in files)
    if settings.dry_run:
        return _estimate(2.0, size)
    return _estimate(2.0 + size / _SENT_BYTES_A_SECOND, _RECORD_BYTES)


def _rows_before(data: str, before: Before) -> int | None:
    """The rows that an earlier step will make; None for what is there already."""
    return sum(before[data].rows.values()) if data in before else None


def _estimate(seconds: float, disk: int) -> Estimate:
    return Estimate(seconds=seconds, memory=peak_memory(), disk=disk, rows={})
