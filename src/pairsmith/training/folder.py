"""Model folders, which are either complete or marked incomplete, and which a repeated run recognises.

``training.json`` is written first, so that a killed run can be started again in its folder. It says
``"complete": true`` only after every file of the model is in place.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator
from safetensors import SafetensorError

from pairsmith.core.errors import StorageError, first_line, redacted_values
from pairsmith.core.model_files import quiet_loading
from pairsmith.core.paths import CHECKPOINTS, Place, files_below, reaching, remove_files
from pairsmith.runs import Manifest, Run, Sources, hash_file, lock, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.folder import changed_files
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import read_manifest
from pairsmith.runs.provenance import Provenance
from pairsmith.runs.storage import storage_errors, upload
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.logs import LOGS_FOLDER, remove_logs

TRAINING_RECORD = "training.json"
_SCRATCH = ".pairsmith-model.tmp"


class TrainingRecord(Manifest):
    """``training.json``: what was trained, and the model's files with their hashes."""

    files: dict[str, str] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, str]) -> dict[str, str]:
        """Leave out names that point outside the folder; a training never writes such files."""
        outside = {name for name in files if Path(name).is_absolute() or ".." in Path(name).parts}
        return {name: hashed for name, hashed in files.items() if name not in outside}


class ModelFolder:
    """A model folder that is being written: opened with ``start``, completed with ``finish``.

    ``finished`` says whether the folder already holds the trained model. ``sources`` are the base and the
    data, with their licences, and the works to cite, that of the method first.
    """

    def __init__(self, out: Place, identity: Identity, sources: Sources) -> None:
        self._out = out
        self.step, self.sources = identity.step, sources
        self.checkpoints = Checkpoints(out / CHECKPOINTS, out / LOGS_FOLDER, locked=out)
        self._identity = identity
        self.finished = False

    @classmethod
    def start(cls, run: Run, identity: Identity, sources: Sources) -> Self:
        """Claim ``run.out`` for this training; ``finished`` says whether it already holds the trained model.

        A fresh run overwrites an earlier model folder of this step.
        """
        record = claim(
            run, identity, TRAINING_RECORD, lambda out: read_manifest(out, TRAINING_RECORD, TrainingRecord)
        )
        folder = cls(run.out, identity, sources)
        if record is not None and record.complete and not run.fresh:
            with reaching(run.out, StorageError):
                folder.finished = bool(record.files) and not changed_files(run.out, record.files)
            if folder.finished:
                folder.checkpoints.remove()  # left if a run was killed at the very end
                lock.release(run.out)
                return folder
            run.progress.say(f"{run.out} has changed since it was written; it is trained again")
        same = record is not None and record.fingerprint == identity.fingerprint and not record.complete
        folder._clear(record, keep_checkpoints=same and not run.fresh)
        folder._save({"complete": False})
        run.on_begun()
        return folder

    @classmethod
    def joined(cls, run: Run) -> Self:
        """The folder that another process of the same training has started; this process only reads it."""
        record = read_manifest(run.out, TRAINING_RECORD, TrainingRecord)
        identity = Identity(record.step, record.settings, record.inputs, record.models)
        folder = cls(run.out, identity, Sources())
        folder.finished = record.complete
        return folder

    def finish(self, save: Callable[[Path], None], training: Mapping[str, Any]) -> None:
        """Let ``save`` write the model into an empty folder, move its files into place, and mark it complete.

        ``training`` is what ``training.json`` says about the training.
        """
        lock.check(self._out)
        try:
            files = self._move_in(save) if isinstance(self._out, Path) else self._put(save)
        except SafetensorError as error:
            raise StorageError(
                f"cannot write the model to {self._out}: {first_line(error)}; if the disk is full, "
                "free some space; then run the same command again"
            ) from error
        provenance = Provenance(citations=self.sources.citations, credits=self.sources.credits)
        about = provenance.model_dump(mode="json")
        lock.check(self._out)  # again, as writing the model may have taken long
        self._save({"complete": True, **training, "files": files, "about": redacted_values(about)})
        self.checkpoints.remove()
        lock.release(self._out)

    def _move_in(self, save: Callable[[Path], None]) -> dict[str, str]:
        """Save in a scratch folder on the same disk, and move the files into place; returns their hashes."""
        assert isinstance(self._out, Path)
        scratch = self._out / _SCRATCH
        with storage_errors(self._out):
            scratch.mkdir()
            save(scratch)
            files = {name: hash_file(file) for name, file in files_below(scratch).items()}
            for name in files:
                target = self._out / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).replace(target)
            shutil.rmtree(scratch)
        return files

    def _put(self, save: Callable[[Path], None]) -> dict[str, str]:
        """Save on this machine, and upload the files to the folder's store; returns their hashes."""
        with tempfile.TemporaryDirectory(prefix="pairsmith-") as scratch:
            save(Path(scratch))
            return upload(Path(scratch), self._out)

    def _save(self, rest: Mapping[str, Any]) -> None:
        write_json(self._out / TRAINING_RECORD, {**self._identity.as_record(), **rest})

    def _clear(self, record: TrainingRecord | None, *, keep_checkpoints: bool) -> None:
        """Remove what an earlier run left: the files that its record lists, and its scratch folder."""
        with storage_errors(self._out):
            if not keep_checkpoints:
                self.checkpoints.remove()
                remove_logs(self._out / LOGS_FOLDER)
            if isinstance(self._out, Path):
                shutil.rmtree(self._out / _SCRATCH, ignore_errors=True)
            remove_files([self._out / name for name in record.files] if record else [])


def save_transformer(model: Any, tokenizer: Any, card: str, out: Path) -> None:
    """Save a model of transformers with its tokenizer and card in ``out``; weights as safetensors."""
    with quiet_loading():
        model.save_pretrained(str(out))
        tokenizer.save_pretrained(str(out))
    (out / "README.md").write_text(card, encoding="utf-8")
