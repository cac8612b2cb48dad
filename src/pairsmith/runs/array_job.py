"""Array jobs: many processes (ranks), each of which makes its share of a step's shards.

Slurm, PBS and Kubernetes start such processes. The ranks communicate only by a shared folder. The rank that
is ready last puts the shares of all ranks together.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pairsmith.core.errors import BusyError, SettingsError, StorageError
from pairsmith.core.fields import WorkerSettings
from pairsmith.core.paths import MANIFEST, Place, reaching, several, size_of
from pairsmith.runs import lock
from pairsmith.runs.claim import Run
from pairsmith.runs.manifest import read_manifest
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

    ``work`` runs the step. It is called with the rank's own folder, and in the last rank with ``run.out``.
    """
    if run.fresh:
        raise SettingsError(f"--fresh does not go with --executor array; remove {run.out} to start over")
    share = _make_share(work, settings, replace(run, out=run.out / rank.name, rank=rank))
    if share is None:
        return
    folders = [run.out / Rank(number, rank.size).name for number in range(rank.size)]
    shares = list(several(_finished_share, folders))
    missing = [number for number, other in enumerate(shares) if other != share]
    if missing:
        state = f"not finished yet: {few_numbers(missing)}"
        # Their shares may be of work that has grown since.
        if differing := [number for number in missing if shares[number] is not None]:
            state += f" (other inputs or settings: {few_numbers(differing)}; start them again with these)"
        run.progress.say(f"rank {rank.number} of {rank.size} has made its share; {state}")
        return
    try:
        work(settings, run)
    except BusyError:
        run.progress.say(f"another process is putting the shares in {run.out} together")


def _make_share(work: Callable[[Any, Run], object], settings: WorkerSettings, run: Run) -> str | None:
    """Make the share of ``run.rank`` in ``run.out``, and mark it as finished.

    The work is begun even if the share is finished, so that other settings are refused and added inputs seen.
    The result is the fingerprint of the work, or None if the shares of all ranks were put together before.
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
        return _finished_share(run.out)  # another process is copying the finished share
    finally:
        lock.release(run.out)
    if fingerprint is None or size_of(run.out / MANIFEST) is None:
        return None  # no share was begun, or another process has copied and removed it already
    write_json(done, {"fingerprint": fingerprint})
    return fingerprint


def _finished_share(folder: Place) -> str | None:
    """The fingerprint of the work whose share is finished in a rank's folder; None if it is unfinished."""
    with reaching(folder, StorageError), suppress(FileNotFoundError, ValueError, KeyError):
        fingerprint: str = json.loads((folder / DONE).read_bytes())["fingerprint"]
        return fingerprint
    return None
