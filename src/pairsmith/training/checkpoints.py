"""Checkpoints of a training: what a stopped one goes on from, to the weights it would have had.

The trainer saves weights, optimiser, schedule and random states into a folder of its own for each
checkpoint; ours adds what was found on the validation pairs, and writes the file that makes the
checkpoint count last. One that was being written at a kill lacks it and is removed.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from pairsmith.runs import write_json
from pairsmith.runs.storage import JSON, storage_errors

_RECORD = "pairsmith.json"
_BEST = "best.safetensors"


@dataclass(frozen=True, slots=True)
class Found:
    """What validation had found by a checkpoint: the curve, the best step and figure, its weights."""

    curve: Mapping[int, float | None]
    best_step: int
    best: float | None
    best_weights: Mapping[str, torch.Tensor]


def seal(checkpoint: Path, found: Found) -> None:
    """Add what validation found, and make the checkpoint count.

    Raises:
        StorageError: it cannot be written.
    """
    with storage_errors(checkpoint):
        if found.best_weights:
            (checkpoint / _BEST).write_bytes(save(dict(found.best_weights)))
    curve: dict[str, JSON] = {str(step): figure for step, figure in found.curve.items()}
    record: dict[str, JSON] = {"curve": curve, "best_step": found.best_step, "best": found.best}
    write_json(checkpoint / _RECORD, record)


def remove_all(folder: Path) -> None:
    """Remove the checkpoints in ``folder``: first what makes them count, so that a kill leaves no half one.

    Raises:
        StorageError: they cannot be removed.
    """
    with storage_errors(folder):
        for record in folder.glob(f"checkpoint-*/{_RECORD}"):
            record.unlink()
        if folder.exists():
            shutil.rmtree(folder)


def latest(folder: Path, total: int) -> tuple[Path, Found] | None:
    """The last whole checkpoint in ``folder`` before step ``total``, or None.

    Those that are not whole are removed. One of the last step leaves the trainer no step to make, which
    it does not bear.
    """
    whole = []
    for path in folder.glob("checkpoint-*"):
        if (path / _RECORD).is_file():
            whole += [path] if _step(path) < total else []
        else:
            shutil.rmtree(path, ignore_errors=True)
    if not whole:
        return None
    path = max(whole, key=_step)
    record = json.loads((path / _RECORD).read_bytes())
    curve = {int(step): figure for step, figure in record["curve"].items()}
    weights = load_file(path / _BEST) if (path / _BEST).is_file() else {}
    return path, Found(curve, record["best_step"], record["best"], weights)


def _step(path: Path) -> int:
    return int(path.name.partition("-")[2])
