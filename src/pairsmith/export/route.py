"""The step ``export``: a data set in the form of another tool."""

from pairsmith.export.forms import FORMS
from pairsmith.export.settings import ExportSettings
from pairsmith.places import Place
from pairsmith.records.kinds import kind_of
from pairsmith.records.sources import splits_of
from pairsmith.runs import Run, hash_source, lock, refuse_source, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.folder import Manifest, read_manifest
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import write_atomic

RECORD = "export.json"


def export(settings: ExportSettings, run: Run) -> list[Place]:
    """Write the files of the form into the run's folder, over those of an earlier call.

    Returns:
        the files.

    Raises:
        FolderError: the run's folder holds something else, or rows of other data.
        InputError: the rows cannot be read.
        SettingsError: rows of this kind have no such form.
        StorageError: a file cannot be written.
    """
    refuse_source(run, data=settings.data)
    kind = kind_of(settings.data)
    identity = Identity.of(
        "export",
        settings.model_dump(mode="json", exclude={"data"}),
        inputs={"data": hash_source(settings.data)},
        models={},
    )
    rows = {split: list(kind.read(source)) for split, source in splits_of(settings.data).items()}
    written = list(FORMS[settings.form](rows, kind))
    claim(run, identity, RECORD, lambda out: read_manifest(out, RECORD, Manifest))
    try:
        write_json(run.out / RECORD, identity.as_record())
        for name, lines in written:
            write_atomic(run.out / name, "".join(f"{line}\n" for line in lines).encode())
        write_json(run.out / RECORD, identity.as_record() | {"complete": True})
    finally:
        lock.release(run.out)
    for name, _ in written:
        run.progress.say(f"wrote {run.out / name}")
    return [run.out / name for name, _ in written]
