"""The report's sections on a dataset folder."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import redacted
from pairsmith.core.progress import clock
from pairsmith.data.text.folding import folded
from pairsmith.metrics.correlation import dense_groups, group_ranks
from pairsmith.runs import DatasetFolder, model_display_name
from pairsmith.runs.log import recent
from pairsmith.tools.report.charts import bars, histogram, lines
from pairsmith.tools.report.overlap import FEWEST
from pairsmith.tools.report.parts import (
    Block,
    Chart,
    Examples,
    Facts,
    Note,
    Section,
    Table,
    number,
    percent,
    shown,
)
from pairsmith.tools.report.rejects import rejects_section
from pairsmith.tools.report.rows import GRAM, OTHERS, Known, Row, Tally, label_name, tally, texts_of, words
from pairsmith.tools.report.settings import ReportSettings
from pairsmith.tools.report.similarity import PairSimilarity, confused, cosines, shared_words, told_apart
from pairsmith.tools.report.traces import traces_section

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PAIRS = (("sentence1", "sentence2"), ("input", "output"))
_MANY = 0.05
_BINS = 40
_WORDS = 1_000_000
_SOURCES = 20

_FEW_SCORES = 10
"""Up to this many distinct scores, examples are shown for each score, not for the highest and lowest."""


def dataset_sections(
    folder: DatasetFolder,
    settings: ReportSettings,
    known: Known,
    encoder: "SentenceTransformer | None",
    warn: list[str],
) -> Iterator[Section]:
    """The sections on a data set; warnings for the top of the page are appended to ``warn``."""
    found = tally(folder, known, sample=settings.sample, seed=settings.seed, examples=settings.examples)
    if folder.rows:  # first, as the texts say more than any count
        yield Section("Examples", list(examples(found, settings)))
    yield Section("What it is", [made(folder), *sources(found)])
    if not folder.rows:
        warn.append("the data set has no rows")
    else:
        yield Section("Labels", list(labels(found, warn)))
        yield Section("Lengths", list(lengths(found)))
        yield Section("Variety", list(variety(found, warn)))
        yield Section("Texts and labels", list(likeness(found, settings, encoder, warn)))
        if known:
            yield Section("Evaluation data among the rows", list(overlap(found, warn)))
        if settings.traces:
            yield traces_section(folder, settings)
    yield rejects_section(folder, settings)


def made(folder: DatasetFolder) -> Facts:
    """Which step made the data set, with which settings, inputs and models, and how long it took."""
    manifest = folder.manifest
    rows = [("step", manifest.step), ("rows", number(folder.rows))]
    rows += [(f"rows of {split}", number(count)) for split, count in folder.split_rows.items()]
    rows += [("rejected", number(manifest.counts.rejects))]
    if cost := seconds(folder):
        rows.append(("time taken", f"{clock(cost)} ({folder.rows / cost:,.1f} rows a second)"))
    rows += [(name, shown(revision, 100)) for name, revision in manifest.models.items()]
    rows += [(name, f"SHA-256 {content[:16]}…") for name, content in manifest.inputs.items()]
    rows += [
        (name, shown(", ".join(map(str, value)) if isinstance(value, list) else str(value), 200))
        for name, value in manifest.settings.items()
        if value not in (None, "", [], {}) and name != "task"
    ]
    if isinstance(task := manifest.settings.get("task"), Mapping):
        rows.append(("task", shown(str(task.get("name", "")))))
        rows += [
            (f"instruction for {label_name(label['name'])}", shown(str(label["instruction"])))
            for label in task.get("labels", [])
        ]
    return Facts([*rows, ("pairsmith", manifest.pairsmith), ("made", manifest.created)])


def sources(found: Tally) -> Iterator[Block]:
    """How many rows of a mixture come from each source."""
    if found.sources:
        total = sum(found.sources.values())
        rows = [
            (shown(name, 100), number(count), percent(count, total)) for name, count in found.sources.items()
        ]
        yield Table(["rows of", "", ""], rows[:_SOURCES])


def seconds(folder: DatasetFolder) -> float:
    """Seconds that the step worked, by its log: from each start to the last shard finished after it."""
    total, begun, last = 0.0, None, None
    for event in recent(folder.path):
        when = datetime.fromisoformat(event["time"])
        if event.get("event") == "start":
            total += (last - begun).total_seconds() if begun and last else 0.0
            begun, last = when, None
        elif event.get("event") == "shard":
            last = when
    return total + ((last - begun).total_seconds() if begun and last else 0.0)


def labels(found: Tally, warn: list[str]) -> Iterator[Block]:
    """How many rows each label has, and how numeric columns are distributed."""
    if found.label:
        every = sum(found.labels.values(), Counter[str]())
        yield Chart(bars(sorted(every.items()), " rows"), f"Rows by {found.label}.")
        if len(found.splits) > 1:
            rows = [
                (shown(label, 60), *(number(found.labels[split][label]) for split in found.splits))
                for label in sorted(every)
            ]
            yield Table([found.label, *found.splits], rows)
        known = [label for label in every if label != OTHERS]
        smallest, largest = min(known, key=every.__getitem__), max(known, key=every.__getitem__)
        if every[largest] > 10 * every[smallest]:
            warn.append(
                f"the label {shown(smallest, 60)} has {every[smallest]:,} rows, {shown(largest, 60)} "
                f"{every[largest]:,}"
            )
    else:
        graded = "score" in found.numbers
        yield Note("The rows have scores for labels." if graded else "There are no labels in the rows.")
    for name, values in found.numbers.items():
        if len(values):
            yield histogram_of(values, name, f"The column {name}.")


def lengths(found: Tally) -> Iterator[Block]:
    """How long the texts of each column are, in words."""
    marks = (0, 5, 50, 95, 100)
    rows = [
        (name, *(number(float(np.percentile(each, mark)), 0) for mark in marks))
        for name, each in found.lengths.items()
    ]
    yield Table(
        ["words in", "shortest", "5 %", "median", "95 %", "longest"],
        rows,
        note="Words are separated by whitespace.",
    )
    for name, each in found.lengths.items():
        most = max(float(np.percentile(each, 99)), 1.0)
        yield histogram_of(
            np.minimum(each, most), f"words in {name}", "The longest 1 % are shown at the right end."
        )


def histogram_of(values: NDArray[Any], name: str, caption: str) -> Chart:
    """A histogram of values."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):  # a single value, up to rounding
        bins = np.array([low - 0.5, low + 0.5])
    elif (values == np.round(values)).all():  # whole numbers: the same number of them in every bin
        step = -(-(int(high - low) + 1) // _BINS)
        bins = np.arange(low, high + step + 1, step) - 0.5
    else:
        bins = np.linspace(low, high, _BINS + 1)
    counts, edges = np.histogram(values, bins=bins)
    return Chart(histogram(edges.tolist(), counts.tolist(), name), caption)


def variety(found: Tally, warn: list[str]) -> Iterator[Block]:
    """How often texts and their words repeat."""
    total = sum(found.splits.values())
    rows = []
    for name in found.columns:
        ones, twos = Counter[str](), Counter[tuple[str, str]]()
        for row in found.rows:
            if ones.total() > _WORDS:
                break
            text = words(str(row.get(name) or "")).split()
            ones.update(text)
            twos.update(pairwise(text))
        distinct = found.distinct[name]
        rows.append(
            (
                name,
                f"{number(distinct)} ({percent(distinct, total)})",
                percent(len(ones), ones.total()),
                percent(len(twos), twos.total()),
            )
        )
    yield Table(
        ["", "different texts", "different words", "different pairs of words"],
        rows,
        note="Different texts are counted in all rows; words and pairs of adjacent words in the sample, at "
        f"most in its first {_WORDS:,} words.",
    )
    for name in found.columns:
        texts_seen = Counter(str(row.get(name) or "") for row in found.rows)
        often = [(shown(text, 120), number(count)) for text, count in texts_seen.most_common(5) if count > 1]
        if often:
            yield Table([f"most frequent {name}", f"in {len(found.rows):,} rows"], often)
        openings = Counter(
            " ".join(str(row.get(name) or "").split()[:3]).casefold() for row in found.rows
        ).most_common(5)
        yield Table(
            [f"most frequent beginnings of {name}", ""],
            [(shown(text, 120), percent(count, len(found.rows))) for text, count in openings if count > 1],
        )
        if openings and openings[0][1] > 0.2 * len(found.rows) and len(found.rows) >= 50:
            share = percent(openings[0][1], len(found.rows))
            warn.append(f"{share} of {name} begin with “{shown(openings[0][0], 60)}”")


def likeness(
    found: Tally, settings: ReportSettings, encoder: "SentenceTransformer | None", warn: list[str]
) -> Iterator[Block]:
    """How similar the texts of pairs are by label, or whether a classifier can label single texts."""
    sides = next((sides for sides in PAIRS if set(sides) <= set(found.columns)), None)
    names = [found.label_of(row) or "all" for row in found.rows]
    if sides is None:
        yield from single_texts(found, names, settings, warn)
        return
    graded = found.label == "score" and all(isinstance(row["score"], float | None) for row in found.rows)
    pairs = [(str(row[sides[0]] or ""), str(row[sides[1]] or "")) for row in found.rows]
    near = Counter(
        name for name, pair in zip(names, pairs, strict=True) if folded(pair[0]) == folded(pair[1])
    )
    each = Counter(names)
    yield Table(
        [found.label or "", "rows examined", "near-copies"],
        [
            (shown(name, 60), number(each[name]), f"{near[name]:,} ({percent(near[name], each[name])})")
            for name in sorted(each)
        ],
        note="Near-copies differ only in case, spaces and punctuation.",
    )
    if sum(near.values()) > _MANY * len(names):
        warn.append(f"{percent(sum(near.values()), len(names))} of the pairs are near-copies")
    measures = [shared_words(pairs), *([cosines(pairs, encoder)] if encoder else [])]
    for measure in measures:
        yield from by_label(measure, names)
        if graded:
            for low, high, area in confused(measure.values, names):
                warn.append(
                    f"the labels {low} and {high} look alike by {measure.measure}: of two pairs, one of "
                    f"each label, the one labelled {high} is more similar in {100 * area:.0f} % of cases"
                )
    if graded:
        yield from doubtful(found, sides, measures[-1], settings)


def by_label(measure: PairSimilarity, names: Sequence[str]) -> Iterator[Block]:
    """Mean and quartiles of a similarity for each label, and its distribution as a line."""
    values, labelled = measure.values, np.array(names)
    groups = {name: values[(labelled == name) & np.isfinite(values)] for name in sorted(set(names))}
    groups = {name: group for name, group in groups.items() if len(group)}
    marks = (25, 50, 75)
    yield Table(
        [measure.measure, "mean", "25 %", "median", "75 %"],
        [
            (shown(name, 60), f"{group.mean():.2f}", *(f"{np.percentile(group, mark):.2f}" for mark in marks))
            for name, group in groups.items()
        ],
    )
    edges = np.linspace(min(0.0, float(np.nanmin(values))), 1, 26)
    middle = (edges[:-1] + edges[1:]) / 2
    shares = {
        name: list(zip(middle, 100 * np.histogram(group, edges)[0] / len(group), strict=True))
        for name, group in groups.items()
    }
    yield Chart(lines(shares, measure.measure), f"Per cent of each label's pairs by {measure.measure}.")


def doubtful(
    found: Tally, sides: tuple[str, str], measure: PairSimilarity, settings: ReportSettings
) -> Iterator[Block]:
    """The pairs whose score and similarity rank most differently, and those where the ranks agree."""
    scores = np.array([np.nan if row["score"] is None else float(row["score"]) for row in found.rows])
    known = np.flatnonzero(np.isfinite(measure.values) & np.isfinite(scores))
    if len(known) < 2:
        return
    ranks = [group_ranks(dense_groups(each[known])) for each in (scores, measure.values)]
    order = known[np.argsort(np.abs(ranks[0] - ranks[1]), kind="stable")]
    shown_rows = {
        f"Pairs whose score and {measure.measure} disagree most:": order[::-1][: settings.examples],
        "Pairs where the two agree:": order[: settings.examples],
    }
    for title, rows in shown_rows.items():
        yield Examples(
            title,
            [
                (
                    f"score {scores[row]:g}, {measure.measure} {measure.values[row]:.2f}",
                    [(side, shown(str(found.rows[row][side]))) for side in sides],
                )
                for row in rows
            ],
        )


def single_texts(
    found: Tally, names: Sequence[str], settings: ReportSettings, warn: list[str]
) -> Iterator[Block]:
    """Whether a simple classifier predicts the labels of unseen texts."""
    text = next((name for name in ("text", *found.columns) if name in found.columns), None)
    told = (
        told_apart([str(row[text] or "") for row in found.rows], list(names), settings.seed)
        if text and found.label
        else None
    )
    if told is None:
        yield Note("No two labels have enough rows to compare their texts.")
        return
    right, commonest = told
    yield Note(
        f"A linear classifier on words predicts the label of {100 * right:.1f} % of unseen texts correctly; "
        f"always predicting the most common label would be right for {100 * commonest:.1f} %."
    )
    if right < commonest + (1 - commonest) / 10:
        warn.append("the texts of different labels look alike: a classifier on words cannot tell them apart")


def overlap(found: Tally, warn: list[str]) -> Iterator[Block]:
    """How many rows share text with each evaluation set, with the first of them."""
    total = sum(found.splits.values())
    names = _short_names(found.shared)
    for evaluation, shared in found.shared.items():
        said = (
            f"{shared.rows:,} of {total:,} rows contain a text of {names[evaluation]}, or {GRAM} consecutive "
            "words of one"
        )
        yield Note(f"{said}.")
        if shared.rows:
            warn.append(f"{said}; figures measured on it may be too good")
    yield Table(
        [
            "evaluation data",
            "rows that contain one of its texts",
            f"rows that contain {GRAM} consecutive words of one",
        ],
        [
            (
                names[evaluation],
                f"{shared.whole:,} of {total:,} ({percent(shared.whole, total)})",
                f"{shared.runs:,} of {total:,} ({percent(shared.runs, total)})",
            )
            for evaluation, shared in found.shared.items()
        ],
        note="All rows are examined, and a row counts once in a column. It contains a text if one of its own "
        "texts is the same. Case and punctuation are ignored, and so are texts of the evaluation data "
        f"with fewer than {FEWEST} words.",
    )
    for evaluation, shared in found.shared.items():
        if shared.first:
            yield Examples(
                f"The first rows that share text with {names[evaluation]}:",
                [("", shown_texts(row, found)) for row in shared.first],
            )


def _short_names(sources: Iterable[str]) -> dict[str, str]:
    """A display name for each source: its name without folders, unless two sources share that."""
    each = {source: model_display_name(source) for source in sources}
    often = Counter(each.values())
    return {
        source: shown(name if often[name] == 1 else redacted(source), 100) for source, name in each.items()
    }


def examples(found: Tally, settings: ReportSettings) -> Iterator[Block]:
    """Some rows of each label; where rows are ranked by score or margin, the highest and the lowest."""
    ranked = next((name for name in ("score", "margin") if name in found.numbers), None)
    if ranked and len({row[ranked] for row in found.rows}) > _FEW_SCORES:
        known = [row for row in found.rows if row[ranked] is not None and math.isfinite(row[ranked])]
        order = sorted(known, key=lambda row: -float(row[ranked]))
        for title, rows in (("highest", order[: settings.examples]), ("lowest", order[-settings.examples :])):
            yield Examples(
                f"Rows with the {title} {ranked}:",
                [
                    (f"{ranked} {row[ranked]:.3f}", shown_texts(row, found))
                    for row in rows
                    if settings.examples
                ],
            )
        return
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in found.rows:
        by_name[found.label_of(row)].append(row)
    for name, rows in sorted(by_name.items(), key=lambda item: _highest_first(item[0])):
        title = f"{found.label} {shown(name, 60)}:" if found.label else "Some rows:"
        yield Examples(title, [("", shown_texts(row, found)) for row in rows[: settings.examples]])


def _highest_first(label: str) -> tuple[float, str]:
    """Sort key: numbers from the highest down, then names alphabetically."""
    try:
        return -float(label), label
    except ValueError:
        return math.inf, label


def shown_texts(row: Row, found: Tally) -> list[tuple[str, str]]:
    """The texts of a row as they are shown, each with its column's name."""
    return [(name, shown(text)) for name, text in texts_of(row, found.columns)]
