"""Claiming an output folder: it has to be empty, or to hold the same step's work with the same settings.

Every step writes a record of its identity into its folder (``manifest.json``, ``training.json``,
``results.json`` or another file name of its own), so that no step overwrites the work of another.
"""

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from pairsmith import __version__
from pairsmith.core.errors import FolderError, OtherWorkError, StorageError
from pairsmith.core.folder_kinds import folder_kind
from pairsmith.core.paths import (
    MANIFEST,
    MANIFEST_COPY,
    Place,
    inside,
    is_folder,
    is_inside,
    place,
    reaching,
    same_place,
    size_of,
)
from pairsmith.core.progress import Progress
from pairsmith.core.settings import option_name
from pairsmith.data.splits import split_of
from pairsmith.runs import lock
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.lease import LEASE
from pairsmith.runs.log import log
from pairsmith.runs.manifest import M, Manifest, read_manifest
from pairsmith.runs.ranks import Rank, is_rank_folder, rank_folders
from pairsmith.runs.storage import is_temporary, make_folder, storage_errors

_NO_WORK = re.compile(rf"{re.escape(LEASE)}|\.DS_Store|\.nfs[0-9a-f]+")
"""Names of files that a folder without work may have: macOS adds the second, and NFS adds the third in place
of a removed file that is still open."""


@dataclass(frozen=True)
class Run:
    """Where a step writes, how it reports progress, and whether it starts over.

    Attributes:
        out: the folder to write to.
        progress: shows messages and progress bars.
        fresh: whether to replace what an earlier run left in ``out``, instead of continuing it.
        on_begun: called once ``out`` is recorded as this run's folder; from then on, the same step without
            ``fresh`` continues the work.
        kept: whether the user gave a folder; if not, nothing is written.
        rank: the rank of an array job if ``out`` is its folder or a part of it, else None.
        within: the names of the subfolders that lead from the step's folder to ``out``.
        options: the step's options in words, for the card; empty in a subfolder.
    """

    out: Place
    progress: Progress
    fresh: bool = False
    on_begun: Callable[[], None] = lambda: None
    kept: bool = True
    rank: Rank | None = None
    within: tuple[str, ...] = ()
    options: str = ""

    def part(self, name: str) -> Self:
        """The run of a part of the work, in the subfolder ``name``."""
        within = (*self.within, name)
        return replace(self, out=self.out / name, on_begun=lambda: None, within=within, options="")

    @property
    def job_folder(self) -> Place:
        """The folder in which the shares of all ranks are put together; ``out`` if this is no array job."""
        return self._step_folder.joinpath(*self.within)

    def rank_folders(self) -> list[Place]:
        """The folders of the ranks whose shares belong into ``out``; none if this run is itself a rank."""
        return [] if self.rank is not None else rank_folders(self._step_folder, self.within)

    def folders_of_job(self) -> list[Place]:
        """``out``, ``job_folder`` and the folders of all ranks for it, each once."""
        return list(dict.fromkeys([self.out, self.job_folder, *rank_folders(self._step_folder, self.within)]))

    @property
    def _step_folder(self) -> Place:
        """The folder of the whole step, of which ``out`` is a part or the share of a rank."""
        folder = self.out
        for _ in range(len(self.within) + (self.rank is not None)):
            folder = folder.parent
        return folder

    def tell(self, event: str, text: str) -> None:
        """Report ``text`` as progress, and add it to the folder's log."""
        self.progress.say(text)
        log(self.out, event, text=text)


def claim(
    run: Run,
    identity: Identity,
    record: str,
    read: Callable[[Place], M],
    extends: Callable[[M], bool] = lambda _: False,
    *,
    in_parts: bool = True,
) -> M | None:
    """Create ``run.out``, lock it, and return the record that an earlier run of the same work left there.

    ``lock.release`` unlocks the folder. A folder that cannot be written to is not locked if the work in it is
    finished.

    Args:
        run: where to write; with ``fresh``, the record may be of other work of the same step.
        identity: the work to be done.
        record: file name of the step's record.
        read: reads the record from the folder; raises a ``FolderError`` if pairsmith did not write it.
        extends: called with a record of other work; returns whether the work to be done includes all of the
            other work, so that finished rows can be kept.
        in_parts: whether finished parts of the work are kept, so that another version may have made them.

    Returns:
        the record, or None if the folder has none.

    Raises:
        FolderError: the folder holds other work or other files, or another process is writing to it.
    """
    refuse_foreign(run.out, record)
    with storage_errors(run.out):
        make_folder(run.out)
    try:
        lock.acquire(run.out, run.progress.say)
    except StorageError as error:
        if not _is_read_only(error) or run.fresh:
            raise
        finished = _read(run.out, record, read)
        if finished is None or not finished.has_finished(identity.fingerprint):
            raise
        return finished  # nothing needs to be written
    try:
        earlier = _read(run.out, record, read)
        if earlier is not None and not run.fresh:
            refuse_other_work(run, run.out, earlier, identity, extends)
        elif earlier is not None and earlier.step != identity.step:
            raise FolderError(
                f"{run.out} holds the work of {earlier.step}, not of {identity.step}; "
                "give another folder as --out"
            )
    except FolderError:
        lock.release(run.out)
        raise
    begun = in_parts and earlier and not run.fresh and not earlier.has_finished(identity.fingerprint)
    if earlier and begun and earlier.pairsmith != __version__:
        run.progress.say(
            f"{run.out} was begun by pairsmith {earlier.pairsmith}, and this is {__version__}: finished "
            "parts are kept, and the others may differ from what that version would have made"
        )
    return earlier


def _is_read_only(error: StorageError) -> bool:
    """Whether the cause of the error is a read-only file system, or a missing permission to write."""
    cause = error.__cause__
    return isinstance(cause, PermissionError) or getattr(cause, "errno", None) == errno.EROFS


def refuse_other_work(
    run: Run, out: Place, earlier: M, identity: Identity, extends: Callable[[M], bool]
) -> None:
    """Raise ``OtherWorkError`` unless the work ``earlier`` in ``out`` can be continued (see ``claim``).

    ``out`` is ``run.out``, or in a rank of an array job the folder of all ranks.
    """
    changes = differences(earlier, identity)
    if not changes or extends(earlier):
        return
    state = "a finished" if earlier.complete else "an unfinished"
    if earlier.step != identity.step:  # all settings differ, so their list would tell nothing
        raise OtherWorkError(
            f"{out} holds {state} run of {earlier.step}, not of {identity.step}; "
            "give another folder as --out",
            "settings",
        )
    shown = "; ".join(changes[:8]) + (f"; and {len(changes) - 8} more" if len(changes) > 8 else "")
    changed = "inputs" if all(change.startswith("input ") for change in changes) else "settings"
    other = "on other inputs" if changed == "inputs" else "with other settings"
    message = f"{out} holds {state} run of {earlier.step} {other}: {shown}\ngive another folder as --out"
    if run.rank is not None:
        raise OtherWorkError(f"{message}, or remove {run.job_folder} to start over in this one", changed)
    parts = _reusable_parts(out, earlier)
    kept = f"; what is unchanged in its folders {', '.join(parts)} is used again" if parts else ""
    raise OtherWorkError(f"{message}, or --fresh to start over in this one{kept}", changed)


def refuse_source(run: Run, **sources: str) -> None:
    """Refuse to write over a step's sources, or into a folder of which a source reads all files.

    In such a folder, the step's own files would change the source, so that the step could not be continued.
    It is a folder that is neither a model nor written by pairsmith. ``sources`` maps an option's name to its
    value.
    """
    for option, source in sources.items():
        name, split = split_of(source)
        folder = place(name)
        if same_place(folder, run.out):
            raise FolderError(f"--out {run.out} is what --{option} reads; give another folder as --out")
        with reaching(folder, FolderError):
            all_is_read = not split and is_inside(run.out, folder) and is_folder(folder)
            if all_is_read and not folder_kind(folder):
                raise FolderError(
                    f"--out {run.out} is inside {option_name(option)} {source}; give a folder outside of it"
                )


def _read(out: Place, record: str, read: Callable[[Place], M]) -> M | None:
    if not _has_record(out, record):
        return None
    try:
        return read(out)
    except FolderError as error:
        raise FolderError(f"{error}; give another folder as --out") from error


def _has_record(out: Place, record: str) -> bool:
    """Whether a step's record exists, or a copy from which it can be restored."""
    return size_of(out / record) is not None or (
        record == MANIFEST and size_of(out / MANIFEST_COPY) is not None
    )


def refuse_foreign(out: Place, record: str) -> None:
    """Raise ``FolderError`` if ``out`` has files, but no record of the step."""
    with reaching(out, StorageError):
        if size_of(out) is not None:
            raise FolderError(f"{out} is a file; --out needs a new or empty folder")
        if _has_record(out, record):
            return
        others = sorted(
            file.name
            for file in inside(out)
            if not (is_temporary(file) or is_rank_folder(file) or _NO_WORK.fullmatch(file.name))
        )
        if others:
            names = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            what = folder_kind(out) or f"something else ({names}) and no {record} of pairsmith"
            raise FolderError(f"{out} holds {what}; give a new or empty folder as --out")


def _reusable_parts(out: Place, earlier: Manifest) -> list[str]:
    """The names of the subfolders of a step's work that may be used again when the step starts over.

    A part that depends on all settings and inputs of the step is always made again, so its name is left out.
    """
    names = []
    for folder in inside(out):
        if is_rank_folder(folder) or size_of(folder / MANIFEST) is None:
            continue
        with suppress(FolderError):  # a damaged part is made again
            part = read_manifest(folder)
            if (part.settings, part.inputs) != (earlier.settings, earlier.inputs):
                names.append(folder.name)
    return sorted(names)
