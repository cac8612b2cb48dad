"""The rows that are labelled, and the order in which an annotator sees them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairsmith.audit.settings import AuditSettings
from pairsmith.errors import InputError, SettingsError
from pairsmith.report.rows import label_name, texts_of, with_sample
from pairsmith.runs import DatasetFolder
from pairsmith.runs.seeds import generator

MOST_LABELS = 9
"""One for each key 1 to 9."""
_TEXTS = (
    ("sentence1", "sentence2"),
    ("input", "output"),
    ("text",),
    ("context", "question"),
    ("document", "summary"),
)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row to be labelled.

    Attributes:
        id: of the row.
        texts: by the names of their columns, in their order.
        label: what the data say, never shown; empty where they say nothing that people could say too.
    """

    id: str
    texts: Mapping[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What there is to label, and with what.

    Attributes:
        rows: in the order of the data.
        labels: that may be given, in the order of the keys.
        claimed: labels that these rows have, in their order.
        graded: whether the data's labels are scores.
        meanings: of labels of the task by which rows were written, how its instructions begin.
    """

    rows: Sequence[AuditRow]
    labels: Sequence[str]
    claimed: Sequence[str]
    graded: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)


def draw(folder: DatasetFolder, settings: AuditSettings) -> Audit:
    """Draw the rows that all annotators label.

    Raises:
        FolderError: a file of the folder is missing or damaged.
        InputError: its rows have no texts, or no labels while none are named.
        SettingsError: there are more labels than keys.
    """
    if not folder.rows:
        raise InputError(f"{folder.path}: has no rows to look at")
    found: list[dict[str, Any]] = []
    claimed: set[str] = set()
    column = ""
    for _, table, drawn in with_sample(folder, settings.rows, generator(settings.seed, "audit")):
        column = next((name for name in ("label", "score") if name in table.column_names), "")
        if column and len(claimed) <= MOST_LABELS:
            claimed |= {label_name(value) for value in table.column(column).unique().to_pylist()}
        found += drawn
    columns = next((names for names in _TEXTS if set(names) <= found[0].keys()), None)
    if columns is None:
        raise InputError(f"{folder.path}: has the columns {', '.join(found[0])}, no texts to label")
    if not column and not settings.labels:
        raise InputError(
            f"{folder.path}: its rows have no column label or score; name what people may say of them, "
            "e.g. --labels right --labels wrong"
        )
    # How good a search takes a pair to be is nothing that people could say.
    says = column and not (column == "score" and len(claimed) > MOST_LABELS)
    rows = [
        AuditRow(str(row["id"]), dict(texts_of(row, columns)), label_name(row[column]) if says else "")
        for row in found
    ]
    twice = next((name for name, count in Counter(row.id for row in rows).items() if count > 1), None)
    if twice is not None:
        raise InputError(
            f"{folder.path}: two rows have the id {twice!r}, by which answers are kept; give each its own, "
            "as pairsmith mix does"
        )
    labels = settings.labels or in_order(claimed)
    if len(labels) > MOST_LABELS:
        raise SettingsError(
            f"{folder.path}: has more than {MOST_LABELS} labels, and there are no more keys; name those that "
            "may be given as --labels"
        )
    graded = column == "score" and all(map(is_number, labels))
    return Audit(rows, labels, in_order({row.label for row in rows} - {""}), graded, meanings_of(folder))


def meanings_of(folder: DatasetFolder) -> dict[str, str]:
    """By label the first line of its instruction, where a task says what labels mean."""
    task = folder.manifest.settings.get("task")
    described = task.get("labels", []) if isinstance(task, Mapping) else []
    return {
        label_name(label["name"]): str(label["instruction"]).partition("\n")[0].removeprefix("Task: ")
        for label in described
    }


def order_of(audit: Audit, annotator: str, seed: int) -> list[int]:
    """The places of the rows as an annotator sees them."""
    order: list[int] = generator(seed, "audit order", annotator).permutation(len(audit.rows)).tolist()
    return order


def is_number(label: str) -> bool:
    """Whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def in_order(labels: set[str]) -> list[str]:
    """Numbers by their size, names by the alphabet."""
    return sorted(labels, key=float) if all(map(is_number, labels)) else sorted(labels)
