"""The report's sections on a dataset folder."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
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
from pairsmith.tools.report.similarity import PairSimilarity, confused, cosines, shared_words, told_apart
from pairsmith.tools.report.traces import traces_section
from pairsmith.tools.settings import ReportSettings

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
    total = sum(found.sources.values())
    sources = [(shown(name, 100), number(rows), percent(rows, total)) for name, rows in found.sources.items()]
    tables = [Table(["rows of", "", ""], sources[:_SOURCES])] if sources else []
    yield Section("What it is", [made(folder), *tables])
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


def seconds(folder: DatasetFolder) -> float:
    """Seconds that the step worked, by its log: from each start to the last shard finished after it."""
    total, mark = timedelta(), None
    for event in recent(folder.path):
        when = datetime.fromisoformat(event["time"])
        if event.get("event") == "start":
            mark = when
        elif event.get("event") == "shard" and mark:
            total, mark = total + (when - mark), when
    return total.total_seconds()


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
    rows = [
        (name, *(number(float(mark), 0) for mark in np.percentile(each, (0, 5, 50, 95, 100))))
        for name, each in found.lengths.items()
    ]
    head = ["words in", "shortest", "5 %", "median", "95 %", "longest"]
    yield Table(head, rows, note="Words are separated by whitespace.")
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
    sample = {name: [str(row.get(name) or "") for row in found.rows] for name in found.columns}
    rows = []
    for name, texts in sample.items():
        ones, twos = Counter[str](), Counter[tuple[str, str]]()
        for text in texts:
            if ones.total() > _WORDS:
                break
            each = words(text).split()
            ones.update(each)
            twos.update(pairwise(each))
        different = f"{number(found.distinct[name])} ({percent(found.distinct[name], total)})"
        rows.append((name, different, *(percent(len(kinds), kinds.total()) for kinds in (ones, twos))))
    yield Table(
        ["", "different texts", "different words", "different pairs of words"],
        rows,
        note="Different texts are counted in all rows; words and pairs of adjacent words in the sample, at "
        f"most in its first {_WORDS:,} words.",
    )
    for name, texts in sample.items():
        repeated = [(text, count) for text, count in Counter(texts).most_common(5) if count > 1]
        if often := [(shown(text, 120), number(count)) for text, count in repeated]:
            yield Table([f"most frequent {name}", f"in {len(texts):,} rows"], often)
        beginnings = Counter(" ".join(text.split()[:3]).casefold() for text in texts).most_common(5)
        yield Table(
            [f"most frequent beginnings of {name}", ""],
            [(shown(text, 120), percent(count, len(texts))) for text, count in beginnings if count > 1],
        )
        if beginnings and beginnings[0][1] > 0.2 * len(texts) and len(texts) >= 50:
            share = percent(beginnings[0][1], len(texts))
            warn.append(f"{share} of {name} begin with “{shown(beginnings[0][0], 60)}”")


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
    rows = [
        (shown(name, 60), number(count), f"{near[name]:,} ({percent(near[name], count)})")
        for name, count in sorted(Counter(names).items())
    ]
    yield Table(
        [found.label or "", "rows examined", "near-copies"],
        rows,
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
    for title, rows in (
        (f"Pairs whose score and {measure.measure} disagree most:", order[::-1]),
        ("Pairs where the two agree:", order),
    ):
        marked = [
            (
                f"score {scores[row]:g}, {measure.measure} {measure.values[row]:.2f}",
                [(side, shown(str(found.rows[row][side]))) for side in sides],
            )
            for row in rows[: settings.examples]
        ]
        yield Examples(title, marked)


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
    short = {source: model_display_name(source) for source in found.shared}
    often = Counter(short.values())  # two sources may have one name in different folders
    names = {
        source: shown(name if often[name] == 1 else redacted(source), 100) for source, name in short.items()
    }
    rows = []
    for evaluation, shared in found.shared.items():
        name = names[evaluation]
        said = (
            f"{shared.rows:,} of {total:,} rows contain a text of {name}, or {GRAM} consecutive words of one"
        )
        yield Note(f"{said}.")
        if shared.rows:
            warn.append(f"{said}; figures measured on it may be too good")
        counts = (f"{n:,} of {total:,} ({percent(n, total)})" for n in (shared.whole, shared.runs))
        rows.append((name, *counts))
    yield Table(
        [
            "evaluation data",
            "rows that contain one of its texts",
            f"rows that contain {GRAM} consecutive words of one",
        ],
        rows,
        note="All rows are examined, and a row counts once in a column. It contains a text if one of its own "
        "texts is the same. Case and punctuation are ignored, and so are texts of the evaluation data "
        f"with fewer than {FEWEST} words.",
    )
    for evaluation, shared in found.shared.items():
        if shared.first:
            title = f"The first rows that share text with {names[evaluation]}:"
            yield Examples(title, [("", shown_texts(row, found)) for row in shared.first])


def examples(found: Tally, settings: ReportSettings) -> Iterator[Block]:
    """Some rows of each label; where rows are ranked by score or margin, the highest and the lowest."""
    ranked = next((name for name in ("score", "margin") if name in found.numbers), None)
    if ranked and len({row[ranked] for row in found.rows}) > _FEW_SCORES:
        known = [row for row in found.rows if row[ranked] is not None and math.isfinite(row[ranked])]
        order = sorted(known, key=lambda row: -float(row[ranked]))
        count = settings.examples
        for title, rows in (("highest", order[:count]), ("lowest", order[-count:] if count else [])):
            marked = [(f"{ranked} {row[ranked]:.3f}", shown_texts(row, found)) for row in rows]
            yield Examples(f"Rows with the {title} {ranked}:", marked)
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
