"""Reads and repairs the shards that earlier runs or the ranks of an array job left in a folder."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pairsmith.core.errors import (
    BusyError,
    DamagedError,
    FolderError,
    OtherWorkError,
    PairsmithError,
    StorageError,
    first_line,
)
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import (
    JOURNAL,
    MANIFEST,
    Place,
    files_below,
    inside,
    is_folder,
    map_in_threads,
    name_in,
    reaching,
    remove_files,
    size_of,
)
from pairsmith.runs import lock
from pairsmith.runs.claim import Run, refuse_foreign, refuse_other_work
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.journal import Journal, read_run
from pairsmith.runs.lease import LEASE
from pairsmith.runs.log import log, working_seconds
from pairsmith.runs.manifest import REJECTS, SHARD_FILE, Manifest, ShardEntry, read_manifest, run_of
from pairsmith.runs.ranks import Rank, is_rank_folder, rank_folders
from pairsmith.runs.storage import clear_temporary, storage_errors


def read_or_restore_manifest(run: Run) -> Manifest:
    """The manifest of ``run.out``; if it is missing or damaged, the copy of it in the journal."""
    try:
        return read_manifest(run.out)
    except FolderError as error:
        missing = size_of(run.out / MANIFEST) is None
        kept = read_run(run.out) if missing or isinstance(error, DamagedError) else None
        if kept is None:
            raise
        run.tell("damaged", f"{first_line(error)}; restored from the journal")
        return kept


def entries_of(manifest: Manifest, journal: Journal) -> dict[int, ShardEntry]:
    """The finished shards of a folder: listed in its manifest when it is complete, else in its journal."""
    if manifest.complete:
        return {entry.shard: entry for entry in manifest.shards}
    # A line of another run was added by a process that had lost the folder and did not know this yet.
    run = run_of(manifest.base)
    return {number: entry for number, entry in journal.entries.items() if entry.run == run}


def has_saved_parts(out: Place) -> bool:
    """Whether ``out`` contains folders for parts of the work (``mapped.start_part``) with a saved shard."""
    folders = (folder for folder in inside(out) if is_folder(folder) and not is_rank_folder(folder))
    return any(_has_shards(folder) for folder in folders if size_of(folder / MANIFEST) is not None)


def _has_shards(part: Place) -> bool:
    try:
        manifest = read_manifest(part)
    except FolderError:
        return True  # the manifest is damaged, so it is unknown which work would be lost
    journal = Journal.read(part)
    return manifest.complete or bool(journal.entries) or journal.bad > 0


def intact_work(
    run: Run, manifest: Manifest, earlier: Manifest | None
) -> tuple[Journal, dict[int, ShardEntry], Manifest | None]:
    """What an ``earlier`` run left in ``run.out``: journal, unchanged shards, and its manifest or None.

    The manifest is returned only if that run finished all the work of ``manifest``, so that nothing is left
    to do.
    """
    if earlier is None:
        return Journal(run.out), {}, None
    journal = Journal.read(run.out)
    if journal.bad and not earlier.complete:
        lines = "a line is" if journal.bad == 1 else f"{journal.bad} lines are"
        text = f"{run.out / JOURNAL}: {lines} incomplete; the work recorded there is done again"
        run.tell("damaged", text)
    listed = entries_of(earlier, journal)
    entries = unchanged_shards(run, listed.values())
    same = earlier.fingerprint == manifest.fingerprint and len(entries) == len(listed)
    done = earlier.complete and same and size_of(run.out / "README.md") is not None
    return journal, entries, earlier if done else None


def unchanged_shards(run: Run, entries: Iterable[ShardEntry]) -> dict[int, ShardEntry]:
    """By number, the shards of ``entries`` whose files are unchanged, according to their hashes.

    For each other shard, a message says which file has changed.
    """

    def damaged(entry: ShardEntry) -> Place | None:
        for file in entry.files:
            path = run.out / file.path
            with reaching(path, StorageError):
                if size_of(path) != file.bytes or hash_file(path) != file.sha256:
                    return path
        return None

    sound, finished = {}, list(entries)
    for entry, path in zip(finished, map_in_threads(damaged, finished), strict=True):
        if path is None:
            sound[entry.shard] = entry
        else:
            run.tell("damaged", f"{path} has changed since it was written; shard {entry.shard} is made again")
    return sound


def remove_unlisted_files(out: Place, entries: Iterable[ShardEntry]) -> None:
    """Remove temporary files, and shard files that no entry lists."""
    listed = {file.path for entry in entries for file in entry.files}
    for folder in (out, out / JOURNAL):
        clear_temporary(folder)
    for folder in (out / "data", out / REJECTS):
        clear_temporary(folder)
        with storage_errors(folder):
            names = {path: name_in(out, path) for path in inside(folder)}
            shard_files = [path for path, name in names.items() if SHARD_FILE.fullmatch(name)]
            remove_files([path for path in shard_files if names[path] not in listed])


def share_in_job_folder(run: Run, rank: Rank, base: str) -> tuple[dict[int, ShardEntry], Manifest | None]:
    """The shards of a rank's share that ``run.job_folder`` has already, and the manifest of that folder.

    Shards that have changed since they were written are left out; the manifest is None if there are any. If
    the folder has other work or none, the result is ``({}, None)``. ``run`` is the run of the rank; ``base``
    identifies its work apart from inputs and settings that may grow (``Identity.base``).
    """
    folder = run.job_folder
    with suppress(FolderError):
        manifest = read_or_restore_manifest(replace(run, out=folder))
        if manifest.base == base:
            entries = entries_of(manifest, Journal.read(folder)).values()
            listed = [entry for entry in entries if rank.has(entry.shard)]
            intact = unchanged_shards(replace(run, out=folder), listed)
            return intact, manifest if len(intact) == len(listed) else None
    return {}, None


def refuse_job_folder(run: Run, identity: Identity, extends: Callable[[Place, Manifest], bool]) -> None:
    """Raise ``FolderError`` if the share of a rank could never be put into the job's folder.

    See ``locked_shares`` for ``extends``.
    """
    folder = run.job_folder
    refuse_foreign(folder, MANIFEST)
    if size_of(folder / MANIFEST) is not None:
        with suppress(DamagedError):  # whoever puts the shares together restores the manifest
            refuse_other_work(run, folder, read_manifest(folder), identity, partial(extends, folder))


def refuse_other_ranks(run: Run, identity: Identity, base: str) -> None:
    """Raise ``OtherWorkError`` if another rank's share was begun with other settings or inputs.

    Such shares could never be put together. Shares whose ``base`` (``Identity.base``) is equal are allowed:
    the work may have grown, and ranks extend their shares one after the other. ``run`` is the run of a rank.
    """
    for folder in rank_folders(run.job_folder):
        if folder != run.out and size_of(folder / MANIFEST) is not None:
            with suppress(DamagedError):  # that rank restores its manifest
                other = read_manifest(folder)
                if identity.fingerprint != other.fingerprint and base != other.base:
                    raise _other_share(run, folder, other, identity)


def _other_share(run: Run, folder: Place, other: Manifest, identity: Identity) -> OtherWorkError:
    """The error for a rank's folder that holds ``other`` work than ``identity``."""
    shown = "; ".join(differences(other, identity)[:8])
    remedy = f"remove {run.job_folder}" if run.rank else "--fresh"
    return OtherWorkError(
        f"{folder} holds the share of an array job with other settings or inputs: {shown}\n"
        f"give the settings of that job, or {remedy} to start over without it"
    )


@contextmanager
def locked_shares(
    run: Run, identity: Identity, extends: Callable[[Place, Manifest], bool]
) -> Iterator[list[tuple[Place, Manifest]]]:
    """A context in which no rank can write its share; it yields the folders of ranks and their manifests.

    If the step starts over, the folders of all ranks are removed instead: a share of earlier work that stayed
    would be refused when the new work is continued.

    Args:
        run: the run that writes to the job's folder.
        identity: its work.
        extends: called with a rank's folder and its manifest of other work; returns whether the work of
            ``run`` includes all of the other work.

    Raises:
        BusyError: a rank is still running.
        OtherWorkError: a rank's folder holds work with other settings or inputs.
    """
    anew = run.fresh and not run.within
    folders = run.rank_folders()
    if not anew:
        folders = [folder for folder in folders if size_of(folder / MANIFEST) is not None]
    locked: list[Place] = []

    def lock_folder(folder: Place) -> None:
        if not _lock_rank(folder, run):
            raise BusyError(f"{folder} is being written by a rank of an array job; wait for it")
        locked.append(folder)

    try:
        # All at once, as it can take half a minute to see whether the lease of a folder is stale.
        list(map_in_threads(lock_folder, folders))
        if anew:
            list(map_in_threads(remove_rank_folder, folders))
        shares = []
        for folder in [] if anew else folders:
            rank_manifest = read_or_restore_manifest(replace(run, out=folder))
            if rank_manifest.fingerprint == identity.fingerprint or extends(folder, rank_manifest):
                shares.append((folder, rank_manifest))
            elif not run.within:  # a part that was made for other work is removed with the other shares
                raise _other_share(run, folder, rank_manifest, identity)
        yield shares
    finally:
        for folder in locked:
            lock.release(folder)


def _lock_rank(folder: Place, run: Run) -> bool:
    """Lock the folder of a rank; False if the rank is running."""
    if lock.is_held(folder):
        return False
    try:  # a rank on a machine with another clock may be running all the same
        lock.acquire(folder, run.progress.say)
    except BusyError:
        return False
    return True


def copy_share(
    folder: Place, rank_manifest: Manifest, run: Run, add: Callable[[Place, ShardEntry], None]
) -> None:
    """Copy a share of ``locked_shares`` to ``run.out``, and remove its shards from the rank's folder.

    ``add`` copies a shard; it is called with the folder and the shard.
    """
    journal = Journal.read(folder)
    entries = entries_of(rank_manifest, journal)
    with reaching(folder, FolderError):
        for entry in entries.values():
            add(folder, entry)
    if entries:
        shards = "shard" if len(entries) == 1 else "shards"
        run.progress.say(f"copied {len(entries):,} {shards} from {folder}")
        begun = rank_manifest.created  # with it, the log tells ranks of one name in several jobs apart
        log(run.out, "share", rank=folder.name, begun=begun, seconds=working_seconds(folder, begun))
    for locked in (run.out, folder):
        lock.check(locked)  # copying may have taken long; another process may need these shards
    journal.clear()  # before the files, so that no line lists a missing file if the rank starts again
    with storage_errors(folder):
        remove_files([folder / file.path for entry in entries.values() for file in entry.files])


def remove_rank_folders(run: Run, finished_manifest: Manifest) -> None:
    """Remove the folders of ranks that are not running, after the work of ``run.out`` was finished.

    Ranks that were started meanwhile to add to the work keep their shards.
    """

    def remove(folder: Place) -> None:
        if not _lock_rank(folder, run):
            return
        try:
            if not _has_shards_to_add(folder, finished_manifest):
                remove_rank_folder(folder)
        finally:
            lock.release(folder)

    list(map_in_threads(remove, run.rank_folders()))


def _has_shards_to_add(folder: Place, finished_manifest: Manifest) -> bool:
    """Whether a rank's folder has shards of other work than the finished one, or may have some."""
    with suppress(PairsmithError), reaching(folder, StorageError):  # True if it is unreadable
        try:
            manifest = read_manifest(folder) if size_of(folder / MANIFEST) is not None else None
        except DamagedError:
            manifest = read_run(folder)
        if manifest is not None and manifest.fingerprint == finished_manifest.fingerprint:
            return False
        journal = Journal.read(folder)  # without lines if another run has copied the shards
        return bool(journal.entries) or journal.bad > 0 or has_saved_parts(folder)
    return True


def remove_rank_folder(folder: Place) -> None:
    """Remove the folder of a rank that this process has locked.

    The manifest is removed last: if the process is killed before that, pairsmith still recognises the folder.
    """
    with storage_errors(folder):
        if isinstance(folder, Path):
            with suppress(OSError):  # a file that cannot be removed is left, with the manifest
                for path in folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.name not in (MANIFEST, LEASE):
                        path.unlink()
                shutil.rmtree(folder)
        else:
            files = files_below(folder)
            others = [path for name, path in files.items() if name not in (MANIFEST, LEASE)]
            remove_files(others)
            remove_files([folder / MANIFEST])
