"""TensorBoard logs of a training, which ``tensorboard --logdir OUT/logs`` shows.

The logs are not part of the model: ``training.json`` does not mention them, and they may be deleted. The
trainer's own callback is not used for two reasons: it logs every argument, local paths included, and it does
not hide what a stopped training logged after the checkpoint from which it resumes.
"""

import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairsmith.core.errors import MissingExtra, StorageError, first_line
from pairsmith.core.paths import Place, inside, reaching, remove_files
from pairsmith.runs.storage import storage_errors, upload

LOGS_FOLDER = "logs"
_POINTS = 1_000
_NAMES = {"loss": "train/loss", "learning_rate": "train/learning_rate", "grad_norm": "train/gradient_norm"}
"""The values that are logged: their names in the trainer, and their names in the logs."""


def check_tensorboard() -> None:
    """Check that TensorBoard is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("tensorboard", "tensorboard")


def steps_between(total: int) -> int:
    """Steps between two points of a curve, so that it has at most about 1,000 points."""
    return max(1, total // _POINTS)


class Logs:
    """The event files of one training in ``where``.

    If ``where`` is a URL, they are written on this machine and uploaded to the store.
    """

    def __init__(self, where: Place, metric: str, last_step: int, known: Mapping[int, float | None]) -> None:
        """Open the event files in a folder for this training alone.

        ``last_step`` is the step of the checkpoint from which the training resumes, or -1; logs of later
        steps are hidden. If there are no logs yet, they begin with the validation figures of ``known``.
        """
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        with reaching(where, StorageError):
            new = not any(_is_events(file) for file in inside(where))
        self._where = where
        self._folder = where if isinstance(where, Path) else Path(tempfile.mkdtemp(prefix="pairsmith-"))
        self._metric = f"validation/{metric}"
        with storage_errors(where):
            self._writer = SummaryWriter(str(self._folder), purge_step=last_step + 1 or None)
        for step, figure in known.items() if new else ():
            self.validation(figure, step)

    def train(self, reported: Mapping[str, Any], step: int) -> None:
        """Log what the trainer reports after ``step``."""
        for name, shown in _NAMES.items():
            if name in reported:
                self._add(shown, float(reported[name]), step)

    def validation(self, figure: float | None, step: int) -> None:
        """Log the validation figure of ``step``, if it is defined."""
        if figure is not None:
            self._add(self._metric, figure, step)

    def flush(self) -> None:
        """Write everything logged so far to disk, or to the store, before a checkpoint is marked complete."""
        with storage_errors(self._where):
            self._writer.flush()
        if self._folder != self._where:
            upload(self._folder, self._where)

    def close(self) -> None:
        """Write what is left, and close the files."""
        self.flush()
        self._writer.close()
        if self._folder != self._where:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _add(self, name: str, value: float, step: int) -> None:
        try:
            self._writer.add_scalar(name, value, step)
        except OSError as error:
            raise StorageError(f"cannot write logs to {self._where}: {first_line(error)}") from error


def remove_logs(folder: Place) -> None:
    """Remove the event files in ``folder`` and in its direct subfolders; other files stay."""
    with storage_errors(folder):
        paths = inside(folder)
        paths += [file for path in paths for file in inside(path) if not _is_events(path)]
        remove_files([file for file in paths if _is_events(file)])


def _is_events(file: Place) -> bool:
    return file.name.startswith("events.out.tfevents.")
