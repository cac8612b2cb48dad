"""Cost estimate of an export; the cost is small, so nothing is measured."""

from collections.abc import Mapping

from pairsmith.data.sources import open_source
from pairsmith.runs.estimate import Estimate, peak_memory
from pairsmith.tools.export.settings import ExportSettings

_ROW_SECONDS = 1e-4
_ROW_BYTES = 500


def plan_export(settings: ExportSettings, before: Mapping[str, Estimate]) -> Estimate:
    """Estimate from the number of rows alone.

    Raises:
        InputError: the rows exist but cannot be read.
    """
    if settings.data in before:
        rows = sum(before[settings.data].rows.values())
    else:
        rows = sum(1 for _ in open_source(settings.data).rows())
    return Estimate(seconds=1.0 + rows * _ROW_SECONDS, memory=peak_memory(), disk=rows * _ROW_BYTES, rows={})
