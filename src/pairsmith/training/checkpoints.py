"""Checkpoints: a training that was stopped resumes from the latest one, and ends with the same weights.

The trainer saves weights, optimiser, schedule and random states in a folder for each checkpoint. To this
folder are added the validation results and, last, a record with the hashes of all files. A checkpoint without
a record was interrupted while it was written, and one that does not match its record was damaged later; both
are skipped, and the previous checkpoint is used.
"""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from upath import UPath

from pairsmith.core.errors import StorageError
from pairsmith.core.model_files import hash_file
from pairsmith.core.paths import (
    CHECKPOINT_RECORD,
    TRAINING_STEP,
    Place,
    download,
    files_below,
    inside,
    reaching,
    remove_files,
    size_of,
)
from pairsmith.runs import lock, write_json
from pairsmith.runs.storage import JSON, storage_errors, upload

_BEST = "best.safetensors"


@dataclass(slots=True)
class BestSoFar:
    """The best step of a training so far, which each checkpoint records.

    ``curve`` has the validation figure of each evaluated step. ``best`` is the highest figure, None if there
    is none yet; ``best_weights`` are the weights of that step. ``seconds`` is the duration so far.
    """

    curve: dict[int, float | None] = field(default_factory=dict)
    best_step: int = 0
    best: float | None = None
    best_weights: dict[str, torch.Tensor] = field(default_factory=dict)
    seconds: float = 0.0


class Checkpoints:
    """The checkpoints of a training, in ``folder`` on this machine.

    If ``where`` is a URL, each checkpoint is also copied to that store. ``logs`` is the place of the
    training's TensorBoard logs; None for no logs. ``locked`` is the folder that the training has locked.
    """

    def __init__(self, where: Place, logs: Place | None = None, locked: Place | None = None) -> None:
        self.logs, self._locked = logs, locked
        self._store = where if isinstance(where, UPath) else None
        if isinstance(where, Path):
            self.folder = where
        else:
            self.folder = Path(tempfile.mkdtemp(prefix="pairsmith-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def part(self, name: str, shown: str) -> "Checkpoints":
        """The checkpoints of one part of a training, such as one learning rate; ``shown`` names its logs."""
        logs = self.logs / shown if self.logs else None
        return Checkpoints((self._store or self.folder) / name, logs, self._locked)

    def check(self) -> None:
        """Raise ``FolderError`` if another process writes to the training's folder, or it was moved."""
        if self._locked is not None:
            lock.check(self._locked)

    def note(self, step: int, total: int) -> None:
        """Write for ``pairsmith status`` that ``step`` of ``total`` steps is reached, and the time (UTC).

        The training never reads this file, so it is not synced to the disk, and a failure to write it does
        not end the training. If the training's folder was moved away, the file is not written, and the next
        checkpoint reports the move.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"step": step, "of": total, "time": now})
        with suppress(Exception):
            self.check()
            if self._store is not None:
                file = self._store / TRAINING_STEP
                file.fs.pipe_file(file.path, text.encode())
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / TRAINING_STEP).write_text(text, encoding="utf-8")

    def final(self, total: int) -> BestSoFar | None:
        """The results in the checkpoint of the last step, with the best weights; None without one."""
        self._download()
        results = _read(self.folder / f"checkpoint-{total}")
        return results if results and results.best_weights else None

    def seal(self, step: int, results: BestSoFar) -> None:
        """Add the validation results to the checkpoint of ``step``, and mark it complete with a record."""
        self.check()
        checkpoint = self.folder / f"checkpoint-{step}"
        with storage_errors(checkpoint):
            checkpoint.mkdir(parents=True, exist_ok=True)
            if results.best_weights:
                (checkpoint / _BEST).write_bytes(save(results.best_weights))
            files: dict[str, JSON] = {}
            for name, file in files_below(checkpoint).items():
                with (checkpoint / name).open("rb") as stream:
                    os.fsync(stream.fileno())
                files[name] = hash_file(file)
        record: dict[str, JSON] = {
            "curve": {str(step): figure for step, figure in results.curve.items()},
            "best_step": results.best_step,
            "best": results.best,
            "seconds": results.seconds,
            "files": files,
        }
        write_json(checkpoint / CHECKPOINT_RECORD, record)
        if self._store is not None:
            self.check()  # again, as writing the files may have taken long
            upload(checkpoint, self._store / checkpoint.name, last=CHECKPOINT_RECORD)
            with storage_errors(self._store):
                for other in _records(self._store):
                    if other.parent.name != checkpoint.name:
                        _remove(other)

    def latest(self, total: int, say: Callable[[str], None]) -> tuple[Path, BestSoFar] | None:
        """The latest complete checkpoint before step ``total``, or None.

        A checkpoint of the last step is not used, as the trainer fails if no step is left. Incomplete
        checkpoints that are newer than the result are removed. ``say`` is called with a message about each
        that was complete and has changed since.
        """
        self._download()
        for path in sorted(self.folder.glob("checkpoint-*"), key=_step, reverse=True):
            results = _read(path)
            if results is None:
                if (path / CHECKPOINT_RECORD).is_file():
                    say(f"{path.name} is damaged; an earlier checkpoint is used if there is one")
                shutil.rmtree(path, ignore_errors=True)
            elif _step(path) < total:
                return path, results
        return None

    def _download(self) -> None:
        if self._store is not None:
            with reaching(self._store, StorageError):
                for sealed in _records(self._store):
                    download(sealed.parent, self.folder / sealed.parent.name)

    def remove(self) -> None:
        """Remove all checkpoints, each with its record first: after a kill, none counts as complete."""
        folders: list[Place] = [self._store, self.folder] if self._store else [self.folder]
        for folder in folders:
            with storage_errors(folder):
                for record in _records(folder):
                    _remove(record)
                remove_files(list(files_below(folder).values()))  # of checkpoints without a record
                if isinstance(folder, Path) and folder.exists():
                    shutil.rmtree(folder)


def _records(folder: Place) -> list[Place]:
    """The records of the complete checkpoints in ``folder``."""
    return [
        path / CHECKPOINT_RECORD for path in inside(folder) if size_of(path / CHECKPOINT_RECORD) is not None
    ]


def _remove(record: Place) -> None:
    """Remove a checkpoint, its record first."""
    record.unlink(missing_ok=True)
    with suppress(FileNotFoundError):  # the record was its only file
        if isinstance(record, UPath):
            record.fs.rm(record.parent.path, recursive=True)
        else:
            shutil.rmtree(record.parent)


def _read(path: Path) -> BestSoFar | None:
    """The results that a checkpoint recorded; None unless all files match the hashes in its record."""
    try:
        record: dict[str, Any] = json.loads((path / CHECKPOINT_RECORD).read_bytes())
        if any(hash_file(path / name) != digest for name, digest in record["files"].items()):
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    curve = {int(step): figure for step, figure in record["curve"].items()}
    weights = load_file(path / _BEST) if _BEST in record["files"] else {}
    return BestSoFar(curve, record["best_step"], record["best"], weights, record["seconds"])


def _step(path: Path) -> int:
    number = path.name.partition("-")[2]
    return int(number) if number.isdigit() else -1
