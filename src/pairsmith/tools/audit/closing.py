"""What an audit shows at its end, on the page and in the terminal: how the annotators' labels agree."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pairsmith.core.errors import counted
from pairsmith.core.text_width import right_aligned, text_width
from pairsmith.tools.audit.rows import Audit

FILES = (
    (
        "results.json",
        "how often each label was given, the agreement of the annotators, and the label that most people "
        "gave each row",
    ),
    ("answers.jsonl", "every label that was given, with the annotator and the time"),
    ("labelled/", "a data set of the rows, each with the label that most people gave it"),
    (
        "label-studio.json, label-studio.xml, argilla.json",
        "the rows with their new labels, to import into Label Studio or Argilla",
    ),
)
"""The files that an audit writes into its folder, each with what it contains."""


def closing(audit: Audit, results: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """What the page shows at the end.

    Returns:
        ``summary``: sentences on what was labelled and on the agreement. ``caption`` and ``table``: how often
        each label was given to the rows with each label in the data; the first row of the table is its head,
        and it is empty if the data have no labels. ``folder`` and ``files``: the audit's folder, and the
        files that were written there.
    """
    columns = list(results["confusion"])
    table: list[list[str]] = []
    if columns:
        table = [["label given by people", *(f"rows labelled {column} in the data" for column in columns)]]
        for label in audit.labels:
            shares = (results["confusion"][column]["given"][label]["share"] for column in columns)
            table.append([label, *(f"{share:.0f} %" for share in shares)])
    return {
        "summary": [*_counts(results), *_agreement(results)],
        "caption": "How people labelled the rows with each label in the data, as shares of all answers to "
        "them",
        "table": table,
        "folder": str(out),
        "files": [list(file) for file in FILES],
    }


def _counts(results: Mapping[str, Any]) -> Sequence[str]:
    """For each annotator, how many rows they labelled, and how many of these as the data label them."""
    sentences = []
    for name, count in results["labelled"].items():
        sentence = f"{name} labelled {count} of {counted(results['rows'], 'rows')}"
        if compared := results["as_in_data"].get(name):
            share = f"{compared['same']} of {compared['answers']} ({compared['share']:.0f} %)"
            sentence += f"; {share} got the label that the data give them"
        sentences.append(f"{sentence}.")
    return sentences or ["Nobody has labelled a row yet."]


def _agreement(results: Mapping[str, Any]) -> Sequence[str]:
    """Sentences on how far several annotators agree beyond chance; none if there is one annotator."""
    coefficients = results["agreement"]
    lines = [f"Cohen's kappa of {pair}: {_figure(value)}." for pair, value in coefficients["cohen"].items()]
    if len(results["labelled"]) > 1:
        lines.append(f"Krippendorff's alpha of all annotators: {_figure(coefficients['krippendorff'])}.")
    return [*lines, "1 means full agreement, 0 no more agreement than by chance."] if lines else lines


def _figure(value: float | None) -> str:
    return "cannot be computed" if value is None else f"{value:.2f}"


def audit_table(audit: Audit, results: Mapping[str, Any]) -> str:
    """The confusion table as in Table 3, with the number of answers, and the agreement."""
    answers = list(results["confusion"])
    width = max([9, *(text_width(heading) + 2 for heading in (*audit.labels, *answers))])
    lines = []
    for name, count in results["labelled"].items():
        line = f"{name}: {count} of {counted(results['rows'], 'rows')} labelled"
        if compared := results["as_in_data"].get(name):
            low, high = compared["share_ci"]
            share = f"{compared['same']} of {compared['answers']}, {compared['share']:.1f} %"
            line += f"; as in the data: {share} [{low:.1f}, {high:.1f}]"
        lines.append(line)
    if answers:
        lines += ["", "share of answers ×100, by the label in the data"]
        lines.append("".join(right_aligned(heading, width) for heading in ("given", *answers)))
        for label in audit.labels:
            shares = (results["confusion"][column]["given"][label]["share"] for column in answers)
            lines.append(right_aligned(label, width) + "".join(f"{share:>{width}.1f}" for share in shares))
        counts = (results["confusion"][column]["answers"] for column in answers)
        lines.append(f"{'answers':>{width}}" + "".join(f"{count:>{width}}" for count in counts))
    coefficients = results["agreement"]
    lines += [f"Cohen's kappa of {pair}: {value}" for pair, value in coefficients["cohen"].items()]
    if len(results["labelled"]) > 1:
        lines.append(f"Krippendorff's alpha: {coefficients['krippendorff']}")
    return "\n".join(lines) or "nobody has labelled a row yet"
