"""The results of an audit: how often annotators confirm the data's labels, and how far they agree
with each other (D13, Table 3)."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Literal

import numpy as np

from pairsmith.tools.audit.rows import MOST_LABELS, Audit
from pairsmith.tools.report.rows import is_number

AnnotatorLabels = Mapping[str, str]
"""The labels that one annotator gave, by row id."""

Votes = Mapping[str, AnnotatorLabels]
"""The labels of each annotator, by name."""


def results_of(audit: Audit, votes: Votes) -> dict[str, Any]:
    """The results of the annotators' labels: counts, confusion, agreement and majority labels."""
    return {
        "rows": len(audit.rows),
        "labelled": {name: len(labels) for name, labels in votes.items()},
        "as_in_data": as_in_data(audit, votes),
        "confusion": label_confusion(audit, votes),
        "agreement": annotator_agreement(audit, votes),
        "labels": {
            row.id: label for row in audit.rows if (label := majority_label(row.id, votes)) is not None
        },
    }


def majority_label(row: str, votes: Votes) -> str | None:
    """The label that most annotators gave a row; None where nobody labelled it, or in a tie."""
    counts = Counter(labels[row] for labels in votes.values() if row in labels).most_common(2)
    tie = len(counts) > 1 and counts[0][1] == counts[1][1]
    return counts[0][0] if counts and not tie else None


def as_in_data(audit: Audit, votes: Votes) -> dict[str, dict[str, Any]]:
    """How often each annotator gave the label that the row has in the data.

    Returns:
        for each annotator, in ``answers`` the number of labelled rows whose label in the data could be
        chosen, and in ``same`` how many of these got this label; its ``share`` ×100 has the 95 % Wilson
        interval ``share_ci``. Annotators without such rows are left out.
    """
    shares = {}
    for name, labels in votes.items():
        pairs = [
            (row.label, labels[row.id])
            for row in audit.rows
            if row.id in labels and row.label in audit.labels
        ]
        if pairs:
            same = sum(label == answer for label, answer in pairs)
            limits = wilson(same, len(pairs))
            shares[name] = {
                "answers": len(pairs),
                "same": same,
                "share": round(100 * same / len(pairs), 2),
                "share_ci": [round(100 * limit, 2) for limit in limits],
            }
    return shares


def label_confusion(audit: Audit, votes: Votes) -> dict[str, dict[str, Any]]:
    """For each label in the data, how often annotators gave each label (D13); every answer counts.

    Returns:
        for each label in the data, the number of ``answers`` to its rows, and in ``given``, for each label to
        choose from, its ``share`` of the answers ×100 with the 95 % Wilson interval ``share_ci``. The shares
        add up to 100. Labels in the data without answers are left out. Empty if the data have more labels
        than there are keys, as a model's scores do.
    """
    if len(audit.claimed) > MOST_LABELS:
        return {}
    claims = {row.id: row.label for row in audit.rows}
    answers = [(claims[row], label) for labels in votes.values() for row, label in labels.items()]
    by_label = {}
    for claimed in audit.claimed:
        if own_answers := [label for claim, label in answers if claim == claimed]:
            shares = {}
            for label in audit.labels:
                limits = wilson(own_answers.count(label), len(own_answers))
                shares[label] = {
                    "share": round(100 * own_answers.count(label) / len(own_answers), 2),
                    "share_ci": [round(100 * limit, 2) for limit in limits],
                }
            by_label[claimed] = {"answers": len(own_answers), "given": shares}
    return by_label


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval, within [0, 1], of the share ``count / total``; ``total`` is at least 1."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # it has no types

    limits = binomtest(count, total).proportion_ci(method="wilson")
    return float(limits.low), float(limits.high)


def annotator_agreement(audit: Audit, votes: Votes) -> dict[str, Any]:
    """How far annotators agree beyond chance.

    Returns:
        ``cohen``: for each pair of annotators, ``"one, other"``, Cohen's kappa on the rows that both
        labelled; None if there are fewer than two such rows or all of them got the same label from both.
        ``krippendorff``: Krippendorff's alpha of all annotators, on an interval scale if all labels are
            numbers, else on a nominal scale; None if undefined.
    """
    from sklearn.metrics import cohen_kappa_score

    pairs: dict[str, float | None] = {}
    for one, other in combinations(votes, 2):
        both = [row.id for row in audit.rows if row.id in votes[one] and row.id in votes[other]]
        labels = [[votes[name][row] for row in both] for name in (one, other)]
        defined = len(both) > 1 and len({*labels[0], *labels[1]}) > 1
        pairs[f"{one}, {other}"] = round(float(cohen_kappa_score(*labels)), 4) if defined else None
    return {"cohen": pairs, "krippendorff": _krippendorff(audit, votes)}


def _krippendorff(audit: Audit, votes: Votes) -> float | None:
    import krippendorff

    numbers = all(map(is_number, audit.labels))
    level: Literal["interval", "nominal"] = "interval" if numbers else "nominal"
    codes = {label: float(label) if numbers else float(place) for place, label in enumerate(audit.labels)}
    values = np.array(  # a row for each annotator, a column for each row of the audit, NaN without a label
        [[codes.get(labels.get(row.id, ""), np.nan) for row in audit.rows] for labels in votes.values()]
    )
    compared = values[:, (~np.isnan(values)).sum(axis=0) > 1] if len(values) else values
    if compared.size == 0 or len(np.unique(compared[~np.isnan(compared)])) < 2:
        return None
    return round(float(krippendorff.alpha(reliability_data=values, level_of_measurement=level)), 4)
