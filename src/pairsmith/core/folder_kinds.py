"""Reads the records of folders, and says in words what a folder is, for messages about a wrong folder."""

import json
from typing import Any

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import MANIFEST, Place, inside, reaching, size_of

RECORDS = ("run.json", MANIFEST, "training.json", "results.json")
"""The records of a recipe's run, of a data set, of a training and of an evaluation."""

A_MODEL = "a model"


def folder_kind(folder: Place) -> str:
    """What an existing folder is, in words, such as "a data set that mine wrote"; empty if it is unknown.

    Exceptions while the folder is read are not converted (see ``reaching``).
    """
    for name in RECORDS:
        record = json_object(folder / name)
        about = record.get("about")  # of an evaluation: what was evaluated
        if name == "results.json":
            record = about if isinstance(about, dict) else {}
        if name == "run.json" and isinstance(record.get("steps"), dict):
            steps = sorted(entry.name for entry in inside(folder) if entry.name in record["steps"])
            return f"a recipe's run, with the folders {', '.join(steps)}" if steps else "a recipe's run"
        step = record.get("step")
        if not isinstance(step, str):
            continue
        if name == "training.json":
            return f"{'a model' if record.get('complete') else 'an unfinished model'} that {step} trained"
        return f"{'a data set' if name == MANIFEST else 'results'} that {step} wrote"
    is_model = size_of(folder / "config.json") is not None or size_of(folder / "modules.json") is not None
    return A_MODEL if is_model else ""


def read_record(path: Place) -> dict[str, Any]:
    """The JSON object in a record's file; raises ``FolderError`` if the file holds none."""
    with reaching(path, FolderError):
        try:
            value = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise FolderError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise FolderError(f"{path} is not a record that pairsmith wrote: it holds no JSON object")
    return value


def json_object(file: Place) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file, or if it holds something else.

    Exceptions while the file is read are not converted (see ``reaching``).
    """
    if size_of(file) is None:
        return {}
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
