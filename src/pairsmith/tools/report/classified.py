"""The report's sections on the evaluation of a classifier: figures by label, and misclassified texts."""

import json
from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import Place, reaching, size_of
from pairsmith.data.lines import read_lines
from pairsmith.steps.evaluate.results import PREDICTIONS
from pairsmith.tools.report.models import evaluation_sections
from pairsmith.tools.report.parts import Block, ExampleRows, PageSection, Table, number, shown_text

_MOST_LABELS = 12
"""The confusion matrix is shown for at most this many labels."""


_TABLES = {"labels", "confusion"}
"""Figures that have a table of their own."""
_WORDS = {
    "macro_f1": "macro F1",
    "macro_f1_ci": "macro F1_ci",
    "largest": "accuracy of always predicting the most frequent label",
    "count": "texts",
    "blank": "blank texts, left out",
    "trained_on": "evaluated texts that the classifier was trained on",
}
"""The names of figures as the page shows them, by their names in ``results.json``."""


def classified_sections(folder: Place, results: Mapping[str, Any], examples: int) -> list[PageSection]:
    """The sections on an evaluation of a classifier: figures, labels, confusions, and misclassified texts.

    ``folder`` is the evaluation's folder, with its ``predictions.jsonl``; ``results`` are its figures.
    """
    figures_by_name = {
        _WORDS.get(name, name): value for name, value in results.items() if name not in _TABLES
    }
    figures, *others = evaluation_sections(figures_by_name)
    sections = [
        figures,
        PageSection("Label by label", list(_by_label(results["labels"], results["confusion"]))),
    ]
    if size_of(folder / PREDICTIONS) is not None and (block := _wrong(folder, examples)):
        sections.append(PageSection("Misclassified texts", [block]))
    return [*sections, *others]


def _by_label(labels: Mapping[str, Any], confusion: Mapping[str, Any]) -> Iterator[Block]:
    figures = ("precision", "recall", "f1")
    yield Table(
        ["label", "texts", "precision", "recall", "F1"],
        [
            (
                shown_text(label, 60),
                number(int(entry["count"])),
                *("–" if entry[name] is None else number(float(entry[name])) for name in figures),
            )
            for label, entry in labels.items()
        ],
        note="×100. Precision: of the texts predicted to have the label, the share that has it. Recall: of "
        "the texts that have the label, the share predicted to have it. F1: their harmonic mean.",
    )
    if len(confusion) <= _MOST_LABELS:
        yield Table(
            ["true label", *(f"predicted {shown_text(label, 40)}" for label in confusion)],
            [
                (shown_text(label, 60), *(number(int(row[other])) for other in confusion))
                for label, row in confusion.items()
            ],
            title="Number of texts by their true and predicted label",
        )


def _wrong(folder: Place, examples: int) -> Block | None:
    """The misclassified texts whose predicted labels have the highest probabilities; None without any."""
    with reaching(folder, FolderError):
        rows = (json.loads(line) for _, line in read_lines(folder / PREDICTIONS))
        misclassified = (row for row in rows if row["label"] != row["predicted"])
        mistakes = nlargest(max(3, examples), misclassified, key=lambda row: row["score"])
    if not mistakes:
        return None
    return ExampleRows(
        "The texts where the classifier was most confident of a wrong label. Read them: is the label in the "
        "data wrong, is the text unclear, or is the classifier wrong?",
        [
            (
                f"{shown_text(row['label'], 60)}, predicted {shown_text(row['predicted'], 60)} "
                f"({row['score']:.2f})",
                [("text", shown_text(row["text"]))],
            )
            for row in mistakes
        ],
    )
