"""Folders of evaluations: ``results.json`` with what it was computed from, and ``predictions.jsonl``."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from pairsmith.errors import FolderError, StorageError
from pairsmith.evaluate.bootstrap import Floats, interval
from pairsmith.places import Place, reaching, size_of
from pairsmith.runs import Manifest, Run, hash_file, write_json
from pairsmith.runs.storage import hash_bytes, write_atomic

RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"


class Record(Manifest):
    """``about`` in ``results.json``: what was evaluated, and the hash of the predictions."""

    files: dict[str, str] = Field(default_factory=dict)


def read_about(out: Place) -> Record:
    """What the results in ``out`` were computed from.

    Raises:
        FolderError: they are no results of an evaluation.
    """
    try:
        return Record.model_validate(json.loads((out / RESULTS).read_bytes())["about"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FolderError(f"{out / RESULTS} holds no results of this evaluation") from error


def is_whole(out: Place, record: Record) -> bool:
    """Whether all was written, and the predictions are still what was written."""
    path = out / PREDICTIONS
    with reaching(path, StorageError):
        kept = record.complete and size_of(path) is not None
        return kept and hash_file(path) == record.files.get(PREDICTIONS)


def write_results(
    run: Run, figures: Mapping[str, Any], predictions: Iterable[Mapping[str, Any]], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write both files, so that a run stopped at any moment can go on in the folder.

    Returns:
        What ``results.json`` holds: ``figures``, and ``about`` with the predictions' hash.

    Raises:
        StorageError: they cannot be written.
    """
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in predictions]
    data = "".join(f"{line}\n" for line in lines).encode()
    # First of all the folder says whose it is.
    write_json(run.out / RESULTS, {"about": {**about, "complete": False}})
    run.on_begun()
    write_atomic(run.out / PREDICTIONS, data)
    files = {PREDICTIONS: hash_bytes(data)}
    results = {**figures, "about": {**about, "complete": True, "files": files}}
    write_json(run.out / RESULTS, results)
    return results


def mean_intervals(
    each: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int
) -> dict[str, list[float] | None]:
    """95 % intervals of means: each resample draws as many rows as there are, with replacement.

    Args:
        each: figures by name, all of the same n rows, at least 1.
        bootstrap: resamples; with 0 every interval is None.
        seed: of the resamples.

    Returns:
        by ``{name}_ci`` the two limits, rounded to four places.
    """
    worth: Floats = np.array(list(each.values()), np.float64)  # (names, n)
    count = worth.shape[1]
    rng = np.random.default_rng(seed)
    draws: Floats = np.empty((bootstrap, len(each)))
    for draw in draws:
        draw[:] = worth[:, rng.integers(0, count, size=count)].mean(axis=1)
    found = {f"{name}_ci": interval(draws[:, column]) for column, name in enumerate(each)}
    return {
        name: None if limits is None else [round(limit, 4) for limit in limits]
        for name, limits in found.items()
    }
