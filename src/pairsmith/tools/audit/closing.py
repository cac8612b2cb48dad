"""The messages at the end of an audit: how the annotators' labels agree, and what was written where."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pairsmith.tools.audit.agreement import AnnotatorLabels
from pairsmith.tools.audit.rows import Audit

FILES = (
    ("results.json", "the shares of labels, the agreement, and the label that most people gave each row"),
    ("answers.jsonl", "every label as it was given, with the time"),
    ("labelled/", "a data set of the rows with the label that most people gave them"),
    ("label-studio.json, label-studio.xml, argilla.json", "the same for Label Studio and Argilla"),
)
"""What an audit writes into its folder, and what is in it."""


def closing(
    audit: Audit, said: Mapping[str, AnnotatorLabels], results: Mapping[str, Any], out: Path
) -> dict[str, Any]:
    """What the page shows at the end.

    Returns:
        ``told``: sentences; ``caption`` and ``table``: how often which label was given to the rows of each
        label in the data, with a head; empty where the data have no labels; ``folder`` and ``files``: what
        was written.
    """
    columns = list(results["confusion"])
    table: list[list[str]] = []
    if columns:
        table = [["label given", *(f"{column} in the data" for column in columns)]]
        for label in audit.labels:
            shares = (results["confusion"][column]["given"][label]["share"] for column in columns)
            table.append([label, *(f"{share:.0f} %" for share in shares)])
    return {
        "told": [*_counts(audit, said), *_agreement(results)],
        "caption": "Of the rows with each label in the data, the share that was given each label",
        "table": table,
        "folder": str(out),
        "files": [list(file) for file in FILES],
    }


def _counts(audit: Audit, said: Mapping[str, AnnotatorLabels]) -> Sequence[str]:
    """For each annotator how many rows they labelled, and how many as the data do."""
    sentences = []
    for name, labels in said.items():
        sentence = f"{name} labelled {len(labels)} of {len(audit.rows)} rows"
        compared = [row for row in audit.rows if row.id in labels and row.label in audit.labels]
        if compared:
            same = sum(labels[row.id] == row.label for row in compared)
            share = 100 * same / len(compared)
            sentence += f", and gave {same} of {len(compared)} ({share:.0f} %) the label in the data"
        sentences.append(f"{sentence}.")
    return sentences or ["Nobody has labelled a row yet."]


def _agreement(results: Mapping[str, Any]) -> Sequence[str]:
    """How far several annotators agree beyond chance; nothing about one alone."""
    coefficients = results["agreement"]
    lines = [f"Cohen's kappa of {pair}: {_figure(value)}." for pair, value in coefficients["cohen"].items()]
    if len(results["labelled"]) > 1:
        lines.append(f"Krippendorff's alpha of all annotators: {_figure(coefficients['krippendorff'])}.")
    return [*lines, "1 is full agreement, 0 no more than by chance."] if lines else lines


def _figure(value: float | None) -> str:
    return "cannot be computed" if value is None else f"{value:.2f}"
