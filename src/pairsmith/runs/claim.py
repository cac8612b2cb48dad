"""Whose an output folder is: a step takes an empty one, or one with its own work of the same settings.

Every step leaves a record of its identity in its folder (``manifest.json``, ``training.json``,
``results.json``), under its own file name, so that no step writes over what another one made.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pairsmith.errors import FolderError, OtherWorkError
from pairsmith.places import Place, inside, place, same_place, size_of
from pairsmith.progress import Progress
from pairsmith.records.splits import split_of
from pairsmith.runs import lock
from pairsmith.runs.folder import MANIFEST, MENDS, M, Manifest
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.lease import LEASE
from pairsmith.runs.log import log
from pairsmith.runs.storage import is_temporary, make_folder, storage_errors


@dataclass(frozen=True)
class Run:
    """Where a step writes, how it tells its progress, and whether it starts over what is there.

    A step calls ``on_begun`` when the folder says that it is this run's: from then on the same step
    without ``fresh`` goes on with it. ``kept`` is false where no folder was given, and nothing is written.
    """

    out: Place
    progress: Progress
    fresh: bool = False
    on_begun: Callable[[], None] = lambda: None
    kept: bool = True

    def tell(self, event: str, text: str) -> None:
        """Say ``text``, and put it into the folder's log."""
        self.progress.say(text)
        log(self.out, event, text=text)


def claim(
    run: Run,
    identity: Identity,
    record: str,
    read: Callable[[Place], M],
    extends: Callable[[M], bool] = lambda _: False,
) -> M | None:
    """Make ``run.out``, lock it, and read the record that an earlier run of the same work left there.

    Args:
        run: where to write; with ``fresh``, the record may be of another work of the same step.
        identity: the work that is to be done.
        record: file name of the step's record.
        read: reads it from the folder, and raises a ``FolderError`` where it is not ours.
        extends: whether the work to be done holds all of other work that is there, which can be kept then.

    Returns:
        What ``read`` gave, or None for a folder without a record. ``lock.release`` gives the folder back.

    Raises:
        FolderError: the folder holds something else or other work, or another run is writing to it.
        StorageError: it cannot be made.
    """
    with storage_errors(run.out):
        _refuse_foreign(run.out, record)
        make_folder(run.out)
    lock.acquire(run.out, run.progress.say)
    try:
        there = _read(run.out, record, read)
        if there is not None and run.fresh and there.step != identity.step:
            raise FolderError(
                f"{run.out} holds the work of {there.step}, not of {identity.step}; "
                "give another folder as --out"
            )
        if there is not None and not run.fresh:
            found = differences(there, identity)
            if found and not extends(there):
                raise OtherWorkError(_other_work(run.out, there, found))
    except FolderError:
        lock.release(run.out)
        raise
    return there


def refuse_source(run: Run, **sources: str) -> None:
    """Refuse to write over what a step reads; ``sources`` go from an option's name to its value.

    Raises:
        FolderError: a source is the run's folder.
    """
    for option, source in sources.items():
        if same_place(place(split_of(source)[0]), run.out):
            raise FolderError(f"--out {run.out} is what --{option} reads; give another folder as --out")


def _read(out: Place, record: str, read: Callable[[Place], M]) -> M | None:
    if not _has_record(out, record):
        return None
    try:
        return read(out)
    except FolderError as error:
        raise FolderError(f"{error}; give another folder as --out") from error


def _has_record(out: Place, record: str) -> bool:
    """Whether a step's record is there, or what mends it."""
    return size_of(out / record) is not None or (record == MANIFEST and size_of(out / MENDS) is not None)


def _refuse_foreign(out: Place, record: str) -> None:
    if size_of(out) is not None:
        raise FolderError(f"{out} is a file; --out needs a new or empty folder")
    if _has_record(out, record):
        return
    others = sorted(
        file.name for file in inside(out) if not is_temporary(file) and file.name not in (".DS_Store", LEASE)
    )
    if others:
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise FolderError(
            f"{out} holds something else ({some}) and no {record} of pairsmith; "
            "give a new or empty folder as --out"
        )


def _other_work(out: Place, there: Manifest, found: list[str]) -> str:
    shown = "; ".join(found[:8]) + (f"; and {len(found) - 8} more" if len(found) > 8 else "")
    state = "a finished" if there.complete else "an unfinished"
    return (
        f"{out} holds {state} run of {there.step} with other settings: {shown}\n"
        "give another folder as --out, or --fresh to start over in this one"
    )
