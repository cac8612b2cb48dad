"""The report's section on texts and labels: how similar the two texts of a pair are, label by label."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pairsmith.data.text.folding import folded
from pairsmith.metrics.correlation import dense_groups, group_ranks
from pairsmith.tools.report.charts import ridges
from pairsmith.tools.report.giveaways import giveaway_blocks
from pairsmith.tools.report.parts import (
    Block,
    Chart,
    ExampleRows,
    Finding,
    Note,
    Table,
    column_words,
    number,
    percent,
    shown_text,
)
from pairsmith.tools.report.rows import PAIRS, Tally, sorted_labels
from pairsmith.tools.report.similarity import PairSimilarity, confused, cosines, shared_words, told_apart
from pairsmith.tools.settings import ReportSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_MANY = 0.05
_BY_WORDS = 0.95
"""Accuracy of a classifier on words above which labels are suspiciously easy to tell apart."""
_BINS = 20

_ALIKE = (
    "Read examples of both labels. If they say the same, write clearer instructions, take a larger model, or "
    "leave one of the labels out."
)


def similarity_by_label(
    summary: Tally, settings: ReportSettings, encoder: "SentenceTransformer | None", warn: list[Finding]
) -> Iterator[Block]:
    """How similar the texts of pairs are by label, or whether a classifier can label single texts."""
    sides = next((sides for sides in PAIRS if set(sides) <= set(summary.columns)), None)
    names = [summary.label_of(row) or "all" for row in summary.rows]
    if sides is None:
        yield from single_texts(summary, names, settings, warn)
        return
    graded = summary.label == "score" and all(isinstance(row["score"], float | None) for row in summary.rows)
    pairs = [(str(row[sides[0]] or ""), str(row[sides[1]] or "")) for row in summary.rows]
    near_copies = Counter(
        name for name, pair in zip(names, pairs, strict=True) if folded(pair[0]) == folded(pair[1])
    )
    rows = [
        (shown_text(name, 60), number(count), f"{near_copies[name]:,} ({percent(near_copies[name], count)})")
        for name, count in ((name, names.count(name)) for name in sorted_labels(set(names)))
    ]
    yield Table(
        [summary.label or "", "rows looked at", "near-copies"],
        rows,
        note="Near-copies differ only in case, spaces and punctuation.",
    )
    if sum(near_copies.values()) > _MANY * len(names):
        share = percent(sum(near_copies.values()), len(names))
        warn.append(
            Finding(
                f"{share} of the pairs are near-copies",
                "A model learns little from them. pairsmith postprocess --near-copies drop leaves them out.",
            )
        )
    measures = [shared_words(pairs), *([cosines(pairs, encoder)] if encoder else [])]
    for measure in measures:
        yield from by_label(measure, names, summary.label or "")
        if graded:
            for low, high, area in confused(measure.values, names):
                warn.append(
                    Finding(
                        f"the labels {low} and {high} look alike by {measure.measure}: of two pairs, one of "
                        f"each label, the one labelled {high} is more similar in {100 * area:.0f} % of cases",
                        _ALIKE,
                    )
                )
    if graded:
        yield from doubtful(summary, sides, measures[-1], settings)


def by_label(measure: PairSimilarity, names: Sequence[str], column: str = "") -> Iterator[Block]:
    """Mean, quartiles and distribution of a similarity for each label; ``column`` holds the labels."""
    values, labelled = measure.values, np.array(names)
    groups = {name: values[(labelled == name) & np.isfinite(values)] for name in sorted_labels(set(names))}
    groups = {name: group for name, group in groups.items() if len(group)}
    if not groups:
        return
    marks = (25, 50, 75)
    yield Table(
        [column, "mean", "25 %", "median", "75 %"],
        [
            (
                shown_text(name, 60),
                f"{group.mean():.2f}",
                *(f"{np.percentile(group, mark):.2f}" for mark in marks),
            )
            for name, group in groups.items()
        ],
        title=f"How similar the two texts are: {measure.measure}",
        note="0 is nothing in common, 1 the same. A quarter of a label's pairs lie below “25 %”, and "
        "half of them below the median.",
    )
    edges = np.linspace(min(0.0, float(np.nanmin(values))), 1, _BINS + 1)
    shares = {
        f"{column} {name}, {len(group):,} pairs".strip(): (
            100 * np.histogram(group, edges)[0] / len(group)
        ).tolist()
        for name, group in groups.items()
    }
    yield Chart(
        ridges(edges.tolist(), shares, measure.measure),
        f"Pairs of each label by {measure.measure}, all on one scale. Labels differ where their columns do.",
    )


def doubtful(
    summary: Tally, sides: tuple[str, str], measure: PairSimilarity, settings: ReportSettings
) -> Iterator[Block]:
    """The pairs whose score and similarity rank most differently, and those where the ranks agree."""
    scores = np.array([np.nan if row["score"] is None else float(row["score"]) for row in summary.rows])
    finite = np.flatnonzero(np.isfinite(measure.values) & np.isfinite(scores))
    if len(finite) < 2:
        return
    ranks = [group_ranks(dense_groups(values[finite])) for values in (scores, measure.values)]
    order = finite[np.argsort(np.abs(ranks[0] - ranks[1]), kind="stable")]
    for title, rows in (
        (f"Pairs whose score and {measure.measure} disagree most:", order[::-1]),
        ("Pairs where the two agree:", order),
    ):
        marked = [
            (
                f"score {scores[row]:g}, {measure.measure} {measure.values[row]:.2f}",
                [(column_words(side), shown_text(str(summary.rows[row][side]))) for side in sides],
            )
            for row in rows[: settings.examples]
        ]
        yield ExampleRows(title, marked)


def single_texts(
    summary: Tally, names: Sequence[str], settings: ReportSettings, warn: list[Finding]
) -> Iterator[Block]:
    """Whether a simple classifier predicts the labels of unseen texts."""
    text = next((name for name in ("text", *summary.columns) if name in summary.columns), None)
    texts = [str(row[text] or "") for row in summary.rows] if text and summary.label else []
    separation = told_apart(texts, list(names), settings.seed) if texts else None
    if separation is None and not summary.label:
        return
    if separation is None:
        yield Note("No two labels have enough rows to compare their texts: it takes 20 of each.")
        return
    yield from giveaway_blocks(texts, names, warn)
    right, commonest = separation
    yield Note(
        f"A linear classifier on words predicts the label of {100 * right:.1f} % of unseen texts correctly; "
        f"always predicting the most common label would be right for {100 * commonest:.1f} %."
    )
    if right > _BY_WORDS:
        warn.append(
            Finding(
                f"words alone tell the labels of {100 * right:.1f} % of the texts",
                "A model needs to learn nothing else from them. Of texts that a program wrote, vary the "
                "instructions, and measure what you train on texts of people.",
            )
        )
    if right < commonest + (1 - commonest) / 10:
        text_alike = "the texts of different labels look alike: a classifier on words cannot tell them apart"
        warn.append(Finding(text_alike, _ALIKE))
