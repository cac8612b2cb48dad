"""The rows to be labelled, and the order in which an annotator sees them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairsmith.core.errors import InputError, SettingsError
from pairsmith.data.schemas import label_column
from pairsmith.runs import DatasetFolder
from pairsmith.runs.seeds import generator
from pairsmith.tools.meanings import label_meanings
from pairsmith.tools.report.rows import (
    is_number,
    row_texts,
    shown_label,
    sorted_labels,
    with_sample,
)
from pairsmith.tools.settings import AuditSettings

MOST_LABELS = 9
"""Largest number of labels to choose from: one for each of the keys 1 to 9."""
_ALIKE = "How similar in meaning are these two sentences?"
_QUESTIONS = {
    ("sentence1", "sentence2"): "Which label says best how the second sentence relates to the first?",
    ("input", "output"): "Do these two texts belong together? Choose the label that fits best.",
    ("text",): "Which label fits this text best?",
    ("context", "question"): "Does the passage answer the question, and is the answer right? Choose the "
    "label that fits best.",
    ("document", "summary"): "Does the summary say what matters in the document? Choose the label that fits "
    "best.",
}
"""By the columns with texts, the question to the annotators if the settings give none."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row to be labelled, with its texts by column name.

    ``label`` is the row's label in the data, which annotators never see. ``label`` is "" if the row has no
    label, or has a score that people cannot give.
    """

    id: str
    texts: Mapping[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The rows to label, in the order of the data, and the labels to choose from, in the order of the keys.

    Attributes:
        rows: the rows.
        labels: the labels to choose from.
        claimed: the labels that the rows have in the data, sorted.
        graded: whether the labels are scores.
        meanings: for rows that a task wrote, what each label means.
        question: the question to the annotators.
    """

    rows: Sequence[AuditRow]
    labels: Sequence[str]
    claimed: Sequence[str]
    graded: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)
    question: str = "Which label fits best?"


def draw_audit(folder: DatasetFolder, settings: AuditSettings) -> Audit:
    """Draw the rows that all annotators label: ``settings.rows`` rows, or all if there are fewer."""
    sample: list[dict[str, Any]] = []
    claimed: set[str] = set()
    column = ""
    for _, table, drawn in with_sample(folder, settings.rows, generator(settings.seed, "audit")):
        column = label_column(table.schema) or ""
        if column and len(claimed) <= MOST_LABELS:
            claimed |= {shown_label(value) for value in table.column(column).unique().to_pylist()}
        sample += drawn
    if not sample:
        raise InputError(f"{folder.path} has no rows to label; give a folder with rows as --data")
    columns = next((names for names in _QUESTIONS if set(names) <= sample[0].keys()), None)
    if columns is None or "id" not in sample[0]:
        raise InputError(
            f"{folder.path}: the rows have no ids, or no texts that can be labelled, only the columns "
            f"{', '.join(sample[0])}; give pairs, labelled texts, questions or documents with summaries"
        )
    if not column and not settings.labels:
        raise InputError(
            f"{folder.path}: its rows have no labels (a measured score is no label); give labels to choose "
            "from, e.g. --labels right --labels wrong"
        )
    # People cannot give a score with many distinct values, such as a search's.
    comparable = column and not (column == "score" and len(claimed) > MOST_LABELS)
    rows = [
        AuditRow(
            str(row["id"]), dict(row_texts(row, columns)), shown_label(row[column]) if comparable else ""
        )
        for row in sample
    ]
    repeated = next((name for name, count in Counter(row.id for row in rows).items() if count > 1), None)
    if repeated is not None:
        raise InputError(
            f"{folder.path}: two rows have the id {repeated!r}, but answers are stored by id; give each row "
            "an id of its own, as pairsmith mix does"
        )
    labels = settings.labels or sorted_labels(claimed)
    if len(labels) > MOST_LABELS:
        raise SettingsError(
            f"{folder.path} has more than {MOST_LABELS} different labels, but each label needs a key from 1 "
            f"to {MOST_LABELS}; give the labels to choose from as --labels"
        )
    graded = column == "score" and all(map(is_number, labels))
    meanings = label_meanings(folder.manifest.settings)
    question = settings.question or question_on(columns, graded)
    return Audit(rows, labels, sorted_labels({row.label for row in rows} - {""}), graded, meanings, question)


def question_on(columns: Sequence[str], graded: bool) -> str:
    """The question to annotators about rows with these text columns; ``graded`` if the labels are scores."""
    return _ALIKE if graded and "sentence1" in columns else _QUESTIONS[tuple(columns)]


def order_of(audit: Audit, annotator: str, seed: int) -> list[int]:
    """The indices of the rows in the order in which an annotator sees them."""
    order: list[int] = generator(seed, "audit order", annotator).permutation(len(audit.rows)).tolist()
    return order
