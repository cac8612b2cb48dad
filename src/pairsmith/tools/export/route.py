"""The step ``export``: write a data set in the format of another tool."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pairsmith.core.errors import InputError, counted
from pairsmith.core.folder_kinds import json_object
from pairsmith.core.paths import Place
from pairsmith.data.kinds import (
    WITH_NEGATIVES,
    has_kind,
    is_complete,
    read_with_other_columns,
    row_kind,
    what_is_missing,
)
from pairsmith.data.splits import splits_of
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source
from pairsmith.runs.croissant import CROISSANT, as_json, describe
from pairsmith.runs.folder import check_files
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import storage_errors, write_atomic
from pairsmith.tools.export.forms import FORMS, label_names, label_values
from pairsmith.tools.export.table import conll_files, csv_files, jsonl_files, nested, table_rows
from pairsmith.tools.record import recorded
from pairsmith.tools.settings import ExportSettings

EXPORT_RECORD = "export.json"
MakeContent = Callable[[], bytes]
_MOST_SHOWN = 12
"""Largest number of labels that a message lists with their numbers."""


def export(settings: ExportSettings, run: Run) -> list[Place]:
    """Write the files of the format into the run's folder, and return their paths.

    The files that an earlier call wrote there are replaced or deleted.
    """
    refuse_source(run, data=settings.data)
    if settings.form == "croissant":
        written = _with_croissant(settings.data)
    elif settings.form == "conll":
        written = _contents(conll_files(settings.data))
    else:
        whole = settings.form == "csv" or (settings.form == "jsonl" and not has_kind(settings.data))
        written = _table(settings, run) if whole else _rows(settings, run)
    inputs = {"data": hash_source(settings.data)}
    identity = Identity.of("export", settings.deciding(), inputs=inputs, models={})
    with recorded(run, identity, EXPORT_RECORD) as save:
        earlier = [name for name in _earlier_files(run.out) if name not in written]
        save(files=[*written, *earlier])
        for name, content in written.items():
            write_atomic(run.out / name, content())
        for name in earlier:  # another tool would read them as part of this export
            with storage_errors(run.out / name):
                (run.out / name).unlink(missing_ok=True)
        save(files=list(written), complete=True)
    for name in written:
        run.progress.say(f"wrote {run.out / name}")
    return [run.out / name for name in written]


def _earlier_files(out: Place) -> list[str]:
    """The names of the files that an earlier call wrote into ``out``, according to the record there."""
    files = json_object(out / EXPORT_RECORD).get("files")
    if not isinstance(files, list):
        return []
    return [name for name in files if isinstance(name, str) and ".." not in name and not name.startswith("/")]


def _table(settings: ExportSettings, run: Run) -> Mapping[str, MakeContent]:
    """The rows with all their columns, whatever their kind."""
    splits = table_rows(settings.data)
    if not any(splits.values()):
        raise InputError(f"{settings.data} has no rows")
    if settings.form == "jsonl":
        return _contents(jsonl_files(splits))
    if columns := nested(splits):
        run.progress.say(f"columns that hold lists or objects are written as JSON: {', '.join(columns)}")
    return _contents(csv_files(splits))


def _contents(files: Iterable[tuple[str, Iterable[str]]]) -> Mapping[str, MakeContent]:
    return {name: partial(str.encode, "".join(f"{line}\n" for line in lines)) for name, lines in files}


def _rows(settings: ExportSettings, run: Run) -> Mapping[str, MakeContent]:
    """The files of a row format; made before anything is written, as rows may not suit the format."""
    kind = row_kind(settings.data)
    read = partial(read_with_other_columns, kind=kind) if settings.form == "jsonl" else kind.read
    by_split = {split: list(read(source)) for split, source in splits_of(settings.data).items()}
    rows = {split: [row for row in own if is_complete(row, kind)] for split, own in by_split.items()}
    if left_out := sum(map(len, by_split.values())) - sum(map(len, rows.values())):
        what, why = what_is_missing(kind)
        run.progress.say(f"left out {counted(left_out, 'rows')}, as there is {what} ({why})")
    if kind is WITH_NEGATIVES and settings.form in ("sentence-transformers", "scored-tuples"):
        most = max((len(row["negatives"]) for own in rows.values() for row in own), default=0)
        read_rows = sum(map(len, rows.values()))
        rows = {split: [row for row in own if len(row["negatives"]) == most] for split, own in rows.items()}
        if fewer := read_rows - sum(map(len, rows.values())):
            run.progress.say(
                f"left out {counted(fewer, 'rows')} with fewer than {counted(most, 'negatives')}; --form "
                "triplets writes all rows that have any"
            )
    if settings.form == "triplets" and kind is WITH_NEGATIVES:
        without = sum(not row["negatives"] for own in rows.values() for row in own)
        if without:
            run.progress.say(f"left out {counted(without, 'rows')} without negatives")
    written = _contents(FORMS[settings.form](rows, kind))
    if settings.form == "sentence-transformers" and kind.claim == "label":
        _say_numbers(label_names(rows), run)
    return written


def _say_numbers(labels: Sequence[str], run: Run) -> None:
    """Say which number stands for each label, unless the labels are numbers themselves."""
    if not label_values(labels):
        shown = ", ".join(f"{number} for {name!r}" for number, name in enumerate(labels[:_MOST_SHOWN]))
        more = f" … ({len(labels)} in all)" if len(labels) > _MOST_SHOWN else ""
        if len(labels) == 2:
            more = "; ContrastiveLoss takes 1 for pairs that are similar, so exchange the numbers if need be"
        run.progress.say(f"labels are written as numbers, as losses take them: {shown}{more}")


def _with_croissant(data: str) -> Mapping[str, MakeContent]:
    """The Parquet files of a dataset folder, unchanged, and their description in Croissant."""
    folder = DatasetFolder.open(data)
    hashes = {file.path: file.sha256 for file in folder.manifest.shard_files}
    check_files(folder.path, str(folder.path), hashes, folder.manifest.step)
    described = as_json(describe(folder.manifest, folder.schema()))
    return {CROISSANT: lambda: described, **{name: (folder.path / name).read_bytes for name in hashes}}
