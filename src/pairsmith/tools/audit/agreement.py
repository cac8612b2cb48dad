"""How often annotators confirm the labels, and how far they agree with each other (D13, Table 3)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np

from pairsmith.tools.audit.rows import MOST_LABELS, Audit, is_number

Labels = Mapping[str, str]
"""The labels that one annotator gave, by row id."""

_Z = 1.959963984540054


def confusion(audit: Audit, said: Sequence[Labels]) -> dict[str, dict[str, Any]]:
    """For each label in the data, how often annotators gave each label (D13); the shares sum to 100.

    Args:
        audit: the rows.
        said: the labels of each annotator; every answer counts.

    Returns:
        For each label in the data, the number of ``answers`` and, for each given label, its ``share``
        ×100 with the 95 % Wilson interval ``share_ci``; labels without answers are left out. Empty if the
        data have more labels than there are keys, such as the scores of a model.
    """
    if len(audit.claimed) > MOST_LABELS:
        return {}
    claims = {row.id: row.label for row in audit.rows}
    by_claim: dict[str, list[str]] = {}
    for each in said:
        for row, label in each.items():
            by_claim.setdefault(claims[row], []).append(label)
    found = {}
    for claimed in audit.claimed:
        if given := by_claim.get(claimed):
            shares = {label: given.count(label) for label in audit.labels}
            found[claimed] = {
                "answers": len(given),
                "given": {
                    label: {
                        "share": round(100 * count / len(given), 2),
                        "share_ci": [round(100 * limit, 2) for limit in wilson(count, len(given))],
                    }
                    for label, count in shares.items()
                },
            }
    return found


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion.

    Args:
        count: number of successes.
        total: number of trials, at least 1.

    Returns:
        The limits, within [0, 1].
    """
    share, spread = count / total, _Z**2 / total
    middle = (share + spread / 2) / (1 + spread)
    width = _Z * ((share * (1 - share) + spread / 4) / total) ** 0.5 / (1 + spread)
    return max(0.0, middle - width), min(1.0, middle + width)


def agreement(audit: Audit, said: Mapping[str, Labels]) -> dict[str, Any]:
    """How far annotators agree beyond chance.

    Returns:
        ``cohen``: for each pair ``"one, other"`` Cohen's kappa on the rows that both labelled, None where
        there are fewer than two or all have one label; ``krippendorff``: Krippendorff's alpha of all
        annotators, on an interval scale if all labels are numbers, else nominal, None if undefined.
    """
    from sklearn.metrics import cohen_kappa_score

    pairs: dict[str, float | None] = {}
    for one, other in combinations(said, 2):
        both = [row.id for row in audit.rows if row.id in said[one] and row.id in said[other]]
        first, second = ([said[name][row] for row in both] for name in (one, other))
        apart = len(set(first) | set(second)) > 1
        pairs[f"{one}, {other}"] = (
            round(float(cohen_kappa_score(first, second)), 4) if len(both) > 1 and apart else None
        )
    return {"cohen": pairs, "krippendorff": _krippendorff(audit, said)}


def _krippendorff(audit: Audit, said: Mapping[str, Labels]) -> float | None:
    import krippendorff

    numbers = all(map(is_number, audit.labels))
    level: Literal["interval", "nominal"] = "interval" if numbers else "nominal"
    worth = {label: float(label) if numbers else float(place) for place, label in enumerate(audit.labels)}
    values = np.array(
        [[worth.get(labels.get(row.id, ""), np.nan) for row in audit.rows] for labels in said.values()]
    )
    compared = values[:, (~np.isnan(values)).sum(axis=0) > 1] if len(values) else values
    if compared.size == 0 or len(np.unique(compared[~np.isnan(compared)])) < 2:
        return None
    return round(float(krippendorff.alpha(reliability_data=values, level_of_measurement=level)), 4)
