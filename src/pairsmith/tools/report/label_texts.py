"""The section on texts and labels: similarities of pairs by label, or how well words predict labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pairsmith.core.errors import counted
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
from pairsmith.tools.report.rows import PAIRS, DatasetSummary, sorted_labels
from pairsmith.tools.report.similarity import (
    PairSimilarity,
    classifier_accuracy,
    cosines,
    shared_words,
    similar_labels,
)
from pairsmith.tools.settings import ReportSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_MANY = 0.05
"""The page warns if more than this share of the pairs are near-copies."""
_BY_WORDS = 0.95
"""Accuracy of a classifier on words above which labels are suspiciously easy to tell apart."""
_BINS = 20
"""Number of columns of each histogram."""

_ALIKE = (
    "Read examples of both labels. If there is no difference, write clearer instructions, use a larger "
    "model, or leave out one of the labels."
)


def similarity_by_label(
    summary: DatasetSummary,
    settings: ReportSettings,
    encoder: "SentenceTransformer | None",
    warn: list[Finding],
) -> Iterator[Block]:
    """For pairs, how similar their texts are, by label; for single texts, whether words predict the label."""
    sides = next((sides for sides in PAIRS if set(sides) <= set(summary.columns)), None)
    names = [summary.label_of(row) or "all" for row in summary.rows]
    if sides is None:
        yield from separability_blocks(summary, names, settings, warn)
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
        [summary.label or "", "rows in the sample", "near-copies"],
        rows,
        note="The two texts of a near-copy differ only in case, spaces and punctuation.",
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
        yield from similarity_blocks(measure, names, summary.label or "")
        if graded:
            for low, high, area in similar_labels(measure.values, names):
                warn.append(
                    Finding(
                        f"pairs labelled {low} and {high} hardly differ in their {measure.measure}: if one "
                        f"pair of each label is drawn, the one labelled {high} is more similar in "
                        f"{100 * area:.0f} % of cases",
                        _ALIKE,
                    )
                )
    if graded:
        yield from agreement_examples(summary, sides, measures[-1], settings)


def similarity_blocks(measure: PairSimilarity, names: Sequence[str], column: str = "") -> Iterator[Block]:
    """Mean, quartiles and distribution of a similarity for each label.

    ``names`` are the labels of the pairs, and ``column`` the name of the column that holds them.
    """
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
        note="0 means that the texts have nothing in common, 1 that they are the same. A quarter of a "
        "label's pairs have a value below “25 %”, half of them a value below the median.",
    )
    edges = np.linspace(min(0.0, float(np.nanmin(values))), 1, _BINS + 1)
    shares = {
        f"{column} {name}, {counted(len(group), 'pairs')}".strip(): (
            100 * np.histogram(group, edges)[0] / len(group)
        ).tolist()
        for name, group in groups.items()
    }
    yield Chart(
        ridges(edges.tolist(), shares, measure.measure),
        f"The pairs of each label by their {measure.measure}, all on one scale. Labels whose histograms look "
        "alike cannot be told apart by this measure.",
    )


def agreement_examples(
    summary: DatasetSummary, sides: tuple[str, str], measure: PairSimilarity, settings: ReportSettings
) -> Iterator[Block]:
    """The pairs whose ranks by score and by similarity differ most, and those whose ranks differ least."""
    scores = np.array([np.nan if row["score"] is None else float(row["score"]) for row in summary.rows])
    finite = np.flatnonzero(np.isfinite(measure.values) & np.isfinite(scores))
    if len(finite) < 2:
        return
    ranks = [group_ranks(dense_groups(values[finite])) for values in (scores, measure.values)]
    order = finite[np.argsort(np.abs(ranks[0] - ranks[1]), kind="stable")]
    for title, rows in (
        (f"Pairs whose score and {measure.measure} disagree most:", order[::-1]),
        (f"Pairs whose score and {measure.measure} agree most:", order),
    ):
        marked = [
            (
                f"score {scores[row]:g}, {measure.measure} {measure.values[row]:.2f}",
                [(column_words(side), shown_text(str(summary.rows[row][side]))) for side in sides],
            )
            for row in rows[: settings.examples]
        ]
        yield ExampleRows(title, marked)


def separability_blocks(
    summary: DatasetSummary, names: Sequence[str], settings: ReportSettings, warn: list[Finding]
) -> Iterator[Block]:
    """Whether a simple classifier predicts the labels of texts that it was not trained on."""
    text = next((name for name in ("text", *summary.columns) if name in summary.columns), None)
    texts = [str(row[text] or "") for row in summary.rows] if text and summary.label else []
    separation = classifier_accuracy(texts, list(names), settings.seed) if texts else None
    if separation is None and not summary.label:
        return
    if separation is None:
        yield Note("The texts are not compared: fewer than two labels have at least 20 rows in the sample.")
        return
    yield from giveaway_blocks(texts, names, warn)
    accuracy, commonest = separation
    yield Note(
        f"A linear classifier on words predicts the label of {100 * accuracy:.1f} % of unseen texts "
        f"correctly; always predicting the most common label would be correct for {100 * commonest:.1f} %."
    )
    if accuracy > _BY_WORDS:
        warn.append(
            Finding(
                f"the words of a text alone tell its label for {100 * accuracy:.1f} % of the texts",
                "A model needs to learn nothing but words from such texts. If a program wrote them, vary the "
                "instructions, and evaluate the model that you train on texts that people wrote.",
            )
        )
    if accuracy < commonest + (1 - commonest) / 10:
        text_alike = "the texts of different labels look alike: a classifier on words cannot tell them apart"
        warn.append(Finding(text_alike, _ALIKE))
