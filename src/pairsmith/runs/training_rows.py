"""The rows of one split of a dataset folder that an earlier step wrote."""

from dataclasses import dataclass

import pyarrow as pa

from pairsmith.data.splits import Say, split_of, to_train_on
from pairsmith.runs.folder import DatasetFolder


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The rows of one split, in order; ``source`` names the folder and, where needed, the split."""

    table: pa.Table
    folder: DatasetFolder
    source: str


def open_training_rows(name: str, done: str, say: Say | None = None) -> TrainingRows:
    """The training rows of a folder, or the rows of the split that ``FOLDER:SPLIT`` names.

    Args:
        name: the folder, or ``FOLDER:SPLIT``.
        done: what happens to the rows, for the message, as in "is judged".
        say: called with a message if other splits are left out.
    """
    folder = DatasetFolder.open(split_of(name)[0])
    source = to_train_on(name, done, say)
    return TrainingRows(folder.table(split_of(source)[1] or "train"), folder, source)
