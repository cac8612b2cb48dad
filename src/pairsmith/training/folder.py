"""Model folders: written whole or not at all, and recognised when the same training is asked for again.

``training.json`` is there from the first moment, so that a killed run can be started again in its
folder, and says ``"complete": true`` only after every file of the model is in place.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from pairsmith import __version__
from pairsmith.errors import FolderError, StorageError
from pairsmith.modelnames import first_line
from pairsmith.runs import Run, hash_file, lock, write_json
from pairsmith.runs.folder import Manifest
from pairsmith.runs.identity import Identity, differences
from pairsmith.runs.storage import is_temporary, storage_errors

RECORD = "training.json"
_SCRATCH = ".pairsmith-model.tmp"


class ModelFolder:
    """The one way into a model folder. Made by ``start``; ``finish`` ends it."""

    def __init__(self, out: Path, identity: Identity, *, finished: bool) -> None:
        self._out = out
        self._identity = identity
        self.finished = finished

    @classmethod
    def start(
        cls,
        run: Run,
        *,
        step: str,
        settings: Mapping[str, Any],
        inputs: Mapping[str, str],
        models: Mapping[str, str],
    ) -> Self:
        """Claim ``run.out``; ``finished`` tells whether this very training lies there, whole.

        Args:
            run: where to write; with ``fresh``, a model folder of ours is written anew.
            step: name of the step.
            settings: every setting that changes the weights.
            inputs: from an input's name to the hash of its content.
            models: from a model's name to its revision.

        Raises:
            FolderError: the folder holds something else, or another run is writing to it.
            StorageError: it cannot be written.
        """
        identity = Identity.of(step, settings, inputs, models)
        with storage_errors(run.out):
            _refuse_foreign(run.out)
            run.out.mkdir(parents=True, exist_ok=True)
        lock.acquire(run.out)
        record = _read(run.out)
        if record is not None and not run.fresh:
            if found := differences(_identity_of(record, run.out), identity):
                raise FolderError(_other_work(run.out, record, found))
            if record.get("complete") is True and _is_whole(run.out, record):
                lock.release(run.out)
                return cls(run.out, identity, finished=True)
            if record.get("complete") is True:
                run.progress.say(f"{run.out} is not as it was written; it is trained again")
        folder = cls(run.out, identity, finished=False)
        folder._clear(record)
        folder._save({"complete": False})
        return folder

    def finish(self, save: Callable[[Path], None], training: Mapping[str, Any]) -> None:
        """Have ``save`` write the model into an empty folder, move it into place, and mark it complete.

        Raises:
            StorageError: it cannot be written; run again, it is trained again.
        """
        scratch = self._out / _SCRATCH
        with storage_errors(self._out):
            scratch.mkdir()
            _call(save, scratch, self._out)
            files = {
                file.relative_to(scratch).as_posix(): hash_file(file)
                for file in sorted(scratch.rglob("*"))
                if file.is_file()
            }
            for name in files:
                target = self._out / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).replace(target)
            shutil.rmtree(scratch)
        self._save({"complete": True, **training, "files": files})
        lock.release(self._out)

    def _save(self, rest: Mapping[str, Any]) -> None:
        record = self._identity.as_dict() | {
            "fingerprint": self._identity.fingerprint,
            "pairsmith": __version__,
        }
        write_json(self._out / RECORD, record | dict(rest))

    def _clear(self, record: Mapping[str, Any] | None) -> None:
        """Remove what an earlier run of ours left: the files it lists, and its scratch folder."""
        with storage_errors(self._out):
            shutil.rmtree(self._out / _SCRATCH, ignore_errors=True)
            for name in _files(record or {}):
                (self._out / name).unlink(missing_ok=True)


def _call(save: Callable[[Path], None], scratch: Path, out: Path) -> None:
    """Call ``save``; weights that cannot be written are reported like any other file."""
    from safetensors import SafetensorError

    try:
        save(scratch)
    except SafetensorError as error:
        raise StorageError(
            f"cannot write the model to {out}: {first_line(error)}; run the same command again"
        ) from error


def _refuse_foreign(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file; --out needs a new or empty folder")
    if not out.is_dir() or (out / RECORD).exists():
        return
    others = sorted(
        file.name for file in out.iterdir() if not is_temporary(file) and file.name != ".DS_Store"
    )
    if others:
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise FolderError(
            f"{out} holds something else ({some}) and no {RECORD} of pairsmith; "
            "give a new or empty folder as --out"
        )


def _read(out: Path) -> dict[str, Any] | None:
    path = out / RECORD
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FolderError(
            f"{path} cannot be read ({first_line(error)}); give another folder as --out"
        ) from error
    if not isinstance(record, dict):
        raise FolderError(f"{path} was not written by pairsmith; give another folder as --out")
    return record


def _identity_of(record: Mapping[str, Any], out: Path) -> Manifest:
    try:
        return Manifest.model_validate(record)
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise FolderError(
            f"{out / RECORD} was not written by pairsmith ({key}: {error.errors()[0]['msg']}); "
            "give another folder as --out"
        ) from None


def _files(record: Mapping[str, Any]) -> dict[str, str]:
    """From a file's name to its hash; names that would leave the folder are not ours and are left out."""
    files = record.get("files")
    named = files if isinstance(files, dict) else {}
    return {
        name: hashed
        for name, hashed in named.items()
        if not Path(name).is_absolute() and ".." not in Path(name).parts
    }


def _is_whole(out: Path, record: Mapping[str, Any]) -> bool:
    files = _files(record)
    return bool(files) and all(
        (out / name).is_file() and hash_file(out / name) == hashed for name, hashed in files.items()
    )


def _other_work(out: Path, record: Mapping[str, Any], found: list[str]) -> str:
    shown = "; ".join(found[:8]) + (f"; and {len(found) - 8} more" if len(found) > 8 else "")
    state = "a finished" if record.get("complete") is True else "an unfinished"
    return (
        f"{out} holds {state} run of {record.get('step')} with other settings: {shown}\n"
        "give another folder as --out, or --fresh to start over in this one"
    )
