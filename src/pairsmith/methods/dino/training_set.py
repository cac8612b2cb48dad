"""DINO's training set: cleaning, smoothing, sampled negatives and splits of generated rows.

1. Copies, repeats, empty texts, texts with a line break and texts with too few words are dropped. For each
   first text and label, at most a few second texts are kept (D6).
2. Scores are smoothed, as the model does not always follow its instruction (D7).
3. Each first text is also paired with second texts of other first texts, with score 0 (D8).
4. A share of each label's rows is set aside for validation (D9).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np

from pairsmith.core.errors import counted
from pairsmith.data.filters import COPY, DUPLICATE, EMPTY, LINE_BREAK, TOO_SHORT
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import LabelledText, Reject, ScoredPair, as_columns
from pairsmith.data.tasks import TaskSpec
from pairsmith.data.text.folding import folded
from pairsmith.data.text.instructed import quotable
from pairsmith.data.text.words import count_words
from pairsmith.methods.dino.options import TrainingSetOptions
from pairsmith.methods.dino.requests import GeneratedRow
from pairsmith.runs.seeds import stream_key, uniforms

NEGATIVE_DRAWS = 100
"""Random draws for the negatives of a first text; nearly every draw is a text of another first text."""

_PLACEHOLDER = re.compile(r"\[[^\W\d_][^\]]*\]")
"""A placeholder that a language model left for somebody to fill in, such as ``[City Name]``."""

Filter = Callable[[GeneratedRow], str | None]
"""Returns why a row is dropped, or None."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The rows of both splits, the rejected rows, and the number of sampled negatives in both splits.

    The rows have the class of the generated rows that the training set was made from.
    """

    train: list[Any]  # no union: only the generated rows decide on the class
    validation: list[Any]
    rejects: list[Reject]
    negatives: int

    def __repr__(self) -> str:
        """The numbers of rows."""
        counts = {
            "training rows": len(self.train),
            "validation rows": len(self.validation),
            "rejects": len(self.rejects),
            "negatives": self.negatives,
        }
        return f"{type(self).__name__}({', '.join(counted(count, of) for of, count in counts.items())})"


def make_training_set(
    rows: Sequence[GeneratedRow], task: TaskSpec | None, options: TrainingSetOptions
) -> TrainingSet:
    """Clean (D6), smooth (D7), add sampled negatives (D8) and split (D9).

    Args:
        rows: all of one kind. Only scored pairs are smoothed and get sampled negatives.
        task: the task that the rows were written for. Its labels are the label set of D7, and it says which
            labels keep near-copies. Without one, the label set is the scores that occur.
        options: how each of the four steps is done.
    """
    # Clean, and keep a few second texts of each first text and label (D6).
    kept, rejects = clean(rows, row_filters(options, task), options.per_input, options.per_label)
    pairs = [row for row in kept if isinstance(row, ScoredPair)]
    # Smooth the scores of pairs (D7).
    if pairs:
        scores = label_set(pairs, task)
        kept = [replace(pair, score=smooth(pair.score, scores, options.smoothing)) for pair in pairs]
    # Sample negatives, whose score 0 is not smoothed (D8).
    any_text = options.near_copies == "keep"
    negatives = sampled_negatives(pairs, options.augment, options.seed, any_text=any_text)
    # Split (D9).
    train, validation = split([*kept, *negatives], options.validation, options.seed)
    return TrainingSet(train, validation, rejects, len(negatives))


def clean(
    rows: Iterable[GeneratedRow], filters: Mapping[str, Filter], per_input: int, per_label: int | None = None
) -> tuple[list[GeneratedRow], list[Reject]]:
    """Keep rows that pass every filter, each once, up to ``per_input`` per first text and label (D6).

    With ``per_label``, only that many rows of each label are kept.

    Of equal rows the first is kept; the order of the rows stays the same.
    """
    kept: list[GeneratedRow] = []
    rejects: list[Reject] = []
    seen: set[tuple[Any, ...]] = set()
    held: Counter[tuple[Any, ...]] = Counter()
    of_label: Counter[Any] = Counter()
    for row in rows:
        columns = as_columns(row)
        content = tuple(value for name, value in columns.items() if name != "id")
        group = (columns.get("sentence1"), columns.get("score", columns.get("label")))
        name, reason = next(((name, why) for name, test in filters.items() if (why := test(row))), ("", ""))
        if not reason and content in seen:
            name, reason = DUPLICATE, "repeats an earlier row"
        if not reason and "sentence1" in columns and held[group] >= per_input:
            name, reason = "cap", f"more than {per_input} second texts for a first text and label"
        if not reason and per_label is not None and of_label[group[1]] >= per_label:
            name, reason = "cap", f"more than {per_label} rows of a label"
        if reason:
            rejects.append(Reject.of(row.id, name, reason, columns))
        else:
            seen.add(content)
            held[group] += 1
            of_label[group[1]] += 1
            kept.append(row)
    return kept, rejects


def row_filters(options: TrainingSetOptions, task: TaskSpec | None) -> dict[str, Filter]:
    """The filters of D6 and the near-copy filter, in the order in which they are applied."""
    keep_by_task = {label.name for label in (task.labels if task else ()) if label.near_copies == "keep"}

    def near_copy(row: GeneratedRow) -> str | None:
        if isinstance(row, LabelledText) or folded(row.sentence1) != folded(row.sentence2):
            return None
        label = row.score if isinstance(row, ScoredPair) else row.label
        kept = label in keep_by_task if options.near_copies == "task" else options.near_copies == "keep"
        return None if kept else "the texts differ in case, spaces and punctuation only"

    def copy(row: GeneratedRow) -> str | None:
        if isinstance(row, LabelledText) or row.sentence2 not in (row.sentence1, quotable(row.sentence1)):
            return None
        return "the texts are equal"

    def placeholder(row: GeneratedRow) -> str | None:
        holds_one = isinstance(row, LabelledText) and _PLACEHOLDER.search(row.text)
        return "the text holds a placeholder in square brackets" if holds_one else None

    few = f"fewer than {options.min_words} words"
    return {
        EMPTY: lambda row: None if _text(row).strip() else "the text is empty",
        LINE_BREAK: lambda row: "the text holds a line break" if "\n" in _text(row) else None,
        "placeholder": placeholder,
        TOO_SHORT: lambda row: few if count_words(_text(row)) < options.min_words else None,
        COPY: copy,
        "near-copy": near_copy,
    }


def _text(row: GeneratedRow) -> str:
    """The text that the model wrote."""
    return row.text if isinstance(row, LabelledText) else row.sentence2


def label_set(pairs: Iterable[ScoredPair], task: TaskSpec | None) -> list[float]:
    """The label set Y of D7: the task's labels if they are scores, else the scores that the pairs have."""
    if task is not None and task.numeric:
        return [float(label.name) for label in task.labels]
    return sorted({pair.score for pair in pairs})


def smooth(score: float, scores: Sequence[float], epsilon: float) -> float:
    """``(1 - epsilon) * score + epsilon * mean(scores)``, ``scores`` being the label set (D7).

    With the labels 0, 0.5 and 1 and epsilon 0.2 the smoothed scores are 0.1, 0.5 and 0.9. The result is
    rounded to 12 places, so that equal labels have exactly equal scores and 0.1 is written as 0.1.
    """
    return round((1 - epsilon) * score + epsilon * fmean(scores), 12)


def sampled_negatives(
    rows: Sequence[ScoredPair], count: int, seed: int, *, any_text: bool = False
) -> list[ScoredPair]:
    """For each distinct first text, ``count`` second texts of other first texts, with score 0 (D8).

    A second text that was also written for this first text, or that is a near-copy of it, is not drawn, as
    the pair would contradict another row. With ``any_text``, as in the paper's program, every row of another
    first text may be drawn. A first text gets fewer negatives if too few texts can be drawn. The draws do not
    depend on the order of the rows; the new rows are in the order in which the first texts appear.
    """
    # Each second text once or, with ``any_text``, once for each first text that it was written for.
    distinct = {(row.sentence2, row.sentence1 if any_text else ""): row for row in rows}
    entries = [distinct[key] for key in sorted(distinct)]
    own_texts: dict[str, set[str]] = defaultdict(set)  # each first text and its second texts, folded
    for row in rows:
        own_texts[row.sentence1] |= {folded(row.sentence1), folded(row.sentence2)}

    def may_be_negative(entry: ScoredPair, first: str) -> bool:
        if any_text:
            return entry.sentence1 != first
        return folded(entry.sentence2) not in own_texts[first]

    negatives = []
    for first in own_texts:
        stream = np.array([stream_key("negative", first)] * NEGATIVE_DRAWS, dtype=np.uint64)
        places = (uniforms(seed, stream, np.arange(NEGATIVE_DRAWS)) * len(entries)).astype(int)
        drawn = (entries[place] for place in dict.fromkeys(places.tolist()))
        chosen = islice((entry.sentence2 for entry in drawn if may_be_negative(entry, first)), count)
        name = text_id(first)
        negatives += [ScoredPair(f"{name}-negative-{i}", first, text, 0.0) for i, text in enumerate(chosen)]
    return negatives


def split(
    rows: Sequence[GeneratedRow], share: float, seed: int
) -> tuple[list[GeneratedRow], list[GeneratedRow]]:
    """Split rows into training and validation rows, the share ``share`` of each label into validation (D9).

    The number of validation rows of a label is rounded. The choice depends on the ids of the rows and on the
    seed alone; both parts keep the order of the rows.
    """
    by_label: dict[Any, list[GeneratedRow]] = defaultdict(list)
    for row in rows:
        by_label[row.score if isinstance(row, ScoredPair) else row.label].append(row)
    chosen: set[str] = set()
    for members in by_label.values():
        streams = np.array([stream_key("split", row.id) for row in members], dtype=np.uint64)
        draws = uniforms(seed, streams, np.zeros(len(members), dtype=np.int64))
        order = np.argsort(draws, kind="stable")[: round(share * len(members))]
        chosen |= {members[place].id for place in order}
    return [row for row in rows if row.id not in chosen], [row for row in rows if row.id in chosen]
