"""TensorBoard logs of a training, for whoever wants to see it go: ``tensorboard --logdir OUT/logs``.

They are no part of the model: nothing in ``training.json`` speaks of them, and they may be deleted. The
trainer's own callback is not used, as it writes down every argument, paths of the machine among them, and
does not hide what a stopped training logged after the checkpoint from which it goes on.
"""

import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairsmith.errors import MissingExtra, StorageError, first_line
from pairsmith.places import Place, inside, reaching, remove_files
from pairsmith.runs.storage import storage_errors, upload

FOLDER = "logs"
_POINTS = 1_000
_NAMES = {"loss": "train/loss", "learning_rate": "train/learning_rate", "grad_norm": "train/gradient_norm"}
"""What the trainer tells, and what it is called in the logs."""


def check_tensorboard() -> None:
    """Find out whether TensorBoard is installed.

    Raises:
        MissingExtra: it is not.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("tensorboard", "tensorboard")


def steps_between(total: int) -> int:
    """Steps between two points of the curves: each step is one in a short training, a long one has 1,000."""
    return max(1, total // _POINTS)


class Logs:
    """The event files of one training in ``where``; a store gets copies of those on this machine."""

    def __init__(self, where: Place, metric: str, last_step: int) -> None:
        """Args:
        where: folder of this training alone.
        metric: what is measured on the validation data, in a word.
        last_step: the step of the checkpoint that it goes on from, or -1; what was logged after it is hidden.

        Raises:
            MissingExtra: TensorBoard is not installed.
            StorageError: the folder cannot be written.
        """
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        with reaching(where, StorageError):
            self.new = not any(_is_events(file) for file in inside(where))
        self._where = where
        self._folder = where if isinstance(where, Path) else Path(tempfile.mkdtemp(prefix="pairsmith-"))
        self._metric = f"validation/{metric}"
        purge = last_step + 1 if last_step >= 0 else None
        with storage_errors(where):
            self._writer = SummaryWriter(str(self._folder), purge_step=purge)

    def train(self, told: Mapping[str, Any], step: int) -> None:
        """Log what the trainer tells after ``step``."""
        for name, shown in _NAMES.items():
            if name in told:
                self._add(shown, float(told[name]), step)

    def validation(self, figure: float | None, step: int) -> None:
        """Log the validation figure of ``step``, where it is defined."""
        if figure is not None:
            self._add(self._metric, figure, step)

    def flush(self) -> None:
        """Have all that was logged on the disk, or in the store, before a checkpoint counts.

        Raises:
            StorageError: it cannot be written.
        """
        with storage_errors(self._where):
            self._writer.flush()
        if self._folder != self._where:
            upload(self._folder, self._where)

    def close(self) -> None:
        """Write the rest.

        Raises:
            StorageError: it cannot be written.
        """
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
    """Remove the event files in ``folder`` and in the folders in it; whatever else lies there stays.

    Raises:
        StorageError: they cannot be removed.
    """
    with storage_errors(folder):
        found = inside(folder)
        found += [file for each in found for file in inside(each) if not _is_events(each)]
        remove_files([file for file in found if _is_events(file)])


def _is_events(file: Place) -> bool:
    return file.name.startswith("events.out.tfevents.")
