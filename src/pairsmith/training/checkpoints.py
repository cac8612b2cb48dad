"""Checkpoints of a training: what a stopped one goes on from, to the weights it would have had.

The trainer saves weights, optimiser, schedule and random states into a folder of its own for each
checkpoint; ours adds what was found on the validation pairs, and writes the file that makes the
checkpoint count last, with the hashes of the others. One that was being written at a kill lacks it;
one that was damaged since does not fit it; both are passed over for the one before.
"""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from upath import UPath

from pairsmith.errors import StorageError
from pairsmith.modelfiles import hash_file
from pairsmith.places import Place, download, files_below, inside, reaching, remove_files, size_of
from pairsmith.runs import lock, write_json
from pairsmith.runs.storage import JSON, storage_errors, upload

_RECORD = "pairsmith.json"
_BEST = "best.safetensors"


@dataclass(frozen=True, slots=True)
class Found:
    """What there was by a checkpoint.

    Attributes:
        curve: validation figure by step.
        best_step: step of the best one.
        best: that figure; None before there is one.
        best_weights: the weights then.
        seconds: time the training had taken.
    """

    curve: Mapping[int, float | None]
    best_step: int
    best: float | None
    best_weights: Mapping[str, torch.Tensor]
    seconds: float = 0.0


class Checkpoints:
    """The checkpoints in one place; the trainer's are always on this machine, a store gets copies.

    Attributes:
        folder: where the trainer puts them.
        logs: where TensorBoard logs of the training go, if there are to be any.
    """

    def __init__(self, where: Place, logs: Place | None = None) -> None:
        self.logs = logs
        self._store = where if isinstance(where, UPath) else None
        if isinstance(where, Path):
            self.folder = where
        else:
            self.folder = Path(tempfile.mkdtemp(prefix="pairsmith-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def part(self, name: str, shown: str) -> "Checkpoints":
        """Those of a part of the training, which is a training of its own, ``shown`` as such in the logs."""
        return Checkpoints((self._store or self.folder) / name, self.logs / shown if self.logs else None)

    def end(self, total: int) -> Found | None:
        """What the checkpoint of the last step holds, with the weights that were kept; None without one.

        Raises:
            StorageError: the store cannot be reached.
        """
        self._download()
        path = self.folder / f"checkpoint-{total}"
        record = _whole(path)
        return _found(path, record) if record and _BEST in record["files"] else None

    def seal(self, step: int, found: Found) -> None:
        """Add what validation found to the checkpoint of ``step``, and make it count.

        Raises:
            StorageError: it cannot be written.
        """
        checkpoint = self.folder / f"checkpoint-{step}"
        with storage_errors(checkpoint):
            checkpoint.mkdir(parents=True, exist_ok=True)
            if found.best_weights:
                (checkpoint / _BEST).write_bytes(save(dict(found.best_weights)))
            files: dict[str, JSON] = {}
            for name, file in files_below(checkpoint).items():
                _sync(checkpoint / name)
                files[name] = hash_file(file)
        curve: dict[str, JSON] = {str(step): figure for step, figure in found.curve.items()}
        record: dict[str, JSON] = {
            "curve": curve,
            "best_step": found.best_step,
            "best": found.best,
            "seconds": found.seconds,
            "files": files,
        }
        write_json(checkpoint / _RECORD, record)
        if self._store is not None:
            lock.check(self._store.parent)
            upload(checkpoint, self._store / checkpoint.name, last=_RECORD)
            with storage_errors(self._store):
                for other in _records(self._store):
                    if other.parent.name != checkpoint.name:
                        _remove(other)

    def latest(self, total: int) -> tuple[Path, Found] | None:
        """The last whole checkpoint before step ``total``, or None.

        One of the last step leaves the trainer no step to make, which it does not bear. Those that are
        not whole are removed.

        Raises:
            StorageError: the store cannot be reached.
        """
        self._download()
        for path in sorted(self.folder.glob("checkpoint-*"), key=_step, reverse=True):
            record = _whole(path)
            if record is None:
                shutil.rmtree(path, ignore_errors=True)
            elif _step(path) < total:
                return path, _found(path, record)
        return None

    def _download(self) -> None:
        if self._store is not None:
            with reaching(self._store, StorageError):
                for sealed in _records(self._store):
                    download(sealed.parent, self.folder / sealed.parent.name)

    def remove(self) -> None:
        """Remove them all: first what makes them count, so that a kill leaves no half one.

        Raises:
            StorageError: they cannot be removed.
        """
        folders: list[Place] = [self._store, self.folder] if self._store else [self.folder]
        for folder in folders:
            with storage_errors(folder):
                for record in _records(folder):
                    _remove(record)
                remove_files(list(files_below(folder).values()))  # of checkpoints that never counted
                if isinstance(folder, Path) and folder.exists():
                    shutil.rmtree(folder)


def _found(path: Path, record: Mapping[str, Any]) -> Found:
    curve = {int(step): figure for step, figure in record["curve"].items()}
    weights = load_file(path / _BEST) if _BEST in record["files"] else {}
    return Found(curve, record["best_step"], record["best"], weights, record["seconds"])


def _records(folder: Place) -> list[Place]:
    """What makes the checkpoints in ``folder`` count."""
    return [path / _RECORD for path in inside(folder) if size_of(path / _RECORD) is not None]


def _remove(record: Place) -> None:
    """Remove a checkpoint, its record first."""
    record.unlink(missing_ok=True)
    with suppress(FileNotFoundError):  # there was nothing else
        if isinstance(record, UPath):
            record.fs.rm(record.parent.path, recursive=True)
        else:
            shutil.rmtree(record.parent)


def _whole(path: Path) -> dict[str, Any] | None:
    """The record of a checkpoint whose files are as they were written, or None."""
    try:
        record: dict[str, Any] = json.loads((path / _RECORD).read_bytes())
        if all(hash_file(path / name) == digest for name, digest in record["files"].items()):
            return record
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return None


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _step(path: Path) -> int:
    number = path.name.partition("-")[2]
    return int(number) if number.isdigit() else -1
