"""The progress of a run, read from its folder while it runs or after it ended."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from pairsmith.core.errors import FolderError, counted, one_line
from pairsmith.core.folder_kinds import read_record
from pairsmith.core.paths import (
    CHECKPOINT_RECORD,
    CHECKPOINTS,
    JOURNAL,
    MANIFEST,
    TRAINING_STEP,
    Place,
    inside,
    is_folder,
    map_in_threads,
    name_in,
    reaching,
    size_of,
)
from pairsmith.core.progress import clock
from pairsmith.data.schemas import label_column
from pairsmith.data.tasks import label_text
from pairsmith.runs import lock
from pairsmith.runs.array_job import finished_share, manifest_of
from pairsmith.runs.existing import entries_of
from pairsmith.runs.folder import DatasetFolder
from pairsmith.runs.journal import Journal, read_run
from pairsmith.runs.log import recent_events
from pairsmith.runs.manifest import REJECTS, SHARD_FILE, Manifest, ShardTotals, read_manifest
from pairsmith.runs.ranks import few_numbers, rank_folders, rank_in

_RECORDS = (
    MANIFEST,
    "training.json",
    "audit.json",
    "report.json",
    "export.json",
    "push.json",
    "results.json",
)
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_RATE = re.compile(r"rate-(\d+)")
_MOST_LABELS = 20
"""A column with more different values holds similarities, not labels."""

_MOST_COUNTED = 1_000
"""Labels are counted in folders of at most this many shards, as each shard has to be opened."""


@dataclass(frozen=True, slots=True)
class Status:
    """The progress of one step's folder."""

    step: str  # which step writes it
    complete: bool  # whether it is finished
    running: bool  # whether a process writes to it: on this machine, or for a store on any machine
    shards: int = 0  # number of finished shards, without shards that still have to be extended
    planned: int | None = None  # total number of shards; None if it is unknown
    rows: int = 0  # number of rows in the finished shards, without rejects
    reasons: dict[str, int] | None = None  # maps ``"filter: reason"`` to the number of rejects
    rate: float | None = None  # rows per second since the run was last started; None if it is unknown
    labels: Mapping[str, int] = field(default_factory=dict)  # number of rows of each label; empty if many
    reached: str = ""  # of an unfinished training: the last step that it recorded, in words
    saved: str = ""  # of an unfinished training: its latest checkpoints, in words
    left: float | None = None  # seconds that the remaining shards will take; None if it is unknown
    fault: str = ""  # which files are missing or damaged, and what to do, in words; "" without a fault

    def lines(self, name: str) -> list[str]:
        """The status as lines of text, in which the folder is called ``name``."""
        unfinished = not (self.complete or self.fault)
        if unfinished:
            state = "running" if self.running else "stopped"
        else:
            state = "damaged" if self.fault else "finished"
        parts = [f"{name}: {self.step}, {state}"]
        if self.reasons is not None:
            shards = counted(self.planned or self.shards, "shards")
            shards = f"{self.shards:,} of {shards}" if self.planned else shards
            parts.append(f"{shards}, {counted(self.rows, 'rows')}")
        parts += [text for text in (self.reached, self.saved) if text]
        if self.rate and unfinished:
            parts.append(f"{self.rate:,.1f} rows/s")
        if self.left is not None and self.running:
            parts.append(f"{clock(self.left)} left")
        rejects = [
            f"    {number:>9,} {reason}" for reason, number in Counter(self.reasons or {}).most_common()
        ]
        total = sum((self.reasons or {}).values())
        labels = [f"    {number:>9,} of label {one_line(name)}" for name, number in self.labels.items()]
        heading = [f"  {counted(total, 'rejects')}"] if rejects else []
        fault = [f"  {self.fault}"] if self.fault else []
        return [" · ".join(parts), *fault, *labels, *heading, *rejects]


def status_of(folder: Place) -> Status | None:
    """The status of a step's folder; None if it has no record of a step, nor a copy in its journal."""
    for name in _RECORDS:
        if about := _record(folder, name):
            if name == MANIFEST:
                return _of_dataset(folder, read_manifest(folder))
            complete = bool(about.get("complete"))
            running = not complete and lock.is_held(folder)
            if complete:
                return Status(about["step"], complete, running)
            settings = about.get("settings")
            rates = settings.get("learning_rate") if isinstance(settings, dict) else None
            rates, checkpoints = rates if isinstance(rates, list) else [], folder / CHECKPOINTS
            reached, saved = _step_reached(checkpoints, rates), _saved_steps(checkpoints, rates)
            return Status(about["step"], complete, running, reached=reached, saved=saved)
    if kept := read_run(folder):
        status = _of_dataset(folder, kept)
        if not status.running:  # a run writes the manifest again at its end
            status = replace(
                status,
                fault=f"{MANIFEST} is missing; run the command again, which restores it from {JOURNAL}/ and "
                "keeps all shards whose files are unchanged",
            )
        return status
    return None


def _step_reached(checkpoints: Place, rates: Sequence[object]) -> str:
    """The last step that a training recorded, and how long ago, in words; "" without a record."""
    notes = []
    for number, folder in {0: checkpoints, **_folders_of_rates(checkpoints)}.items():
        with suppress(Exception):  # there is no record, or it is being written
            note = json.loads((folder / TRAINING_STEP).read_bytes())
            when = datetime.fromisoformat(note["time"]).astimezone(UTC)
            notes.append((when, number, f"step {note['step']:,} of {note['of']:,}"))
    if not notes:
        return ""
    when, number, step = max(notes)
    rate = f" at learning rate {rates[number]}" if 1 < len(rates) > number else ""
    return f"{step}{rate}, {clock(max(0.0, (datetime.now(UTC) - when).total_seconds()))} ago"


def _folders_of_rates(checkpoints: Place) -> dict[int, Place]:
    """The folders of checkpoints of a training with several learning rates, by the number of the rate."""
    numbers = {int(match[1]): path for path in inside(checkpoints) if (match := _RATE.fullmatch(path.name))}
    return dict(sorted(numbers.items()))


def _saved_steps(checkpoints: Place, rates: Sequence[object]) -> str:
    """The latest complete checkpoint, or that of each learning rate, in words; "" without checkpoints."""

    def latest(folder: Place) -> int | None:
        names = [path.name for path in inside(folder) if size_of(path / CHECKPOINT_RECORD) is not None]
        steps = [int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match]
        return max(steps, default=None)

    if (step := latest(checkpoints)) is not None:
        return f"saved at step {step:,}"
    folders = _folders_of_rates(checkpoints)
    steps = {number: step for number, folder in folders.items() if (step := latest(folder)) is not None}
    if not steps:
        return ""
    if len(rates) <= max(1, *steps):
        return f"saved at step {max(steps.values()):,}"
    saved = ", ".join(f"learning rate {rates[number]} at step {step:,}" for number, step in steps.items())
    return f"saved: {saved}"


def label_counts(folder: DatasetFolder, most: int | None = None) -> Counter[str]:
    """The number of rows of each label, over all splits; empty if the rows have no labels (``label_column``).

    Reading ends early if there are more than ``most`` different values; the counts are then incomplete.
    """
    column = label_column(folder.schema())
    counts: Counter[str] = Counter()
    if column is not None:
        for split in folder.splits:
            for batch in folder.batches(split, [column]):
                for entry in batch[column].value_counts().to_pylist():
                    if (value := entry["values"]) is not None:
                        name = label_text(value)
                        counts[name] += entry["counts"]
                if most is not None and len(counts) > most:
                    return counts
    return counts


def entity_types(folder: DatasetFolder) -> Counter[str]:
    """The number of named entities of each type in a folder that ``tag`` wrote, over all splits."""
    types: Counter[str] = Counter()
    for split in folder.splits:
        for batch in folder.batches(split, ["ner_tags"]):
            tags = chain.from_iterable(batch["ner_tags"].to_pylist())
            types.update(tag[2:] for tag in tags if tag.startswith("B-"))
    return types


def record_of(folder: Place) -> dict[str, Any] | None:
    """The record that a step wrote into its folder; None if there is none."""
    return next(filter(None, (_record(folder, name) for name in _RECORDS)), None)


def _record(folder: Place, name: str) -> dict[str, Any] | None:
    path = folder / name
    if size_of(path) is None:
        return None
    record = read_record(path)
    about = record.get("about", record) if name == "results.json" else record
    return about if isinstance(about, dict) and isinstance(about.get("step"), str) else None


def status_lines(path: Place) -> list[str]:
    """The status of a step's folder, or of a recipe's run and all its steps, as lines of text."""
    with reaching(path, FolderError):
        return list(_lines(path))


def _lines(path: Place) -> Iterator[str]:
    if size_of(path) is not None:
        raise FolderError(f"{path} is a file; give the folder of a step or of a recipe's run")
    if not is_folder(path):
        raise FolderError(f"there is no folder {path}; give the folder of a step or of a recipe's run")
    ranks = rank_folders(path)
    status = status_of(path)
    if status and status.complete and ranks:
        finished = read_manifest(path).fingerprint
        ranks = [folder for folder in ranks if _adds_to(folder, finished)]
    if status or ranks:
        if status:
            yield from status.lines(str(path))
        yield from _lines_of_ranks(path, ranks)
        if status and not status.complete and size_of(path / MANIFEST) is not None:
            yield from _parts_of(path)
        return
    if size_of(path / "run.json") is None:
        if runs := runs_of_comparison(path):
            for run in runs:
                yield from _lines(run) if is_folder(run) else [f"{run}: not started"]
            return
        if lock.is_held(path):
            yield f"{path}: running; nothing is written yet"
            return
        if not inside(path):
            raise FolderError(f"{path} is empty: no step has finished any work in it; run its command again")
        if _shard_files(path) or inside(path / JOURNAL):
            raise FolderError(
                f"{path} holds files of a step, but no {MANIFEST}, which lists them; copy the folder again, "
                "or run its command with another folder as --out"
            )
        raise FolderError(
            f"{path} holds neither a step's work nor a recipe's run; give a folder that was written to as "
            "--out"
        )
    record = read_record(path / "run.json")
    done = record.get("steps", {})
    names = dict.fromkeys([*record.get("planned", []), *done])
    yield f"{path}: recipe {record.get('recipe')}, {len(done)} of {counted(len(names), 'steps')} finished"
    for name in names:
        step_status = status_of(path / name)
        begun = "running" if lock.is_held(path / name) else "not started"
        yield from step_status.lines(name) if step_status else [f"{name}: {begun}"]


def _shard_files(path: Place) -> list[Place]:
    """The files in ``path`` that have the names of a shard's files."""
    files = (file for folder in ("data", REJECTS) for file in inside(path / folder))
    return [file for file in files if SHARD_FILE.fullmatch(name_in(path, file))]


def _adds_to(rank_folder: Place, finished: str) -> bool:
    """Whether a rank is running or has begun other work than the ``finished`` work of the job's folder.

    The folder of any other rank is only a remainder: the process that puts the shares together was killed
    while it removed this folder.
    """
    if lock.is_held(rank_folder):
        return True
    manifest = manifest_of(rank_folder) or read_run(rank_folder)
    return manifest is not None and manifest.fingerprint != finished


def _lines_of_ranks(path: Place, folders: Sequence[Place]) -> Iterator[str]:
    """Lines on an array job: how many ranks are finished, the state of each begun rank, and the other ranks.

    If the job was started again with another number of ranks, the ranks of both numbers are listed.
    """
    shares = {rank: folder for folder in folders if (rank := rank_in(folder))}
    for size in sorted({rank.size for rank in shares}):
        done = {rank for rank in shares if rank.size == size and _is_finished(shares[rank])}
        yield f"{path}: an array job, {len(done)} of {counted(size, 'ranks')} finished"
        begun = set()
        for rank, folder in shares.items():
            if rank.size == size and (share := status_of(folder)):
                begun.add(rank.number)
                yield from replace(share, complete=rank in done).lines(folder.name)
            elif rank.size == size and lock.is_held(folder):
                begun.add(rank.number)
                yield f"{folder.name}: running"
        if absent := [number for number in range(size) if number not in begun]:
            yield f"not started: {few_numbers(absent)}"


def _is_finished(rank_folder: Place) -> bool:
    """Whether a rank has finished the share that it began last: a killed rank may leave an earlier mark."""
    manifest = manifest_of(rank_folder)
    return manifest is not None and finished_share(rank_folder) == manifest.fingerprint


def runs_of_comparison(path: Place) -> list[Place]:
    """The run folders of a comparison; the folder of the steps under ``once`` comes first.

    The list is empty if the folder at ``path`` is no comparison.
    """
    folders = [folder for folder in inside(path) if re.fullmatch(r"once|seed-\d+", folder.name)]
    return [folder / "run" for folder in sorted(folders, key=str) if size_of(folder / "recipe.yaml")]


def _parts_of(path: Place) -> Iterator[str]:
    """The parts of an unfinished step, such as the corpora that ``mine`` encodes before it searches."""
    for part in sorted(inside(path), key=str):
        if is_folder(part) and size_of(part / MANIFEST) is not None and (status := status_of(part)):
            yield from (f"  {line}" for line in status.lines(part.name))


def _of_dataset(folder: Place, manifest: Manifest) -> Status:
    entries = manifest.shards or entries_of(manifest, Journal.read(folder)).values()
    totals, planned = ShardTotals().plus(*entries), manifest.planned
    shards = sum(not manifest.asked or entry.asked == manifest.asked for entry in entries)
    rate, seconds = _pace(folder)
    labels: Mapping[str, int] = {}
    fault = ""
    if manifest.complete and shards <= _MOST_COUNTED:
        try:
            _check_sizes(folder, manifest)
            labels = _labels(folder)
        except FolderError as error:
            fault = str(error)
    return Status(
        step=manifest.step,
        complete=manifest.complete,
        running=not manifest.complete and lock.is_held(folder),
        shards=shards,
        planned=planned,
        rows=totals.rows,
        reasons=totals.rejects_by_reason,
        rate=rate,
        left=(planned - shards) * seconds if planned and seconds and not manifest.complete else None,
        labels=labels,
        fault=fault,
    )


def _check_sizes(folder: Place, manifest: Manifest) -> None:
    """Raise a ``FolderError`` if a file that the manifest lists is missing, or has another size."""
    files = manifest.shard_files
    sizes = map_in_threads(lambda file: size_of(folder / file.path), files)
    faults = [
        f"{folder / file.path} is {'missing' if size is None else 'damaged (it has another size)'}"
        for file, size in zip(files, sizes, strict=True)
        if size != file.bytes
    ]
    if faults:
        others = counted(len(faults) - 1, "more files are")
        more = f"; {others} missing or damaged" if len(faults) > 1 else ""
        raise FolderError(f"{faults[0]}{more}; run the command that wrote it again")


def _labels(folder: Place) -> Mapping[str, int]:
    """The number of rows of each label of a finished folder; empty if the values are too many for labels."""
    counts = label_counts(DatasetFolder.open(folder), _MOST_LABELS)
    few = len(counts) <= _MOST_LABELS and len(counts) < counts.total()
    return dict(sorted(counts.items())) if few else {}


def _pace(folder: Place) -> tuple[float | None, float | None]:
    """Rows per second and seconds per shard, from the last start of the run to its last finished shard."""
    begun: datetime | None = None
    shards = rows = 0
    last = begun
    for event in recent_events(folder):
        when = datetime.fromisoformat(event["time"]).astimezone(UTC)
        if event.get("event") == "start":
            begun, last, shards, rows = when, when, 0, 0
        elif event.get("event") == "shard":
            begun = begun or when
            last, shards, rows = when, shards + 1, rows + int(event.get("rows", 0))
    seconds = (last - begun).total_seconds() if begun and last else 0.0
    return (rows / seconds, seconds / shards) if shards and seconds > 0 else (None, None)
