"""The report's sections on a dataset folder."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import counted
from pairsmith.data.kinds import Row
from pairsmith.data.schemas import TAGGED_TEXT
from pairsmith.runs import DatasetFolder, Manifest
from pairsmith.runs.status import entity_types
from pairsmith.tools.meanings import label_meanings
from pairsmith.tools.report.charts import COLOURS, histogram
from pairsmith.tools.report.label_texts import similarity_by_label
from pairsmith.tools.report.origin import provenance
from pairsmith.tools.report.overlap import ReferenceTexts, count_overlap, overlap_blocks
from pairsmith.tools.report.parts import (
    Bars,
    Block,
    Chart,
    ExampleRows,
    Finding,
    Note,
    PageSection,
    Table,
    column_words,
    number,
    percent,
    shown_text,
)
from pairsmith.tools.report.rejects import rejects_section
from pairsmith.tools.report.rows import OTHERS, DatasetSummary, shown_texts, sorted_labels, summarize, words
from pairsmith.tools.report.traces import traces_section
from pairsmith.tools.settings import ReportSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BINS = 40
"""Largest number of columns of a histogram."""
_WORDS = 1_000_000
"""Words are counted in the sample until there are this many."""
_FREQUENT = 10
"""Largest number of entities that the report lists of each type."""
_SOURCES = 20
"""Largest number of sources of a mixture that are listed."""
_MARKUP = re.compile(
    r"</?(?:a|b|br|div|em|font|h[1-6]|i|img|li|ol|p|span|strong|table|t[dhr]|ul)(?:\s[^<>]{0,200})?/?>"
    r"|&(?:amp|[gl]t|nbsp|quot|#\d{2,5});",
    re.IGNORECASE,
)

_FEW_SCORES = 10
"""Up to this many distinct scores, examples are shown for each score, not for the highest and lowest."""


def dataset_sections(
    folder: DatasetFolder,
    settings: ReportSettings,
    references: Mapping[str, ReferenceTexts],
    encoder: "SentenceTransformer | None",
    warn: list[Finding],
) -> Iterator[PageSection]:
    """The sections on a data set; what is wrong with it is appended to ``warn``.

    Examples come first, as reading texts tells more than any count. How the rows were made comes last.
    """
    summary = summarize(folder, sample=settings.sample, seed=settings.seed)
    if not folder.rows:
        warn.append(Finding("the data set has no rows", "The reasons are below, under “Rejected rows”."))
    else:
        meanings = label_meanings(folder.manifest.settings)
        yield PageSection("Examples", list(examples(summary, settings, meanings, _ranking(folder.manifest))))
        if list(folder.schema())[: len(TAGGED_TEXT)] == list(TAGGED_TEXT):
            yield PageSection("Entities", list(entities(folder, summary)))
        else:
            yield PageSection("Labels", list(labels(summary, warn)))
        if compared := list(similarity_by_label(summary, settings, encoder, warn)):
            yield PageSection("Texts and labels", compared)
        if references:
            overlaps = count_overlap(folder, summary.columns, references, settings.examples)
            blocks = list(overlap_blocks(overlaps, folder.rows, summary.columns, warn))
            yield PageSection("Overlap with evaluation data", blocks)
        yield PageSection("Lengths of the texts", list(lengths(summary)))
        yield PageSection("Repeated texts and words", list(repetitions(summary, warn)))
        if settings.traces:
            yield traces_section(folder, settings)
    yield rejects_section(folder, settings)
    total = sum(summary.sources.values())
    sources = [
        (shown_text(name, 100), number(rows), percent(rows, total)) for name, rows in summary.sources.items()
    ]
    tables = [Table(["source", "rows", "share"], sources[:_SOURCES])] if sources else []
    yield PageSection("How it was made", [*tables, provenance(folder)])


def label_title(summary: DatasetSummary, name: str) -> str:
    """A label with the name of its column: ``score 0.5``."""
    return f"{summary.label} {shown_text(name, 60)}"


def labels(summary: DatasetSummary, warn: list[Finding]) -> Iterator[Block]:
    """How many rows each label has, and how numeric columns are distributed."""
    if summary.label:
        counts = sum(summary.labels.values(), Counter[str]())
        order = sorted_labels(counts)
        yield Bars(
            [(label_title(summary, name), counts[name]) for name in order],
            "Rows with each label",
            " rows",
            [place % COLOURS for place in range(len(order))],
        )
        if len(summary.splits) > 1:
            rows = [
                (shown_text(label, 60), *(number(summary.labels[split][label]) for split in summary.splits))
                for label in order
            ]
            yield Table([summary.label, *summary.splits], rows, title="Rows with each label in each split")
        names = [label for label in counts if label != OTHERS]
        smallest, largest = min(names, key=counts.__getitem__), max(names, key=counts.__getitem__)
        if counts[largest] > 10 * counts[smallest]:
            warn.append(
                Finding(
                    f"the label {shown_text(smallest, 60)} has only {counted(counts[smallest], 'rows')}; the "
                    f"label {shown_text(largest, 60)} has {counts[largest]:,}",
                    "A model hardly learns a label as rare as this: make more rows for it, or measure the "
                    "model on each label separately.",
                )
            )
    else:
        graded = "score" in summary.numbers
        yield Note("The rows have scores in place of labels." if graded else "The rows have no labels.")
    for name, values in summary.numbers.items():
        if len(values):
            yield histogram_of(values, name, f"Number of rows by the value of {name}.")


def entities(folder: DatasetFolder, summary: DatasetSummary) -> Iterator[Block]:
    """How many named entities of each type ``tag`` has found, and the most frequent ones in the sample."""
    types = sorted(entity_types(folder).items())
    bars = [(shown_text(name, 60), count) for name, count in types]
    yield Bars(bars, "Entities of each type", " entities")
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in summary.rows:
        for entity in row["entities"]:
            texts[entity["type"]][entity["text"]] += 1
    rows = [
        (shown_text(name, 60), shown_text(text, 120), number(count))
        for name, counts in sorted(texts.items())
        for text, count in counts.most_common(_FREQUENT)
    ]
    if rows:
        head = ["type", "entity", f"times in {counted(len(summary.rows), 'rows')}"]
        yield Table(head, rows, texts=2, title="Most frequent entities of each type")


def lengths(summary: DatasetSummary) -> Iterator[Block]:
    """How long the texts of each column are, in words separated by spaces."""
    rows = [
        (column_words(name), *(number(float(mark), 0) for mark in np.percentile(counts, (0, 5, 50, 95, 100))))
        for name, counts in summary.lengths.items()
    ]
    head = ["words in", "fewest", "5 %", "median", "95 %", "most"]
    note = (
        "Words are separated by spaces. 5 % of the texts are shorter than “5 %”, and 5 % longer than “95 %”."
    )
    yield Table(head, rows, note=note)
    for name, counts in summary.lengths.items():
        most = max(int(np.ceil(np.percentile(counts, 99))), 1)
        longer = int((counts > most).sum())
        caption = "Number of texts by their length in words."
        if longer:
            texts = "text that is" if longer == 1 else "texts that are"
            caption += f" The last bar also counts the {number(longer)} {texts} longer."
        if counts.min() < most:  # else the histogram would be one bar with all texts
            yield histogram_of(np.minimum(counts, most), f"words in {column_words(name)}", caption)


def histogram_of(values: NDArray[Any], name: str, caption: str) -> Chart:
    """A histogram of finite ``values``, ``(n,)`` with n >= 1; ``name`` is the label of the axis.

    If all values are whole numbers, every bin covers equally many whole numbers.
    """
    low, high = float(values.min()), float(values.max())
    integers = bool((values == np.round(values)).all()) and high - low < 1e9
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):  # a single value, up to rounding
        bins = np.array([low - 0.5, low + 0.5])
    elif integers:
        step = -(-(int(high - low) + 1) // _BINS)
        bins = np.arange(low, high + step, step) - 0.5
        bins = np.append(bins, bins[-1] + step) if bins[-1] < high else bins
    else:
        bins = np.linspace(low, high, _BINS + 1)
    counts, edges = np.histogram(values, bins=bins)
    return Chart(histogram(edges.tolist(), counts.tolist(), name, integers=integers), caption)


def repetitions(summary: DatasetSummary, warn: list[Finding]) -> Iterator[Block]:
    """How often texts and their words repeat."""
    total = sum(summary.splits.values())
    sample = {name: [str(row.get(name) or "") for row in summary.rows] for name in summary.columns}
    rows = []
    for name, texts in sample.items():
        different = f"{number(summary.distinct[name])} ({percent(summary.distinct[name], total)})"
        kinds = (percent(len(counts), counts.total()) for counts in _words_and_pairs(texts))
        rows.append((column_words(name), different, *kinds))
    note = (
        "Low percentages mean that the rows repeat themselves: each shows how many of all texts, of all "
        "words, and of all pairs of adjacent words are different. Texts are counted in all rows; words are "
        f"counted in a sample of rows, up to {_WORDS:,} words."
    )
    if "sentence1" in sample:
        note += " First texts are repeated on purpose if a task wrote several second texts for each."
    yield Table(["column", "different texts", "different words", "different pairs of words"], rows, note=note)
    for name, texts in sample.items():
        yield from _most_frequent(name, texts, warn)


def _words_and_pairs(texts: Sequence[str]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How often each word, and each pair of adjacent words, occurs in the first texts."""
    ones, twos = Counter[str](), Counter[tuple[str, str]]()
    for text in texts:
        if ones.total() > _WORDS:
            break
        terms = words(text).split()
        ones.update(terms)
        twos.update(pairwise(terms))
    return ones, twos


def _most_frequent(name: str, texts: Sequence[str], warn: list[Finding]) -> Iterator[Table]:
    """The most frequent texts and beginnings of a column; warns of one frequent beginning, and of HTML."""
    repeated = [(text, count) for text, count in Counter(texts).most_common(5) if count > 1]
    if often := [(shown_text(text, 120), number(count)) for text, count in repeated]:
        head = [column_words(name), f"times in {counted(len(texts), 'rows')}"]
        yield Table(head, often, title=f"Most frequent texts of {column_words(name)}")
    beginnings = Counter(" ".join(text.split()[:3]).casefold() for text in texts).most_common(5)
    shares = [(shown_text(text, 120), percent(count, len(texts))) for text, count in beginnings if count > 1]
    if shares:
        title = f"Most frequent beginnings of {column_words(name)}"
        yield Table(["first three words", "share of texts"], shares, title=title)
    if (marked := list(filter(None, map(_MARKUP.search, texts)))) and len(marked) >= 0.01 * len(texts):
        warn.append(
            Finding(
                f"{percent(len(marked), len(texts))} of {name} hold remnants of HTML, such as "
                f"“{shown_text(marked[0][0], 60)}”",
                "Take the markup out of the source texts, and make the rows again.",
            )
        )
    if beginnings and beginnings[0][1] > 0.2 * len(texts) and len(texts) >= 50:
        share = percent(beginnings[0][1], len(texts))
        warn.append(
            Finding(
                f"{share} of the texts in {name} begin with “{shown_text(beginnings[0][0], 60)}”",
                "A model may learn this beginning in place of the meaning: vary the instructions or the "
                "first texts.",
            )
        )


def _ranking(manifest: Manifest) -> tuple[str, str]:
    """The columns that may rank the rows; the first column that the rows have is used.

    Rows of ``mine``, and rows that ``filter`` ranked by the margin, are ranked by the margin, as their score
    is a cosine.
    """
    by_margin = manifest.settings.get("judge") == "margin" and not manifest.settings.get("rank_by")
    return ("margin", "score") if manifest.rows_of == "mine" or by_margin else ("score", "margin")


def examples(
    summary: DatasetSummary, settings: ReportSettings, meanings: Mapping[str, str], ranking: Sequence[str]
) -> Iterator[Block]:
    """Example rows: of each label or, if rows are ranked by a score or margin, the highest and lowest ones.

    ``meanings`` says in words what each label means; ``ranking`` is as ``_ranking`` returns it.
    """
    ranked = next((name for name in ranking if name in summary.numbers), None)
    several = {row[ranked] for row in summary.rows} if ranked else set()
    if ranked and (len(several) > _FEW_SCORES or summary.label is None):
        finite = [row for row in summary.rows if row[ranked] is not None and math.isfinite(row[ranked])]
        order = sorted(finite, key=lambda row: -float(row[ranked]))
        count = settings.examples
        lowest = order[max(count, len(order) - count) :] if count else []
        for title, rows in (("highest", order[:count]), ("lowest", lowest)):
            marked = [(f"{ranked} {row[ranked]:.3f}", shown_texts(row, summary.columns)) for row in rows]
            yield ExampleRows(f"Rows with the {title} {ranked}:", marked)
        return
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in summary.rows:
        by_name[summary.label_of(row)].append(row)
    colours = {
        name: place % COLOURS
        for place, name in enumerate(sorted_labels(set().union(*summary.labels.values())))
    }
    for name, rows in sorted(by_name.items(), key=lambda item: _highest_first(item[0])):
        title = f"{label_title(summary, name)}:" if summary.label else "Some rows:"
        if meaning := meanings.get(name):
            title += f" {shown_text(meaning, 200)}"
        # At equal distances, as the first rows often have the same first text.
        count = min(settings.examples, len(rows))
        shown = (rows[place * len(rows) // count] for place in range(count))
        group = [("", shown_texts(row, summary.columns)) for row in shown]
        yield ExampleRows(title, group, colours.get(name))


def _highest_first(label: str) -> tuple[float, str]:
    """Sort key: numbers from the highest down, then names alphabetically."""
    try:
        return -float(label), label
    except ValueError:
        return math.inf, label
