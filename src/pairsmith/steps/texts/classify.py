"""The step ``classify``: texts -> scores of a classifier (D14) -> the likeliest label of each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pairsmith.core.errors import counted, one_line
from pairsmith.core.text_width import left_aligned
from pairsmith.data.filters import UNCERTAIN
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import CLASSIFIED_TEXT, Reject
from pairsmith.models.classifier import TextClassifier, check_choice, choose_classifier
from pairsmith.runs import (
    Card,
    DatasetFolder,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
    synthetic_tag,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.status import label_counts
from pairsmith.runs.work import Advance
from pairsmith.steps.evaluate.classification_settings import label_descriptions
from pairsmith.steps.planning import head_and_count, sharded_estimate, text_encoder, timed
from pairsmith.steps.shared import load_options, refuse_sources
from pairsmith.steps.texts.settings import ClassifySettings
from pairsmith.steps.texts.text_rows import NewRows, Row, columns_before, with_new_columns


def classify(settings: ClassifySettings, run: Run) -> DatasetFolder:
    """Label texts; see ``ClassifySettings``.

    The column ``confidence`` is the probability of the label by a trained classifier or, with ``name``, a
    cosine. Rows keep the order, the ids and the other columns of the source; unless all rows have ids, they
    are numbered from 1. Blank texts become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    check_choice(settings.model, label_descriptions(settings.name))
    folder = with_new_columns("classify", settings, run, CLASSIFIED_TEXT, _load, _card)
    if folder.manifest.complete:
        for label, number in sorted(label_counts(folder).items()):
            run.progress.say(f"  label {left_aligned(one_line(label), 20)} {counted(number, 'texts')}")
    return folder


def _load(settings: ClassifySettings) -> NewRows:
    """Load the classifier, and return the function that labels texts."""
    classifier = choose_classifier(
        settings.model, label_descriptions(settings.name), **load_options(settings)
    )
    return partial(classified, classifier, settings)


def classified(
    classifier: TextClassifier,
    settings: ClassifySettings,
    texts: Sequence[TextRow],
    columns_of: Callable[[TextRow], Row],
    advance: Advance,
) -> tuple[list[Row], list[Reject]]:
    """Label texts: the rows, and rejects for texts with a confidence below ``least``."""
    rows, rejects = list[Row](), list[Reject]()
    scores = classifier.confidences(
        [row.text for row in texts], batch_size=settings.batch_size, advance=advance
    )
    best = scores.argmax(axis=1).tolist()
    for row, label, confidences in zip(texts, best, scores, strict=True):
        confidence = round(float(confidences[label]), 4)
        record = columns_of(row) | {"label": classifier.labels[label], "confidence": confidence}
        if settings.least is None or confidence >= settings.least:
            rows.append(record)
        else:
            reason = f"the confidence in its label is below {settings.least:g}"
            rejects.append(Reject.of(row.id, UNCERTAIN, reason, record))
    return rows, rejects


def plan_classify(settings: ClassifySettings, before: Before) -> Estimate:
    """Encode some of the texts, and extrapolate; all texts are assumed to be kept."""
    rows = (row for row in read_text_rows(settings.data, settings.text_column) if row.text)
    first, count = head_and_count(rows, settings.data, before)
    encoder = partial(text_encoder, settings.model, settings)
    loading, per_text, _ = timed(encoder, [row.text for row in first])
    names = kept_names((name for row in first for name in row.others), CLASSIFIED_TEXT.names)
    labelled = [  # the label 0 is valid for all steps that read labels
        {**columns_before(names, row), "id": f"{number:016}", "label": "0", "confidence": 0.0}
        for number, row in enumerate(first)
    ]
    sample = pa.Table.from_pylist(labelled, schema=kept_schema(CLASSIFIED_TEXT, names))
    shards = -(-count // settings.shard_size)
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
        },
        kept={kept: f"the column {name} of the source" for name, kept in names.items()},
        provenance="The labels were given by a program; no person has checked them.",
        tags=synthetic_tag(settings.data),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
    )
