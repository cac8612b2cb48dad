"""Counts over all rows of a data set, and a sample of rows, in one pass over batches of rows."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.data.kinds import Row
from pairsmith.data.schemas import label_column
from pairsmith.data.tasks.spec import label_text
from pairsmith.data.text.words import count_words, words_or_letters
from pairsmith.runs import DatasetFolder
from pairsmith.runs.seeds import generator
from pairsmith.tools.report.parts import column_words, shown_text

_NOT_TEXT = {"id", "label", "title", "source", "chunk", "kind"}
"""Text columns that hold names; columns whose name ends in ``_id`` hold names, too."""
PAIRS = (("sentence1", "sentence2"), ("input", "output"))
"""The columns with the two texts of a pair."""
_LABELS = ("label", "score")
MOST_LABELS = 20
"""A score with more distinct values is drawn as a histogram; of more labels, the commonest are shown."""
_MOST_COUNTED = 10_000
"""Further labels are counted as ``OTHERS``, so that a label column of long texts cannot fill the memory."""
OTHERS = "(others)"
"""Stands for all labels that are not shown by themselves."""
MOST_CHARACTERS = 4_000
"""Texts in the sample are cut to this many characters."""


@dataclass(frozen=True)
class DatasetSummary:
    """Counts over all rows, and the sample."""

    columns: Sequence[str]  # names of the text columns
    label: str | None  # the column that holds the label, if there is one
    numbers: Mapping[str, Float64s]  # for each numeric column, all finite values
    splits: Mapping[str, int]  # rows of each split
    # For each split, how many rows each label has; of more than ``MOST_LABELS`` the rarest are ``OTHERS``.
    labels: Mapping[str, Counter[str]]
    sources: Mapping[str, int]  # how many rows each source of a mixture has
    lengths: Mapping[str, NDArray[np.int64]]  # for each text column, the number of words in each row
    distinct: Mapping[str, int]  # for each text column, the number of distinct texts
    rows: Sequence[Row]  # the sample, in the order of the data set

    def label_of(self, row: Row) -> str:
        """The row's label as a key of ``labels``; "" if there are no labels."""
        if self.label is None:
            return ""
        name = shown_label(row[self.label])
        return name if any(name in split for split in self.labels.values()) else OTHERS


def summarize(folder: DatasetFolder, *, sample: int, seed: int) -> DatasetSummary:
    """Count the rows of all splits of a finished folder, and draw a sample, uniformly from all rows."""
    schema = folder.schema() if folder.splits else pa.schema([])
    strings = [column.name for column in schema if pa.types.is_string(column.type)]
    columns = [name for name in strings if name not in _NOT_TEXT and not name.endswith("_id")]
    numbers: dict[str, list[Float64s]] = {
        column.name: [] for column in schema if pa.types.is_floating(column.type)
    }
    label = label_column(schema)
    labels = {split: Counter[str]() for split in folder.splits}
    sources = Counter[str]()
    lengths: dict[str, list[NDArray[np.int64]]] = {name: [] for name in columns}
    seen: dict[str, set[bytes]] = {name: set() for name in columns}
    rows = list[Row]()
    for split, table, drawn in with_sample(folder, sample, generator(seed, "report")):
        if label is not None:
            own, most = labels[split], MOST_LABELS if label in numbers else _MOST_COUNTED
            for value, number in _value_counts(table.column(label)):
                own[value if value in own or len(own) <= most else OTHERS] += number
        if "source" in strings:
            sources.update(dict(_value_counts(table.column("source"))))
        for name, parts in numbers.items():
            values = np.asarray(table.column(name).to_numpy(), np.float64)
            parts.append(values[np.isfinite(values)])
        for name in columns:
            texts = [text or "" for text in table.column(name).to_pylist()]
            lengths[name].append(np.array(list(map(count_words, texts)), np.int64))
            seen[name].update(map(digest, texts))
        rows += map(cut_texts, drawn)
    different = {value for own in labels.values() for value in own}
    if not different or (label in numbers and len(different) > MOST_LABELS):
        label = None
    return DatasetSummary(
        columns,
        label,
        {name: np.concatenate(parts) for name, parts in numbers.items() if parts and name != label},
        folder.split_rows,
        _rare_labels_merged(labels) if label else {},
        dict(sources.most_common()),
        {name: np.concatenate(parts) for name, parts in lengths.items() if parts},
        {name: len(texts) for name, texts in seen.items()},
        rows,
    )


def with_sample(
    folder: DatasetFolder, count: int, rng: np.random.Generator
) -> Iterator[tuple[str, pa.Table, list[dict[str, Any]]]]:
    """Yield the batches of a folder, each as its split, all its rows, and those rows that a sample includes.

    The sample is uniform and has ``count`` rows of all splits together, or all rows if there are fewer.
    """
    chosen = np.sort(rng.choice(folder.rows, min(count, folder.rows), replace=False))
    place = 0
    for split in folder.splits:
        for table in folder.batches(split):
            inside = chosen[(chosen >= place) & (chosen < place + table.num_rows)] - place
            yield split, table, table.take(pa.array(inside)).to_pylist()
            place += table.num_rows


def cut_texts(row: Row) -> Row:
    """A row with its texts cut to ``MOST_CHARACTERS`` characters."""
    return {
        name: value[:MOST_CHARACTERS] if isinstance(value, str) and name not in _LABELS else value
        for name, value in row.items()
    }


def _value_counts(column: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    """How often each value occurs in a column."""
    for entry in pc.value_counts(column).to_pylist():
        yield shown_label(entry["values"]), entry["counts"]


def _rare_labels_merged(labels: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The label counts with at most ``MOST_LABELS`` labels; the rarest are merged into ``OTHERS``."""
    totals = sum(labels.values(), Counter[str]())
    rest = totals.pop(OTHERS, 0)
    if len(totals) + bool(rest) <= MOST_LABELS:
        return dict(labels)
    shown = {name for name, _ in totals.most_common(MOST_LABELS - 1)}
    counts: dict[str, Counter[str]] = {split: Counter() for split in labels}
    for split, own in labels.items():
        for name, number in own.items():
            counts[split][name if name in shown else OTHERS] += number
    return counts


def shown_label(value: object) -> str:
    """A label as text: numbers without needless digits, ``–`` if the label is missing."""
    return "–" if value is None else label_text(value)


def is_number(label: str) -> bool:
    """Whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """The labels in order, as numbers if all are numbers, else as texts; ``–`` and ``OTHERS`` come last."""
    last = [name for name in ("–", OTHERS) if name in set(labels)]
    named = set(labels) - set(last)
    order = (
        sorted(named, key=lambda name: (float(name), name)) if all(map(is_number, named)) else sorted(named)
    )
    return [*order, *last]


def digest(text: str) -> bytes:
    """An eight-byte hash of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def words(text: str) -> str:
    """The words of a text in lower case, without punctuation, joined by spaces; see ``words_or_letters``."""
    return " ".join(words_or_letters(text))


def row_texts(row: Row, columns: Iterable[str]) -> list[tuple[str, str]]:
    """The texts of a row, each with its column's name; the answers of a question are joined into one text."""
    texts = [(name, str(row.get(name) or "")) for name in columns]
    answers = row.get("answers")
    if isinstance(answers, Mapping):
        texts.append(("answers", " | ".join(str(answer or "") for answer in answers.get("text") or [])))
    return texts


def shown_texts(row: Row, columns: Iterable[str]) -> list[tuple[str, str]]:
    """The texts of a row as the page shows them, each with its column's name, and its named entities."""
    texts = [(column_words(name), shown_text(text)) for name, text in row_texts(row, columns)]
    entities = row.get("entities")
    if isinstance(entities, list) and all(
        isinstance(entity, dict) and "type" in entity for entity in entities
    ):
        names = (f"{entity.get('text')} ({entity['type']})" for entity in entities)
        texts.append(("entities", shown_text(", ".join(names) or "none")))
    return texts
