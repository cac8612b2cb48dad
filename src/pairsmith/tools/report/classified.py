"""The report's sections on the evaluation of a classifier: figures by label, and texts it got wrong."""

import json
from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import Place, reaching, size_of
from pairsmith.data.sources import read_lines
from pairsmith.steps.evaluate.results import PREDICTIONS
from pairsmith.tools.report.models import evaluation_sections
from pairsmith.tools.report.parts import Block, ExampleRows, PageSection, Table, number, shown_text

_MOST_LABELS = 12
"""Of more labels no table of confusions is shown."""


_TABLES = {"labels", "confusion"}
"""Figures that have a table of their own."""
_WORDS = {
    "macro_f1": "macro F1",
    "macro_f1_ci": "macro F1_ci",
    "largest": "accuracy by always giving the most frequent label",
    "count": "texts",
    "blank": "blank texts, left out",
    "trained_on": "texts that the classifier was trained on",
}


def classified_sections(folder: Place, results: Mapping[str, Any], examples: int) -> list[PageSection]:
    """The sections on an evaluation of a classifier: figures, labels, confusions, and texts it got wrong.

    ``folder`` has the evaluation's ``predictions.jsonl``, ``results`` its figures.
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
        sections.append(PageSection("Texts that got another label", [block]))
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
        note="×100. Precision: of the texts that were given the label, how many have it. Recall: of "
        "the texts that have it, how many were given it.",
    )
    if len(confusion) <= _MOST_LABELS:
        yield Table(
            ["has the label", *(f"was given {shown_text(label, 40)}" for label in confusion)],
            [
                (shown_text(label, 60), *(number(int(row[other])) for other in confusion))
                for label, row in confusion.items()
            ],
            title="What was taken for what",
        )


def _wrong(folder: Place, examples: int) -> Block | None:
    """The texts with a wrong label of which the classifier was surest."""
    with reaching(folder, FolderError):
        rows = (json.loads(line) for _, line in read_lines(folder / PREDICTIONS))
        wrong = (row for row in rows if row["label"] != row["predicted"])
        mistakes = nlargest(max(3, examples), wrong, key=lambda row: row["score"])
    if not mistakes:
        return None
    return ExampleRows(
        "Those that it was surest of. Read them: is the label wrong, the text unclear, or the classifier?",
        [
            (
                f"{shown_text(row['label'], 60)}, was given {shown_text(row['predicted'], 60)} "
                f"({row['score']:.2f})",
                [("text", shown_text(row["text"]))],
            )
            for row in mistakes
        ],
    )
