"""The step ``classify``: texts -> scores of a classifier (D14) -> the likeliest label of each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import CLASSIFIED_TEXT, REJECT, Reject, text_schema, to_table
from pairsmith.models.classifier import TextClassifier, check_choice, choose_classifier
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, model_display_name, settled, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, RecordShard, commit_records, completed
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.shared import hashes, load_options, refuse_sources


def classify(settings: ClassifySettings, run: Run) -> DatasetFolder:
    """Label texts; see ``ClassifySettings``.

    ``confidence`` is the label's probability by a trained classifier, and a cosine with ``name``. Rows keep
    the order, the ids and the other columns of the source; without ids they are numbered from 1. Blank texts
    become rejects.
    """
    settings = settled(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    check_choice(settings.model, settings.names())
    read = partial(_texts, settings)
    count, others = 0, dict[str, None]()
    for row in read():
        count += 1
        others |= dict.fromkeys(row.others)
    schema = pa.unify_schemas([CLASSIFIED_TEXT, text_schema(*map(kept_name, others))])
    revision = model_revision(settings.model)
    writer = FolderWriter.start(
        run,
        step="classify",
        schema=schema,
        settings=settings.deciding(),
        inputs=hashes("data", [settings.data]),
        models={"model": revision},
        planned=-(-count // settings.shard_size),
    )
    commit = partial(
        commit_records,
        writer,
        partial(_load_worker, settings, revision, schema),
        read,
        count,
        settings.shard_size,
        ExecutorChoice.of(settings),
        run,
        title="classify",
        unit="texts",
    )
    folder = completed(writer, run, commit, _card(settings, list(others)))
    if folder.manifest.complete:
        counts = Counter[str]()
        for table in folder.shards("train", ["label"]):
            counts.update(table["label"].to_pylist())
        for label, number in sorted(counts.items()):
            run.progress.say(f"  label {label:<20} {number:,} texts")
    return folder


def kept_name(column: str) -> str:
    """The name under which a column of the source is kept: its own, unless a column of ours has that."""
    return f"original_{column}" if column in CLASSIFIED_TEXT.names else column


def _texts(settings: ClassifySettings) -> Iterator[TextRow]:
    return read_text_rows(settings.data, settings.text_column)


def _load_worker(
    settings: ClassifySettings, revision: str, schema: pa.Schema, worker: int
) -> Work[RecordShard[TextRow], Made]:
    """Load the classifier; what is returned labels a shard of texts."""
    check_revision(settings.model, revision, worker)
    classifier = choose_classifier(settings.model, settings.names(), **load_options(settings))

    def work(shard: RecordShard[TextRow], advance: Advance) -> Made:
        blank = [row for row in shard.records if not row.text]
        advance(len(blank))
        texts = [row for row in shard.records if row.text]
        rows, rejects = classified(classifier, texts, settings, advance)
        rejects += [Reject.of(row.id, "blank", "the text is blank", _columns(row)) for row in blank]
        return pa.Table.from_pylist(rows, schema=schema), to_table(rejects, REJECT)

    return work


def classified(
    classifier: TextClassifier,
    texts: Sequence[TextRow],
    settings: ClassifySettings,
    advance: Advance = lambda _: None,
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """The rows of texts, none blank, with their labels; and those whose confidence is below ``least``."""
    rows, rejects = list[dict[str, Any]](), list[Reject]()
    if not texts:
        return rows, rejects
    scores = classifier.confidences(
        [row.text for row in texts], batch_size=settings.batch_size, advance=advance
    )
    best = scores.argmax(axis=1).tolist()
    for row, label, each in zip(texts, best, scores, strict=True):
        confidence = round(float(each[label]), 4)
        made = _columns(row) | {"label": classifier.labels[label], "confidence": confidence}
        if settings.least is None or confidence >= settings.least:
            rows.append(made)
        else:
            why = f"the confidence in its label is below {settings.least:g}"
            rejects.append(Reject.of(row.id, "uncertain", why, made))
    return rows, rejects


def _columns(row: TextRow) -> dict[str, Any]:
    others = {kept_name(name): value for name, value in row.others.items()}
    return {**others, "id": row.id, "text": row.text}


def _card(settings: ClassifySettings, others: Sequence[str]) -> Card:
    return Card(
        title="Texts with labels by a classifier",
        description=f"A classifier ({model_display_name(settings.model)}) gave each text the label that it "
        "finds likeliest.",
        columns={
            "label": "the label that the classifier gave",
            "confidence": "the cosine of the text and the label's description"
            if settings.name
            else "the probability of the label by the classifier",
        }
        | {kept_name(name): f"the column {name} of the source" for name in others},
        made="The labels were given by a program; no person has checked them.",
        tags=(),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
    )
