"""The step ``postprocess``: turn generated rows into training data for an encoder (D6-D9).

rows -> clean and cap (D6) -> smooth (D7) -> add sampled negatives (D8) -> split (D9)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import FolderError, InputError, SettingsError
from pairsmith.core.paths import Place, display_name, place
from pairsmith.data.files.folders import own_folder
from pairsmith.data.labelled_rows import read_labelled_rows
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import (
    LABELLED_PAIR,
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    LabelledPair,
    LabelledText,
    Reject,
    ScoredPair,
    as_columns,
    from_table,
    to_table,
)
from pairsmith.data.splits import Say, split_of, to_train_on
from pairsmith.data.tasks import TaskSpec
from pairsmith.data.text.folding import folded
from pairsmith.data.text.instructed import quotable
from pairsmith.methods.dino.requests import GeneratedRow
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source, sources_of
from pairsmith.runs.folder import open_training_rows, read_manifest
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.seeds import stream_key, uniforms
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.shared import refuse_sources


def postprocess(settings: PostprocessSettings, run: Run) -> DatasetFolder:
    """Clean, smooth, augment and split rows that ``generate`` wrote, or those of any file with their columns.

    Smoothing and sampled negatives apply to scored pairs; other rows are only cleaned and split. Of several
    splits ``train`` is read, or the one that is named.
    """
    refuse_sources(run, data=settings.data)
    given = read_given(settings, run.progress.say)
    if given.smoothed and settings.smoothing and not _is_finished(run.out):
        raise SettingsError(
            f"{settings.data}: postprocess has smoothed its scores already; give --smoothing 0 (and "
            "--augment 0, so that no further negatives are added), or the folder that generate wrote"
        )
    writer = FolderWriter.start(
        run,
        step="postprocess",
        schema=given.schema.append(_SOURCE) if given.origins else given.schema,
        settings={**settings.deciding(), "task": given.described},
        inputs={"data": hash_source(given.source)},
        models=given.models,
    )
    if writer.finished:
        return nothing_to_do(writer, run)

    done = processed(given.rows, settings, given.task)
    tables = {"train": to_table(done.train, given.schema)}
    if done.validation:  # an empty split would not open in other tools
        tables["validation"] = to_table(done.validation, given.schema)
    if given.origins:
        for split, table in tables.items():
            of = [given.origins.get(name, SAMPLED) for name in table["id"].to_pylist()]
            tables[split] = table.append_column(_SOURCE, pa.array(of, pa.string()))
    writer.commit_all(tables, to_table(done.rejects, REJECT))
    counts = {"rows read": len(given.rows), "rows kept": len(given.rows) - len(done.rejects)}
    if given.schema != LABELLED_TEXT:
        counts["near-copies dropped"] = sum(reject.filter == "near-copy" for reject in done.rejects)
    if given.schema == SCORED_PAIR and counts["rows kept"]:
        counts["sampled negatives added"] = done.negatives
    return finished(writer, _card(settings, given, counts), run)


@dataclass(frozen=True)
class Given:
    """Rows to be processed, and what is known of them."""

    source: str  # the file, or the folder and split, that they are read from
    schema: pa.Schema
    rows: Sequence[GeneratedRow]
    origins: Mapping[str, str] = field(default_factory=dict)  # of a mixture: the source of each id
    models: Mapping[str, str] = field(default_factory=dict)  # what wrote them, with its revision
    described: Any = None  # the task they were written for, as a manifest has it
    category: str = ""  # the Hub's task category
    smoothed: bool = False  # whether their scores are smoothed already

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        return display_name(place(split_of(self.source)[0]))

    @property
    def task(self) -> TaskSpec | None:
        """The task that the rows were written for, if ``generate`` wrote them."""
        return TaskSpec.model_validate(self.described) if isinstance(self.described, dict) else None


def read_given(settings: PostprocessSettings, say: Say | None = None) -> Given:
    """The training rows of a folder of pairsmith, or the rows of a file, another folder or the Hub."""
    if own_folder(settings.data) is None:
        source = to_train_on(settings.data, "cleaned", say)
        return Given(source, *read_labelled_rows(source))
    training_rows = open_training_rows(settings.data, "cleaned", say)
    manifest, table = training_rows.folder.manifest, training_rows.table()
    schema, rows = rows_of(table, settings.data)
    origins = {}
    if _SOURCE.name in table.column_names:  # rows of a mixture, by their ids
        ids, sources = (table[name].to_pylist() for name in ("id", _SOURCE.name))
        origins = dict(zip(ids, sources, strict=True))
    described = manifest.settings.get("task")
    smoothed = manifest.step == "postprocess" and bool(manifest.settings.get("smoothing"))
    return Given(
        training_rows.source,
        schema,
        rows,
        origins,
        manifest.models,
        described,
        manifest.about.task,
        smoothed and schema == SCORED_PAIR,
    )


def _is_finished(out: Place) -> bool:
    """Whether a folder is finished; one of an earlier version may be the work of the same command."""
    try:
        return read_manifest(out).complete
    except FolderError:
        return False


@dataclass(frozen=True, slots=True)
class Processed:
    """The rows of each split, the rejects, and the number of sampled negatives among the rows."""

    train: list[GeneratedRow]
    validation: list[GeneratedRow]
    rejects: list[Reject]
    negatives: int


def processed(
    rows: Sequence[GeneratedRow], settings: PostprocessSettings, task: TaskSpec | None
) -> Processed:
    """Clean (D6), smooth (D7), add sampled negatives (D8) and split (D9); ``task`` is that of the rows."""
    kept, rejects = clean(rows, _filters(settings, task), settings.per_input, settings.per_label)
    scored = [row for row in kept if isinstance(row, ScoredPair)]
    negatives: list[ScoredPair] = []
    if scored:
        scores = sorted({row.score for row in scored})
        if task is not None and task.numeric:  # the label set Y
            scores = [float(label.name) for label in task.labels]
        any_text = settings.near_copies == "keep"
        negatives = sampled_negatives(scored, settings.augment, settings.seed, any_text=any_text)
        kept = [replace(row, score=smooth(row.score, scores, settings.smoothing)) for row in scored]
    train, validation = split([*kept, *negatives], settings.validation, settings.seed)
    return Processed(train, validation, rejects, len(negatives))


TRIES = 100
"""Draws for the negatives of a first text; nearly all of them hit texts of other first texts."""

SAMPLED = "sampled negatives"
"""The ``source`` of sampled negatives (D8) that are added to a mixture."""
_OPEN = re.compile(r"\[[A-Za-z][^\]]*\]")
"""A placeholder that a language model left for somebody to fill in, such as ``[City Name]``."""
_SOURCE = pa.field("source", pa.string())

Filter = Callable[[GeneratedRow], str | None]
"""Returns why a row is dropped, or None."""


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
            name, reason = "duplicate", "repeats an earlier row"
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


def smooth(score: float, scores: Sequence[float], epsilon: float) -> float:
    """``(1 - epsilon) * score + epsilon * mean(scores)``, ``scores`` being the label set (D7).

    With labels 0, 0.5, 1 and epsilon 0.2 this gives 0.1, 0.5, 0.9. Rounded to 12 places, so that
    equal labels stay equal numbers and 0.1 is written 0.1.
    """
    return round((1 - epsilon) * score + epsilon * fmean(scores), 12)


def sampled_negatives(
    rows: Sequence[ScoredPair], count: int, seed: int, *, any_text: bool = False
) -> list[ScoredPair]:
    """For each distinct first text, ``count`` second texts of other first texts, with score 0 (D8).

    A text that was also written for this first text, or that is a near-copy of it, is not drawn: it would
    contradict another row. With ``any_text``, as in the paper's program, texts are drawn from the entries of
    all other first texts. Fewer are found where usable texts are few. Draws do not depend on the order of the
    rows; the new rows are in the order in which the first texts appear.
    """
    if any_text:
        entries = sorted({(row.sentence2, row.sentence1) for row in rows})
    else:  # each text once, however many entries have it
        entries = [(text, "") for text in sorted({row.sentence2 for row in rows})]
    own: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        own[row.sentence1] |= {folded(row.sentence1), folded(row.sentence2)}
    negatives = []
    for first, own_texts in own.items():
        stream = np.array([stream_key("negative", first)] * TRIES, dtype=np.uint64)
        places = (uniforms(seed, stream, np.arange(TRIES)) * len(entries)).astype(int)
        drawn = (entries[place] for place in dict.fromkeys(places.tolist()))
        others = (text for text, of in drawn if (of != first if any_text else folded(text) not in own_texts))
        chosen = islice(others, count)
        name = text_id(first)
        negatives += [ScoredPair(f"{name}-negative-{i}", first, text, 0.0) for i, text in enumerate(chosen)]
    return negatives


def split(
    rows: Sequence[GeneratedRow], share: float, seed: int
) -> tuple[list[GeneratedRow], list[GeneratedRow]]:
    """Split into train and validation rows: of each label ``share``, rounded, goes to validation (D9).

    Which rows these are depends on the ids and the seed; the order of the rows is kept.
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


def _filters(settings: PostprocessSettings, task: TaskSpec | None) -> dict[str, Filter]:
    """The filters of D6 in the order they are tried, and the near-copy filter."""
    by_task = {label.name for label in (task.labels if task else ()) if label.near_copies == "keep"}

    def near_copy(row: GeneratedRow) -> str | None:
        if isinstance(row, LabelledText) or folded(row.sentence1) != folded(row.sentence2):
            return None
        label = row.score if isinstance(row, ScoredPair) else row.label
        kept = label in by_task if settings.near_copies == "task" else settings.near_copies == "keep"
        return None if kept else "the texts differ in case, spaces and punctuation only"

    def copy(row: GeneratedRow) -> str | None:
        if isinstance(row, LabelledText) or row.sentence2 not in (row.sentence1, quotable(row.sentence1)):
            return None
        return "the texts are equal"

    left_open = "the text holds a placeholder in square brackets"
    few = f"fewer than {settings.min_words} words"
    return {
        "empty": lambda row: None if _text(row).strip() else "the text is empty",
        "line break": lambda row: "the text holds a line break" if "\n" in _text(row) else None,
        "placeholder": lambda row: left_open if _holds_placeholder(row) else None,
        "short": lambda row: few if len(_text(row).split()) < settings.min_words else None,
        "copy": copy,
        "near-copy": near_copy,
    }


def _holds_placeholder(row: GeneratedRow) -> bool:
    return isinstance(row, LabelledText) and _OPEN.search(row.text) is not None


def _text(row: GeneratedRow) -> str:
    """The text that the model wrote."""
    return row.text if isinstance(row, LabelledText) else row.sentence2


def rows_of(table: pa.Table, where: str) -> tuple[pa.Schema, list[GeneratedRow]]:
    """The schema and the rows of a table."""
    columns = table.column_names
    own = columns[:-1] if columns[-1:] == [_SOURCE.name] else columns  # rows of a mixture have a source
    if own == SCORED_PAIR.names:
        return SCORED_PAIR, list(from_table(table, ScoredPair))
    if own == LABELLED_PAIR.names:
        return LABELLED_PAIR, list(from_table(table, LabelledPair))
    if own == LABELLED_TEXT.names:
        return LABELLED_TEXT, list(from_table(table, LabelledText))
    raise InputError(
        f"{where} has the columns {', '.join(columns)}; postprocess needs scored pairs (id, sentence1, "
        "sentence2, score), labelled pairs or labelled texts, as `pairsmith generate` writes them"
    )


def _card(settings: PostprocessSettings, given: Given, counts: Mapping[str, int]) -> Card:
    written = "Rows written by a language model from instructions" if given.models else "Labelled rows"
    done = [f"{written}, without duplicates."]
    if "near-copies dropped" in counts:
        done.append(
            "Copies were dropped too; a first text has at most "
            f"{settings.per_input} second texts of one label."
        )
    if "sampled negatives added" in counts:
        done.append(
            f"Scores are smoothed with epsilon {settings.smoothing:g}; each first text was also paired with "
            f"up to {settings.augment} second texts of other entries, with score 0."
        )
    done.append(f"{100 * settings.validation:g} % of each label's rows are set aside for validation.")
    return Card(
        title=f"{given.task.name if given.task else given.name}, cleaned and split",
        description=" ".join(done),
        counts=counts,
        citations=(CITATION,),
        licence="The rights in the inputs, and the terms of the language model, apply to the texts.",
        sources=sources_of(data=[split_of(given.source)[0]]),
        task=given.category,
    )
