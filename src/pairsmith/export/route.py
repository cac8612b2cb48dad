"""The step ``export``: a data set in the form of another tool."""

from collections.abc import Callable, Mapping
from functools import partial

from pairsmith.export.forms import FORMS
from pairsmith.export.settings import ExportSettings
from pairsmith.places import Place
from pairsmith.records.kinds import is_whole, kind_of
from pairsmith.records.sources import splits_of
from pairsmith.runs import DatasetFolder, Run, hash_source, lock, refuse_source, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.croissant import CROISSANT, as_json, describe, schemas_of
from pairsmith.runs.folder import Manifest, read_manifest
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import write_atomic

RECORD = "export.json"
Content = Callable[[], bytes]


def export(settings: ExportSettings, run: Run) -> list[Place]:
    """Write the files of the form into the run's folder, over those of an earlier call.

    Returns:
        the files.

    Raises:
        FolderError: the run's folder holds something else, or rows of other data; for ``croissant``, the
            data are no finished dataset folder.
        InputError: the rows cannot be read.
        SettingsError: rows of this kind have no such form.
        StorageError: a file cannot be written.
    """
    refuse_source(run, data=settings.data)
    written = _with_croissant(settings.data) if settings.form == "croissant" else _rows(settings, run)
    identity = Identity.of(
        "export",
        settings.model_dump(mode="json", exclude={"data"}),
        inputs={"data": hash_source(settings.data)},
        models={},
    )
    claim(run, identity, RECORD, lambda out: read_manifest(out, RECORD, Manifest))
    try:
        write_json(run.out / RECORD, identity.as_record())
        for name, content in written.items():
            write_atomic(run.out / name, content())
        write_json(run.out / RECORD, identity.as_record() | {"complete": True})
    finally:
        lock.release(run.out)
    for name in written:
        run.progress.say(f"wrote {run.out / name}")
    return [run.out / name for name in written]


def _rows(settings: ExportSettings, run: Run) -> Mapping[str, Content]:
    """The files of a form of rows; they are made before anything is written, as rows may not fit."""
    kind = kind_of(settings.data)
    every = {split: list(kind.read(source)) for split, source in splits_of(settings.data).items()}
    rows = {split: [row for row in there if is_whole(row, kind)] for split, there in every.items()}
    if left_out := sum(map(len, every.values())) - sum(map(len, rows.values())):
        run.progress.say(f"left out, as no answer stands in their context: {left_out:,} questions")
    return {
        name: partial(str.encode, "".join(f"{line}\n" for line in lines))
        for name, lines in FORMS[settings.form](rows, kind)
    }


def _with_croissant(data: str) -> Mapping[str, Content]:
    """The Parquet files of a dataset folder as they are, and what describes them."""
    folder = DatasetFolder.open(data)
    described = as_json(describe(folder.manifest, schemas_of(folder)))
    files = [file.path for shard in folder.manifest.shards for file in shard.files]
    return {
        CROISSANT: lambda: described,
        **{name: (folder.path / name).read_bytes for name in files},
    }
