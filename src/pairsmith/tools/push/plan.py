"""Cost estimate of an upload: nearly all of it is the transfer, whose speed is not known."""

from collections.abc import Mapping

from pairsmith.core.paths import files_below, is_folder, place, size_of
from pairsmith.runs.estimate import Estimate, peak_memory
from pairsmith.tools.push.settings import PushSettings

_BYTES_A_SECOND = 10e6
"""Assumed speed of the connection."""
_RECORD_BYTES = 2_000


def plan_push(settings: PushSettings, before: Mapping[str, Estimate]) -> Estimate:
    """Estimate from the size of the folder alone."""
    if settings.data in before:
        size = before[settings.data].disk
    else:
        found = place(settings.data)
        files = files_below(found).values() if is_folder(found) else ()
        size = sum(size_of(file) or 0 for file in files)
    return Estimate(
        seconds=2.0 + (0.0 if settings.dry_run else size / _BYTES_A_SECOND),
        memory=peak_memory(),
        disk=size if settings.dry_run else _RECORD_BYTES,
        rows={},
    )
