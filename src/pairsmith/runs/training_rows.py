"""Rows that earlier steps wrote into a dataset folder, those of one split."""

from dataclasses import dataclass

import pyarrow as pa

from pairsmith.records.splits import Say, split_of, to_train_on
from pairsmith.runs.folder import DatasetFolder


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The rows of one split, in their order; ``source`` is what names them."""

    table: pa.Table
    folder: DatasetFolder
    source: str


def open_training_rows(name: str, done: str, say: Say | None = None) -> TrainingRows:
    """The rows for training in a folder, or those of the split that ``FOLDER:SPLIT`` names.

    Args:
        name: of the folder.
        done: what happens to them, as in "is judged".
        say: is told which splits stay as they are, if any.

    Raises:
        FolderError: it is no finished dataset folder, or a file of it is missing or damaged.
        InputError: it has no such split.
    """
    folder = DatasetFolder.open(split_of(name)[0])
    source = to_train_on(name, done, say)
    return TrainingRows(folder.table(split_of(source)[1] or "train"), folder, source)
