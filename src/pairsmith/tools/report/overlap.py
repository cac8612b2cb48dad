"""How many rows share text with evaluation data, so that figures measured on these data may be too good."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pairsmith.core.errors import InputError, redacted
from pairsmith.core.paths import place
from pairsmith.data.kinds import Row
from pairsmith.data.sources import open_source
from pairsmith.data.squad import official_squad
from pairsmith.data.sts import is_released, read_sts
from pairsmith.runs import DatasetFolder, model_display_name
from pairsmith.tools.report.parts import Block, ExampleRows, Finding, Note, Table, percent, shown_text
from pairsmith.tools.report.rows import cut_texts, digest, shown_texts, words

_FEWEST_WORDS = 4
"""Evaluation texts with fewer words are ignored, as they can match by chance."""
_NGRAM = 8
"""Number of consecutive words that are compared: two texts hardly share so many by chance."""
_NO_TEXT = ("id", "qid", "label", "split", "source")


class ReferenceTexts(NamedTuple):
    """Digests of the texts of evaluation data, and of their n-grams of ``_NGRAM`` words.

    Case and punctuation are ignored.
    """

    texts: frozenset[bytes]
    ngrams: frozenset[bytes]


@dataclass
class Overlap:
    """How many rows share text with evaluation data.

    Attributes:
        whole_texts: number of rows with a text that is also a text of the evaluation data.
        ngrams: number of rows with a text that shares an n-gram with a text of the evaluation data.
        rows: number of rows of either kind.
        first: the first of these rows.
    """

    whole_texts: int = 0
    ngrams: int = 0
    rows: int = 0
    first: list[Row] = field(default_factory=list)


def evaluation_texts(source: str) -> Iterator[str]:
    """All texts of evaluation data: the strings in all columns but ids and labels, also in lists and objects.

    Official SQuAD and MRQA files and the released STS test sets are read in their own formats.
    """
    path = place(source)
    if is_released(path):
        for suite in read_sts(path):
            for pair in suite.pairs:
                yield from (pair.sentence1, pair.sentence2)
        return
    before: Mapping[str, Any] = {}
    for _, row in (official_squad(path) or open_source(source)).rows():
        for name, value in row.items():
            if name not in before or before[name] != value:  # a passage is repeated for each of its questions
                yield from _strings(value, name)
        before = row


def _strings(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, str) and name not in _NO_TEXT:
        yield from value.split("\t")  # a line of a table without a header is one string
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _strings(part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part, name)


def reference_texts(source: str) -> ReferenceTexts:
    """The digests of the texts of evaluation data; refuses data without a text of four words or more."""
    texts: set[bytes] = set()
    ngrams: set[bytes] = set()
    for text in evaluation_texts(source):
        folded = words(text)
        if folded.count(" ") + 1 >= _FEWEST_WORDS:
            texts.add(digest(folded))
            ngrams.update(_ngrams(folded))
    if not texts:
        raise InputError(
            f"--against {source}: no text in it has {_FEWEST_WORDS} words or more, so nothing can be "
            "compared; name other evaluation data"
        )
    return ReferenceTexts(frozenset(texts), frozenset(ngrams))


def _ngrams(folded: str) -> Iterator[bytes]:
    """The digests of the n-grams of ``folded``, a text that ``words`` returned."""
    terms = folded.split(" ")
    for first in range(len(terms) - _NGRAM + 1):
        yield digest(" ".join(terms[first : first + _NGRAM]))


def count_overlap(
    folder: DatasetFolder, columns: Sequence[str], references: Mapping[str, ReferenceTexts], examples: int
) -> dict[str, Overlap]:
    """For each set of evaluation data, how many rows share text with it; ``columns`` hold the rows' texts.

    A row counts once, whatever its number of shared texts. The first ``examples`` of these rows are kept.
    """
    overlaps = {name: Overlap() for name in references}
    for table in (table for split in folder.splits for table in folder.batches(split)):
        whole_texts: dict[str, set[int]] = {name: set() for name in references}
        ngrams: dict[str, set[int]] = {name: set() for name in references}
        for column in columns:
            for row, text in enumerate(table.column(column).to_pylist()):
                folded = words(text or "")
                of_text, of_ngrams = digest(folded), set(_ngrams(folded))
                for name, reference in references.items():
                    if of_text in reference.texts:
                        whole_texts[name].add(row)
                    if not of_ngrams.isdisjoint(reference.ngrams):
                        ngrams[name].add(row)
        for name, overlap in overlaps.items():
            either = sorted(whole_texts[name] | ngrams[name])
            overlap.whole_texts += len(whole_texts[name])
            overlap.ngrams += len(ngrams[name])
            overlap.rows += len(either)
            kept = pa.array(either[: max(examples - len(overlap.first), 0)], pa.int64())
            overlap.first += map(cut_texts, table.take(kept).to_pylist())
    return overlaps


def overlap_blocks(
    overlaps: Mapping[str, Overlap], total: int, columns: Sequence[str], warn: list[Finding]
) -> Iterator[Block]:
    """How many of the ``total`` rows share text with each set of evaluation data, and the first such rows."""
    short = {source: model_display_name(source) for source in overlaps}
    often = Counter(short.values())  # two sources in different folders may have the same name
    names = {
        source: shown_text(name if often[name] == 1 else redacted(source), 100)
        for source, name in short.items()
    }
    rows = []
    for source, overlap in overlaps.items():
        name = names[source]
        sentence = (
            f"{overlap.rows:,} of {total:,} rows contain a text of {name}, or {_NGRAM} consecutive words of "
            "a text"
        )
        yield Note(f"{sentence}.")
        if overlap.rows:
            warn.append(
                Finding(
                    f"{sentence}; figures measured on this data may be too good",
                    "Remove these rows before you train on them, or evaluate on other data.",
                )
            )
        counts = (f"{n:,} of {total:,} ({percent(n, total)})" for n in (overlap.whole_texts, overlap.ngrams))
        rows.append((name, *counts))
    yield Table(
        ["evaluation data", "rows with the same text", f"rows with the same {_NGRAM} consecutive words"],
        rows,
        note="All rows are examined, and each column counts a row at most once. Texts are compared without "
        f"case and punctuation. Texts of the evaluation data with fewer than {_FEWEST_WORDS} words are "
        "ignored.",
    )
    for source, overlap in overlaps.items():
        if overlap.first:
            title = f"The first rows that share text with {names[source]}:"
            yield ExampleRows(title, [("", shown_texts(row, columns)) for row in overlap.first])
