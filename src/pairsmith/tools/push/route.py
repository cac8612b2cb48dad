"""The step ``push``: upload a folder to the Hub, or in a dry run write the same files to a folder.

folder -> checks -> files to upload, with names in place of paths -> one commit, or a folder with these files
"""

from collections.abc import Mapping
from pathlib import Path

from pairsmith.core.errors import FolderError, SettingsError, counted, size_text
from pairsmith.core.paths import files_below
from pairsmith.runs import Run, hash_file, refuse_source
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import hash_bytes, storage_errors, write_atomic
from pairsmith.tools.push.hub import check_repository, endpoint, send
from pairsmith.tools.push.parts import FileContent, Parts, parts_of
from pairsmith.tools.record import recorded
from pairsmith.tools.settings import PushSettings

PUSH_RECORD = "push.json"


def push(settings: PushSettings, run: Run) -> str | None:
    """Upload a folder, and record the upload in ``push.json`` if the run has a folder of its own.

    Returns the URL of the commit; None for a dry run.
    """
    if run.kept:
        refuse_source(run, data=settings.data)
    check_repository(settings.repo)  # also for a dry run
    parts = parts_of(settings.data, settings.repo, endpoint())
    size = sum(file.stat().st_size if isinstance(file, Path) else len(file) for file in parts.files.values())
    what = f"{counted(len(parts.files), 'files')} of a {parts.kind}, {size_text(size)}"
    if settings.dry_run:
        _write(parts.files, run)
        run.progress.say(f"nothing was uploaded; {run.out} holds what would be uploaded: {what}")
        return None
    run.progress.say(f"uploading {what} to {settings.repo}")
    address = _recorded(settings, run, parts) if run.kept else send(parts, settings)
    run.progress.result(address)
    return address


def _write(files: Mapping[str, FileContent], run: Run) -> None:
    """Write the files into the run's folder; only ``--fresh`` replaces different files of the same names."""
    if not isinstance(run.out, Path):
        raise SettingsError(f"--out {run.out}: a dry run writes no store; give a folder on this machine")
    if run.out.is_file():
        raise FolderError(f"--out {run.out} is a file; give a new or empty folder")
    others = [name for name in files_below(run.out) if name not in files]
    if others:
        raise FolderError(
            f"--out {run.out} holds files that would not be uploaded ({others[0]}); give a new or empty "
            "folder as --out"
        )
    for name, content in files.items():
        with storage_errors(run.out / name):
            exists = (run.out / name).is_file() and not run.fresh
            differs = exists and _hash(content) != hash_file(run.out / name)
        if differs:
            raise FolderError(
                f"--out {run.out} holds a different {name}; give a new or empty folder, or --fresh to "
                "overwrite it"
            )
    for name, content in files.items():
        with storage_errors(run.out / name):
            data = content if isinstance(content, bytes) else content.read_bytes()
        write_atomic(run.out / name, data)


def _hash(content: FileContent) -> str:
    return hash_bytes(content) if isinstance(content, bytes) else hash_file(content)


def _recorded(settings: PushSettings, run: Run, parts: Parts) -> str:
    """Upload the files, and record the URL of the commit and the hashes of the files in ``push.json``."""
    hashes = {name: _hash(content) for name, content in parts.files.items()}
    identity = Identity.of("push", settings.deciding(), inputs=hashes, models={})
    # Every call uploads again: the files on the Hub may have been changed there.
    with recorded(run, identity, PUSH_RECORD, any_work=True) as save:
        save()
        run.on_begun()
        address = send(parts, settings)
        save(complete=True, commit=address)
    return address
