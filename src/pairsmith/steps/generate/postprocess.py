"""The step ``postprocess``: turn generated rows into training data for an encoder (D6-D9).

The method is ``methods/dino/training_set.py``. The step reads the rows, commits the training set and the
rejects, and writes the card.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import DamagedError, InputError, SettingsError, counted
from pairsmith.core.paths import MANIFEST, display_name, place
from pairsmith.core.progress import Say
from pairsmith.data.files.folders import own_folder
from pairsmith.data.labelled_rows import KINDS, read_labelled_rows
from pairsmith.data.schemas import (
    LABELLED_TEXT,
    REJECT,
    SCORED_PAIR,
    Reject,
    as_columns,
    from_table,
    to_table,
)
from pairsmith.data.splits import split_of, to_train_on
from pairsmith.data.tasks import TaskSpec
from pairsmith.data.text import with_full_stop
from pairsmith.methods.dino.requests import GeneratedRow
from pairsmith.methods.dino.training_set import TrainingSet, make_training_set
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    hash_source,
    sources_of,
    synthetic_tag,
    written_by_model,
)
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate
from pairsmith.runs.folder import open_training_rows
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import encode_table
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.planning import count_in_run
from pairsmith.steps.shared import check_rows, refuse_sources

SAMPLED = "sampled negatives"
"""The value of ``source`` in sampled negatives (D8), if the rows are a mixture."""

_SOURCE = pa.field("source", pa.string())
"""The column that ``mix`` adds: the data set that a row is from."""


def postprocess(settings: PostprocessSettings, run: Run) -> DatasetFolder:
    """Clean, smooth, augment and split the rows of ``generate``, or of any file with the same columns.

    Smoothing and sampled negatives apply to scored pairs; other rows are only cleaned and split. If the
    source has several splits, ``train`` is read unless the source names another one.
    """
    refuse_sources(run, data=settings.data)
    generated = read_input(settings, run.progress.say)
    if generated.smoothed and settings.smoothing:
        raise SettingsError(
            f"{settings.data}: postprocess has already smoothed these scores; give --smoothing 0 (and "
            "--augment 0, so that no further negatives are added), or the folder that generate wrote"
        )
    writer = FolderWriter.start(
        run,
        Identity.of(
            "postprocess",
            {**settings.deciding(), "task": generated.described},
            {"data": hash_source(generated.source)},
            generated.models,
        ),
        generated.schema.append(_SOURCE) if generated.origins else generated.schema,
    )
    if writer.finished:
        return nothing_to_do(writer)

    training_set = make_training_set(generated.rows, generated.task, settings.options)
    tables = {"train": to_table(training_set.train, generated.schema)}
    if training_set.validation:  # an empty split would not open in other tools
        tables["validation"] = to_table(training_set.validation, generated.schema)
    if generated.origins:
        for split, table in tables.items():
            sources = [generated.origins.get(row_id, SAMPLED) for row_id in table["id"].to_pylist()]
            tables[split] = table.append_column(_SOURCE, pa.array(sources, pa.string()))
    writer.commit_all(tables, to_table(training_set.rejects, REJECT))
    rejects = training_set.rejects
    counts = {"rows read": len(generated.rows), "rows kept of these": len(generated.rows) - len(rejects)}
    if generated.schema != LABELLED_TEXT:
        counts["rows left out as near-copies"] = sum(reject.filter == "near-copy" for reject in rejects)
    if generated.schema == SCORED_PAIR and counts["rows kept of these"]:
        counts["sampled negatives added"] = training_set.negatives
    run.progress.say(_summary(training_set, len(generated.rows), sampled=generated.schema == SCORED_PAIR))
    for line in _too_few(generated.rows, rejects, settings.per_label):
        run.progress.say(line)
    return finished(writer, _card(settings, generated, counts))


def _too_few(rows: Sequence[GeneratedRow], rejects: Sequence[Reject], per_label: int | None) -> Iterator[str]:
    """A line for each label that has fewer than ``per_label`` rows left."""
    columns = [*map(as_columns, rows)]
    dropped = Counter(map(_label, (json.loads(reject.row) for reject in rejects)))
    for label, count in Counter(map(_label, columns)).items():
        if per_label and (kept := count - dropped[label]) < per_label:
            yield f"label {label} has {counted(kept, 'rows')}, fewer than --per-label {per_label:,}"


def _label(columns: Mapping[str, Any]) -> str:
    """The label of a row as its task file writes it, such as ``0.5``."""
    return f"{columns['score']:g}" if "score" in columns else str(columns["label"])


def _summary(training_set: TrainingSet, row_count: int, *, sampled: bool) -> str:
    """A line with the numbers of rows that were dropped, added and set aside for validation."""
    dropped = Counter(reject.filter for reject in training_set.rejects)
    filters = ", ".join(f"{count:,} {name}" for name, count in dropped.most_common())
    why = f" ({filters})" if filters else ""
    parts = [f"of {counted(row_count, 'rows')} {counted(dropped.total(), 'are')} dropped{why}"]
    if sampled:
        parts.append(f"{counted(training_set.negatives, 'sampled negatives are')} added")
    held_back = counted(len(training_set.validation), "are")
    parts.append(f"of the resulting rows {held_back} held back for validation")
    return "; ".join(parts)


@dataclass(frozen=True)
class PostprocessInput:
    """The rows that ``postprocess`` reads, and what the manifest of their folder says about them."""

    source: str  # the file, or the folder and split, that the rows are read from
    schema: pa.Schema
    rows: Sequence[GeneratedRow]
    origins: Mapping[str, str] = field(default_factory=dict)  # for a mixture, the source of each row id
    models: Mapping[str, str] = field(default_factory=dict)  # revisions of the models of the folder's step
    described: Any = None  # the task that the rows were written for, as JSON from the manifest
    category: str = ""  # the Hub's task category
    smoothed: bool = False  # whether the scores are already smoothed

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        return display_name(place(split_of(self.source)[0]))

    @property
    def task(self) -> TaskSpec | None:
        """The task that the rows were written for, if ``generate`` wrote them."""
        if not isinstance(self.described, dict):
            return None
        try:
            return TaskSpec.model_validate(self.described)
        except ValidationError:
            raise DamagedError(
                f"{self.source}: the task in its {MANIFEST} is no task; run the command that wrote it again"
            ) from None


def read_input(settings: PostprocessSettings, say: Say | None = None) -> PostprocessInput:
    """Read the training rows of a dataset folder, or the rows of a file, another folder or a Hub data set."""
    if own_folder(settings.data) is None:
        source = to_train_on(settings.data, "cleaned", say)
        return PostprocessInput(source, *read_labelled_rows(source))
    training_rows = open_training_rows(settings.data, "cleaned", say)
    manifest, table = training_rows.folder.manifest, training_rows.table()
    schema, rows = schema_and_rows(table, settings.data)
    origins = {}
    if _SOURCE.name in table.column_names:  # the rows are a mixture
        ids, sources = (table[name].to_pylist() for name in ("id", _SOURCE.name))
        origins = dict(zip(ids, sources, strict=True))
    described = manifest.settings.get("task")
    smoothed = manifest.rows_of == "postprocess" and bool(manifest.settings.get("smoothing"))
    return PostprocessInput(
        training_rows.source,
        schema,
        rows,
        origins,
        manifest.models,
        described,
        manifest.about.task,
        smoothed and schema == SCORED_PAIR,
    )


def schema_and_rows(table: pa.Table, where: str) -> tuple[pa.Schema, list[GeneratedRow]]:
    """The schema and the rows of a table; ``where`` names its source in error messages."""
    columns = table.column_names
    own = columns[:-1] if columns[-1:] == [_SOURCE.name] else columns  # of a mixture
    for schema, kind in KINDS:
        if own == schema.names:
            check_rows(table, schema, where)
            return schema, from_table(table, kind)
    raise InputError(
        f"{where} has the columns {', '.join(columns)}; postprocess needs scored pairs (id, sentence1, "
        "sentence2, score), labelled pairs or labelled texts, as `pairsmith generate` writes them"
    )


def plan_postprocess(settings: PostprocessSettings, before: Before) -> Estimate:
    """Process the rows and extrapolate.

    Rows that an earlier step will make are represented by its sample. A sample does not say what its task is,
    so the label set is the set of scores in it.
    """
    generated = read_input(settings)
    count = count_in_run(len(generated.rows), [settings.data], before, "train")  # validation is not processed
    factor, begun = count / max(len(generated.rows), 1), time.monotonic()
    training_set = make_training_set(generated.rows, generated.task, settings.options)
    splits = {"train": training_set.train, "validation": training_set.validation}
    tables = {split: to_table(rows, generated.schema) for split, rows in splits.items()}
    size = sum(len(encode_table(table)) for table in tables.values())
    return Estimate(
        seconds=(time.monotonic() - begun) * factor,
        disk=round(size * factor) + FOLDER_BYTES + SHARD_BYTES,
        rows={split: round(table.num_rows * factor) for split, table in tables.items()},
        sample=pa.concat_tables(tables.values()),
    )


def _card(settings: PostprocessSettings, generated: PostprocessInput, counts: Mapping[str, int]) -> Card:
    sentences = [with_full_stop(generated.task.description)] if generated.task else []
    sources = sources_of(data=[split_of(generated.source)[0]])
    by_model = written_by_model(generated.source)
    written = by_model and generated.models
    what = "Rows written by a language model from instructions" if written else "Labelled rows"
    sentences.append(f"{what}, without duplicates.")
    if "rows left out as near-copies" in counts:
        sentences.append(
            "Pairs of a text and its near-copy were left out, too; a first text has at most "
            f"{settings.per_input} second texts of one label."
        )
    if "sampled negatives added" in counts:
        if settings.smoothing:
            sentences.append(
                f"Scores are smoothed by {settings.smoothing:g} (label smoothing), towards their mean."
            )
        if settings.augment:
            sentences.append(
                f"Each first text is also paired with up to {settings.augment} second texts of other first "
                "texts, with score 0 (sampled negatives)."
            )
    if settings.validation:
        sentences.append(
            f"{100 * settings.validation:g} % of each label's rows are set aside for validation."
        )
    return Card(
        title=f"{generated.task.name if generated.task else generated.name}, cleaned and split",
        description=" ".join(sentences),
        counts=counts,
        citations=(CITATION,),
        columns={} if by_model else {"label": "the label of the text or pair, as it was given"},
        licence="The rights in the inputs, and the terms of the language model, apply to the texts."
        if by_model
        else "The rights in the texts apply.",
        sources=sources,
        provenance=Card.provenance
        if by_model
        else "The texts are those that were given; what a program left out, changed or added is said above.",
        tags=synthetic_tag(generated.source),
        task=generated.category,
    )
