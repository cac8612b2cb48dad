"""Array jobs: many processes (ranks), each of which makes its share of a step's shards.

Slurm, PBS and Kubernetes start such processes. The ranks communicate only by a shared folder. The rank that
finishes last copies the shares of all ranks into the job's folder.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pairsmith.core.errors import BusyError, FolderError, SettingsError, StorageError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.paths import MANIFEST, Place, map_in_threads, reaching, size_of
from pairsmith.runs import lock
from pairsmith.runs.claim import Run
from pairsmith.runs.manifest import Manifest, read_manifest
from pairsmith.runs.ranks import DONE, Rank, few_numbers
from pairsmith.runs.storage import write_json


def rank_of(settings: WorkerSettings) -> Rank | None:
    """The rank of this process, by ``settings``; None if ``settings.executor`` is not ``array``."""
    number, size = settings.rank, settings.world_size
    if settings.executor != "array":
        if number is not None or size is not None:
            raise SettingsError("--rank and --world-size need --executor array; add it, or leave them out")
        return None
    if number is None or size is None:
        raise SettingsError("--executor array needs --rank, from 0, and --world-size, the number of ranks")
    if not 0 <= number < size:
        raise SettingsError(f"--rank {number}: with --world-size {size} it must be from 0 to {size - 1}")
    return Rank(number, size)


def run_rank(work: Callable[[Any, Run], object], settings: WorkerSettings, rank: Rank, run: Run) -> None:
    """Make the share of ``rank``; if all other ranks have finished theirs, also put the shares together.

    ``work`` runs the step. Every rank calls it for the rank's own folder; the rank that finishes last calls
    it again for ``run.out``.
    """
    if run.fresh:
        raise SettingsError(f"--fresh does not go with --executor array; remove {run.out} to start over")
    share = _make_share(work, settings, replace(run, out=run.out / rank.name, rank=rank))
    if share is None:
        return
    folders = [run.out / Rank(number, rank.size).name for number in range(rank.size)]
    shares = list(map_in_threads(finished_share, folders))
    missing = [number for number, other in enumerate(shares) if other != share]
    job_manifest = manifest_of(run.out)
    # A rank of a finished job makes a share only if some of its shards were damaged. The other ranks make
    # none, so this rank does not wait for them.
    repairs = job_manifest is not None and job_manifest.has_finished(share)
    if missing and not repairs:
        state = f"not finished yet: {few_numbers(missing)}"
        # A missing rank may have finished its share of earlier work, before inputs or settings were changed.
        if differing := [number for number in missing if shares[number] is not None]:
            state += f" (other inputs or settings: {few_numbers(differing)}; start them again with these)"
        run.progress.say(f"rank {rank.number} of {rank.size} has made its share; {state}")
        return
    try:
        work(settings, run)
    except BusyError:
        job_manifest = manifest_of(run.out)
        if job_manifest and job_manifest.fingerprint == share:
            run.progress.say(f"another process is putting the shares in {run.out} together")
        else:
            run.progress.say(f"another process writes to {run.out}; when it has ended, start a rank again")


def _make_share(work: Callable[[Any, Run], object], settings: WorkerSettings, run: Run) -> str | None:
    """Make the share of ``run.rank`` in ``run.out``, and mark it as finished.

    The step is run even if the share is finished, so that changed settings are refused and new inputs
    noticed. The result is the fingerprint of the work, or None if the shares of all ranks were put together
    before. If this rank cannot begin because another process is copying its finished share, the result is the
    fingerprint of the finished share.

    Raises:
        BusyError: another process is making the share.
    """
    done = run.out / DONE
    fingerprint: str | None = None

    def begin() -> None:
        nonlocal fingerprint
        fingerprint = read_manifest(run.out).fingerprint
        done.unlink(missing_ok=True)

    try:
        work(settings, replace(run, on_begun=begin))
    except BusyError:
        if size_of(done) is None:
            raise
        return finished_share(run.out)  # another process is copying the finished share
    finally:
        lock.release(run.out)
    if fingerprint is None or size_of(run.out / MANIFEST) is None:
        return None  # no share was begun, or another process has copied and removed it already
    write_json(done, {"fingerprint": fingerprint})
    return fingerprint


def finished_share(folder: Place) -> str | None:
    """The fingerprint of the work whose share is finished in a rank's folder; None if it is unfinished."""
    with reaching(folder, StorageError), suppress(FileNotFoundError, ValueError):
        mark = json.loads((folder / DONE).read_bytes())
        if isinstance(mark, dict):
            if "fingerprint" in mark:
                return str(mark["fingerprint"])
            manifest = manifest_of(folder)  # an earlier version wrote no fingerprint into the mark
            return manifest.fingerprint if manifest else None
    return None


def manifest_of(folder: Place) -> Manifest | None:
    """The manifest of ``folder``; None if it is missing or cannot be read."""
    with suppress(FolderError):
        return read_manifest(folder)
    return None
