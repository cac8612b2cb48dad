"""The step ``train-classifier``: a classifier trained on labelled texts (D14)."""

from collections import Counter
from collections.abc import Iterable
from functools import cache, partial

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import InputError, SettingsError, counted, joined_names, one_line
from pairsmith.core.paths import Place
from pairsmith.core.progress import Say
from pairsmith.data.labelled_texts import LabelledTexts, read_labelled_texts
from pairsmith.data.splits import split_of, splits_of, to_measure_on, to_train_on
from pairsmith.methods.dino.classifier import ClassifierTraining, check_labels, distinct, train_classifier_on
from pairsmith.models.classifier import text_unit_vectors
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.planning import CALIBRATION_TEXTS, count_in_run, evenly_spaced, timed
from pairsmith.steps.shared import errors_about, load_options, refuse_sources
from pairsmith.steps.training.card import classifier_card
from pairsmith.steps.training.settings import TrainClassifierSettings
from pairsmith.steps.training.step import Save, save_with_card, train_once
from pairsmith.training.folder import ModelFolder
from pairsmith.training.processes import Processes

_MOST_LABELS = 12
"""The largest number of labels of which each one's number of texts is shown."""


def train_classifier(settings: TrainClassifierSettings, run: Run) -> Place:
    """Train a classifier, save it in the run's folder, and return that folder.

    The files of the folder are described in ``models/classifier.py``; the record of the training,
    ``training.json``, is written last. A folder with a classifier of the same settings and data is left as it
    is.
    """
    if Processes.current().size > 1:
        raise SettingsError("train-classifier runs in one process: it has no batches for several to share")
    settings = with_classifier_splits(resolve_dtype(settings, run), run.progress.say)
    sources = {"data": settings.data, **({"validation": settings.validation} if settings.validation else {})}
    refuse_sources(run, **sources, base=settings.base)
    texts = _read(settings.data, settings)
    validation = _read(settings.validation, settings) if settings.validation else None
    _check(settings, texts, validation)

    def fit(folder: ModelFolder) -> tuple[Save, ClassifierTraining]:
        run.progress.say(columns_and_counts(texts))
        if texts.blank:
            run.progress.say(f"{counted(texts.blank, 'rows are')} left out: the text is blank")
        for alike in labels_alike(texts.labels):
            run.progress.say(
                f"{joined_names(alike)} are different labels; if they are one, rename them in the data"
            )
        encoder = load_sentence_encoder(settings.base, pooling=settings.pooling, **load_options(settings))
        classifier, history = train_classifier_on(encoder, texts, validation, settings, progress=run.progress)
        for count, reason in (
            (history.repeated, "they repeat an earlier one"),
            (history.contradicting, "the same text has several labels"),
        ):
            if count:
                run.progress.say(f"{count:,} of {len(texts.texts):,} texts are left out because {reason}")
        card = classifier_card(settings, history.to_json(), folder)
        return partial(save_with_card, classifier, card), history

    return train_once("train-classifier", CITATION, settings, sources, run, fit)


def columns_and_counts(texts: LabelledTexts) -> str:
    """The columns that were read, and the number of texts of each label.

    Of more than ``_MOST_LABELS`` labels, only the numbers of the rarest and of the most frequent one.
    """
    counts = Counter(texts.labels).most_common()
    shown = [f"{count:,} × {one_line(label)}" for label, count in counts]
    numbers = joined_names(shown)
    if len(counts) > _MOST_LABELS:
        numbers = f"{len(counts):,} labels, from {joined_names([shown[-1]])} to {joined_names([shown[0]])}"
    columns = f"column {texts.text_column!r}, their labels from {texts.label_column!r}"
    return f"the texts are read from the {columns}: {numbers}"


def labels_alike(labels: Iterable[str]) -> list[list[str]]:
    """The groups of labels that differ only in capitals, such as ``Good`` and ``good``."""
    groups: dict[str, list[str]] = {}
    for label in sorted(set(labels)):
        groups.setdefault(label.casefold(), []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def training_labels(settings: TrainClassifierSettings) -> set[str]:
    """The labels of the training texts."""
    settings = with_classifier_splits(settings)
    return set(_read(settings.data, settings).labels)


def with_classifier_splits(
    settings: TrainClassifierSettings, say: Say | None = None
) -> TrainClassifierSettings:
    """The settings with a split named for each folder that has several.

    If ``validation`` is unset, it becomes the split ``validation`` of ``data``, if there is one.
    """
    data, validation = settings.data, settings.validation
    if validation is None and not split_of(data)[1]:
        validation = splits_of(data).get("validation") if len(splits_of(data)) > 1 else None
    elif validation is not None:
        validation = to_measure_on(validation, "measured on", say, split="validation")
    both_splits_used = validation is not None and settings.validation is None
    data = to_train_on(data, "trained on", None if both_splits_used else say)
    if both_splits_used and say:
        say(f"the validation texts are those of the split {validation}")
    return settings.model_copy(update={"data": data, "validation": validation})


def plan_train_classifier(settings: TrainClassifierSettings, before: Before) -> Estimate:
    """Encode a sample of the texts, and extrapolate; the time for fitting the head is negligible."""
    settings = with_classifier_splits(settings)
    rows, validation = _read(settings.data, settings), None
    count, held_out = count_in_run(len(rows.texts), [settings.data], before), 0
    if settings.validation:
        validation = _read(settings.validation, settings)
        held_out = count_in_run(len(validation.texts), [settings.validation], before)
    if settings.data not in before:  # a sample may be too small to have all labels
        _check(settings, rows, None if settings.validation in before else validation)
    encoder = cache(
        partial(load_sentence_encoder, settings.base, pooling=settings.pooling, **load_options(settings))
    )
    loading, per_text, _ = timed(
        lambda: partial(text_unit_vectors, encoder(), batch_size=settings.batch_size),
        evenly_spaced(rows.texts, CALIBRATION_TEXTS),
    )
    weights = sum(weight.nbytes for weight in encoder().state_dict().values())
    return Estimate(
        seconds=loading + per_text * (count + held_out),
        disk=weights + 1_000_000 + 17 * count,  # also a tokenizer, and a line for each text
    )


def _check(settings: TrainClassifierSettings, train: LabelledTexts, validation: LabelledTexts | None) -> None:
    """Raise an ``InputError`` for labels that no classifier can be trained on; called before writing."""
    with errors_about(settings.data, InputError):
        check_labels(distinct(train)[1], validation)


def _read(source: str, settings: TrainClassifierSettings) -> LabelledTexts:
    return read_labelled_texts(source, text_column=settings.text_column, label_column=settings.label_column)
