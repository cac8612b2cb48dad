"""Array jobs: many processes, each of which makes its share of a step's shards; the last one adds the rest.

Slurm, PBS and Kubernetes start such processes. The ranks share a folder and nothing else.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pairsmith.core.errors import BusyError, SettingsError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.paths import Place, size_of
from pairsmith.runs import lock
from pairsmith.runs.claim import Run
from pairsmith.runs.ranks import Rank
from pairsmith.runs.status import status_of
from pairsmith.runs.storage import write_json

DONE = "rank.json"
"""Written into a rank's folder when its share is made."""


def rank_of(settings: WorkerSettings) -> Rank | None:
    """The rank that the settings name; None if they do not ask for an array job."""
    number, size = settings.rank, settings.world_size
    if settings.executor != "array":
        if number is not None or size is not None:
            raise SettingsError("--rank and --world-size need --executor array")
        return None
    if number is None or size is None:
        raise SettingsError("--executor array needs --rank, from 0, and --world-size, the number of ranks")
    if not 0 <= number < size:
        raise SettingsError(f"--rank {number}: with --world-size {size} it must be from 0 to {size - 1}")
    return Rank(number, size)


def run_rank(work: Callable[[Any, Run], object], settings: WorkerSettings, rank: Rank, run: Run) -> None:
    """Make the share of ``rank``; if it is the last one, also what needs the shares of all ranks.

    ``work`` is the step. It is called for the rank's own folder, and by the last rank for ``run.out``.
    """
    if run.fresh:
        raise SettingsError(f"--fresh does not go with --executor array; remove {run.out} to start over")
    if (status := status_of(run.out)) and status.complete and rank.number:
        run.progress.say(f"{run.out} is finished already; rank 0 checks whether it is the same work")
        return
    own = run.out / rank.name
    if not (status and status.complete) and size_of(own / DONE) is None:
        try:
            work(settings, replace(run, out=own, rank=rank))
        finally:
            lock.release(own)
        write_json(own / DONE, {"complete": True})
    missing = [] if status and status.complete else _unfinished(run.out, rank.size)
    if missing:
        names = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        run.progress.say(f"rank {rank.number} of {rank.size} has made its share; not finished yet: {names}")
        return
    try:
        work(settings, run)
    except BusyError:
        run.progress.say(f"another process is putting the shares in {run.out} together")


def _unfinished(out: Place, size: int) -> list[int]:
    """The ranks that have not made their share."""
    return [number for number in range(size) if size_of(out / Rank(number, size).name / DONE) is None]
