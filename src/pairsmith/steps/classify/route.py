"""The step ``classify``: texts -> scores of a classifier (D14) -> the likeliest label of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import counted, one_line
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.core.text_width import left_aligned
from pairsmith.data.filters import EMPTY, UNCERTAIN
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import CLASSIFIED_TEXT, REJECT, Reject, to_table
from pairsmith.models.classifier import TextClassifier, check_choice, choose_classifier
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
)
from pairsmith.runs.status import label_counts
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.evaluate.classification_settings import label_descriptions
from pairsmith.steps.planning import CALIBRATION_TEXTS, count_in_run, sharded_estimate, text_encoder, timed
from pairsmith.steps.shared import hashes, load_options, refuse_sources


def classify(settings: ClassifySettings, run: Run) -> DatasetFolder:
    """Label texts; see ``ClassifySettings``.

    The column ``confidence`` is the probability of the label by a trained classifier or, with ``name``, a
    cosine. Rows keep the order, the ids and the other columns of the source; unless all rows have ids, they
    are numbered from 1. Blank texts become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    check_choice(settings.model, label_descriptions(settings.name))
    read = partial(read_text_rows, settings.data, settings.text_column)
    count, has_ids, other_columns = 0, True, dict[str, None]()
    for row in read():
        count += 1
        has_ids = has_ids and bool(row.id)
        other_columns |= dict.fromkeys(row.others)

    def numbered() -> Iterator[TextRow]:
        return (replace(row, id=str(number)) for number, row in enumerate(read(), start=1))

    names = kept_names(other_columns, CLASSIFIED_TEXT.names)
    schema = kept_schema(CLASSIFIED_TEXT, names)
    revision = model_revision(settings.model)
    sizes = equal_shards(count, settings.shard_size)
    writer = FolderWriter.start(
        run,
        Identity.of("classify", settings.deciding(), hashes("data", [settings.data]), {"model": revision}),
        schema,
        planned=len(sizes),
    )
    if writer.finished:
        return nothing_to_do(writer)
    commit_each(
        writer,
        Shards(partial(record_shards, read if has_ids else numbered, settings.shard_size), sizes, "texts"),
        partial(_load_worker, settings, revision, names),
        ExecutorChoice.of(settings),
        title="classify",
        model=settings.model,
    )
    folder = finished(writer, _card(settings, names))
    if folder.manifest.complete:
        for label, number in sorted(label_counts(folder).items()):
            run.progress.say(f"  label {left_aligned(one_line(label), 20)} {counted(number, 'texts')}")
    return folder


def _load_worker(
    settings: ClassifySettings, revision: str, names: Mapping[str, str], worker: int
) -> Work[RecordShard[TextRow], RowsAndRejects]:
    """Load the classifier, and return the function that labels a shard of texts."""
    check_revision(settings.model, revision, worker)
    classifier = choose_classifier(
        settings.model, label_descriptions(settings.name), **load_options(settings)
    )
    schema = kept_schema(CLASSIFIED_TEXT, names)

    def work(shard: RecordShard[TextRow], advance: Advance) -> RowsAndRejects:
        blank = [row for row in shard.records if not row.text]
        advance(len(blank))
        texts = [row for row in shard.records if row.text]
        rows, rejects = classified(classifier, texts, names, settings, advance)
        rejects += [Reject.of(row.id, EMPTY, "the text is blank", _columns(row, names)) for row in blank]
        return pa.Table.from_pylist(rows, schema=schema), to_table(rejects, REJECT)

    return work


def classified(
    classifier: TextClassifier,
    texts: Sequence[TextRow],
    names: Mapping[str, str],
    settings: ClassifySettings,
    advance: Advance = lambda _: None,
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Label texts, none of them blank: the rows, and rejects for texts with a confidence below ``least``.

    ``names`` maps the other columns of the source to the names of the columns that keep their values.
    """
    rows, rejects = list[dict[str, Any]](), list[Reject]()
    if not texts:
        return rows, rejects
    scores = classifier.confidences(
        [row.text for row in texts], batch_size=settings.batch_size, advance=advance
    )
    best = scores.argmax(axis=1).tolist()
    for row, label, confidences in zip(texts, best, scores, strict=True):
        confidence = round(float(confidences[label]), 4)
        record = _columns(row, names) | {"label": classifier.labels[label], "confidence": confidence}
        if settings.least is None or confidence >= settings.least:
            rows.append(record)
        else:
            reason = f"the confidence in its label is below {settings.least:g}"
            rejects.append(Reject.of(row.id, UNCERTAIN, reason, record))
    return rows, rejects


def _columns(row: TextRow, names: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a text: its other columns under their new names, its id, and the text."""
    others = {names[name]: value for name, value in row.others.items()}
    return {**others, "id": row.id, "text": row.text}


def plan_classify(settings: ClassifySettings, before: Before) -> Estimate:
    """Encode some of the texts, and extrapolate; all texts are assumed to be kept."""
    rows = (row.text for row in read_text_rows(settings.data, settings.text_column) if row.text)
    texts = list(islice(rows, CALIBRATION_TEXTS))
    count = count_in_run(len(texts) + sum(1 for _ in rows), [settings.data], before)
    encoder = partial(text_encoder, settings.model, settings)
    loading, per_text, _ = timed(encoder, texts)
    labelled = [  # the label 0 is valid for all steps that read labels
        {"id": f"{row:016}", "text": text, "label": "0", "confidence": 0.0} for row, text in enumerate(texts)
    ]
    sample, shards = pa.Table.from_pylist(labelled, schema=CLASSIFIED_TEXT), -(-count // settings.shard_size)
    return sharded_estimate(sample, count, shards, loading=loading, shared=per_text * count)


def _card(settings: ClassifySettings, names: Mapping[str, str]) -> Card:
    return Card(
        title="Texts labelled by a classifier",
        description=f"Texts, each with its likeliest label by `{model_display_name(settings.model)}`.",
        columns={
            "label": "the label that the classifier gave",
            "confidence": "the cosine of the text and the label's description, from -1 to 1"
            if settings.name
            else "the classifier's probability of the label, from 0 to 1",
        }
        | {kept: f"the column {name} of the source" for name, kept in names.items()},
        provenance="The labels were given by a program; no person has checked them.",
        tags=(),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
    )
