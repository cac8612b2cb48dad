"""The step ``classify``: texts -> scores of a classifier (D14) -> the likeliest label of each."""

from collections.abc import Iterator
from functools import partial

from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import CLASSIFIED_TEXT, REJECT, ClassifiedText, Reject, as_columns, to_table
from pairsmith.models.classifier import TextClassifier, check_choice, choose_classifier
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, model_display_name, settled, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, RecordShard, commit_records, completed
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.classify.settings import ClassifySettings
from pairsmith.steps.shared import hashes, load_options, refuse_sources


def classify(settings: ClassifySettings, run: Run) -> DatasetFolder:
    """Label texts; see ``ClassifySettings``.

    ``score`` is the label's probability by a trained classifier, and a cosine with ``name``. Rows keep the
    order and the ids of the source; without ids they are numbered from 1. Blank texts become rejects.
    """
    settings = settled(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    check_choice(settings.model, settings.names())
    read = partial(_texts, settings)
    count = sum(1 for _ in read())
    revision = model_revision(settings.model)
    writer = FolderWriter.start(
        run,
        step="classify",
        schema=CLASSIFIED_TEXT,
        settings=settings.deciding(),
        inputs=hashes("data", [settings.data]),
        models={"model": revision},
        planned=-(-count // settings.shard_size),
    )
    commit = partial(
        commit_records,
        writer,
        partial(_load_worker, settings, revision),
        read,
        count,
        settings.shard_size,
        ExecutorChoice.of(settings),
        run,
        title="classify",
        unit="texts",
    )
    return completed(writer, run, commit, _card(settings))


def _texts(settings: ClassifySettings) -> Iterator[TextRow]:
    return read_text_rows(settings.data, settings.text_column)


def _load_worker(settings: ClassifySettings, revision: str, worker: int) -> Work[RecordShard[TextRow], Made]:
    """Load the classifier; what is returned labels a shard of texts."""
    check_revision(settings.model, revision, worker)
    classifier = choose_classifier(settings.model, settings.names(), **load_options(settings))

    def work(shard: RecordShard[TextRow], advance: Advance) -> Made:
        blank = [row for row in shard.records if not row.text]
        advance(len(blank))
        texts = [row for row in shard.records if row.text]
        rows, rejects = classified(classifier, texts, settings, advance)
        rejects += [Reject.of(row.id, "blank", "the text is blank", {"id": row.id}) for row in blank]
        return to_table(rows, CLASSIFIED_TEXT), to_table(rejects, REJECT)

    return work


def classified(
    classifier: TextClassifier,
    texts: list[TextRow],
    settings: ClassifySettings,
    advance: Advance = lambda _: None,
) -> tuple[list[ClassifiedText], list[Reject]]:
    """The texts, none blank, with their labels; and those whose score is below ``least``."""
    rows, rejects = list[ClassifiedText](), list[Reject]()
    if not texts:
        return rows, rejects
    scores = classifier.confidences(
        [row.text for row in texts], batch_size=settings.batch_size, advance=advance
    )
    best = scores.argmax(axis=1).tolist()
    for row, label, each in zip(texts, best, scores, strict=True):
        made = ClassifiedText(row.id, row.text, classifier.labels[label], round(float(each[label]), 4))
        if settings.least is None or made.score >= settings.least:
            rows.append(made)
        else:
            why = f"the score of {made.label} is {made.score:.4f}, less than {settings.least:g}"
            rejects.append(Reject.of(row.id, "uncertain", why, as_columns(made)))
    return rows, rejects


def _card(settings: ClassifySettings) -> Card:
    return Card(
        title="Texts with labels by a classifier",
        description=f"The classifier {model_display_name(settings.model)} gave each text the label that it "
        "finds likeliest.",
        columns={
            "label": "the label that the classifier gave",
            "score": "the cosine of the text and the label's description"
            if settings.name
            else "the probability of the label by the classifier",
        },
        made="The labels were given by a program; no person has checked them.",
        tags=(),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
    )
