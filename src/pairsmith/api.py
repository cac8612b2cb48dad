"""Public functions for Python besides the methods' own functions; ``pairsmith.__all__`` lists all of them."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from sentence_transformers import SentenceTransformer

from pairsmith.cli.recipes import find_recipe, load_recipe
from pairsmith.cli.running import run_recipe as run_planned
from pairsmith.core.arguments import (
    check_loaded,
    check_not_blank,
    check_not_empty,
    check_progress,
    checked_rows,
    checked_texts,
    checked_whole_number,
)
from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, SettingsError, errors_in_other_words
from pairsmith.core.paths import place
from pairsmith.core.progress import Progress, Silent
from pairsmith.core.validation import checked_options, refuse_options_of_steps
from pairsmith.data.labelled_texts import LabelledTexts, label_name, spelled_as
from pairsmith.data.schemas import SCORED_PAIR, GradedPair, LabelledPair, LabelledText, ScoredPair, to_table
from pairsmith.data.sts import StsSuite, read_sts
from pairsmith.data.tagged import TaggedSentence, checked_sentence, read_tagged
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.classifier import train_classifier_on
from pairsmith.methods.dino.encoder import train_encoder_on
from pairsmith.methods.dino.evaluation import SuiteScores, classification_figures, sts_scores
from pairsmith.methods.dino.options import ClassifierOptions, EncoderOptions
from pairsmith.methods.dino.requests import GeneratedRow
from pairsmith.methods.dino.training_set import TrainingSet
from pairsmith.methods.dino.training_set import make_training_set as training_set_of
from pairsmith.methods.quip.names import questions_for, train_on_sentences, types_of
from pairsmith.methods.quip.tagger_options import TaggerOptions
from pairsmith.models.classifier import TextClassifier
from pairsmith.models.encode import encode_texts
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.tagger import Tagger, check_for_tagger, tagger_of
from pairsmith.runs import DatasetFolder
from pairsmith.runs.executors import refuse_import_by_worker
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.training.settings import TrainEncoderSettings
from pairsmith.training.best_step import TrainingHistory

_OF_ENCODER = TrainEncoderSettings.model_fields.keys() - EncoderOptions.model_fields.keys()
"""Settings of ``train-encoder`` that ``load_encoder`` takes, or that only a command needs."""
_OF_VALIDATION = {"keep_base", "eval_steps", "eval_batch_size"}
"""Options that have an effect only with validation pairs."""


def make_training_set(
    rows: Iterable[GeneratedRow], task: TaskSpec | None = None, **options: Any
) -> TrainingSet:
    """Clean generated rows, smooth their scores, add sampled negatives and split the rows (D6-D9).

    The command ``postprocess`` does the same.

    Args:
        rows: the generated rows, all of one class, such as the rows that ``generate_pairs`` or
            ``generate_texts`` returns. Only scored pairs are smoothed and get sampled negatives.
        task: the task that the rows were written for. Scores are smoothed towards the mean of its labels, and
            it says for which labels near-copies are kept. Without a task, the labels are the scores that
            occur in the rows.
        options: the options of the command ``postprocess`` by name, such as ``smoothing=0.1`` or
            ``validation=0``: ``augment``, ``min_words``, ``near_copies``, ``per_input``, ``per_label``,
            ``seed``, ``smoothing``, ``validation``.

    Returns:
        the training rows, the validation rows, and the rejected rows.

    Raises:
        InputError: ``rows`` is empty or has rows of several classes, an object that is not a row, a blank
            label, or a label that the task does not have.
        SettingsError: an option is unknown or has an invalid value, or the task is not loaded.
    """
    if "data" in options:
        raise SettingsError("make_training_set: data: give the rows themselves, as the first argument")
    how = checked_options("make_training_set", PostprocessSettings, {"data": "", **options}).options
    if task is not None:
        check_loaded(task, "task", "counters", "load_task")
    rows = checked_rows(rows, "rows", ScoredPair, LabelledPair, LabelledText)
    check_not_empty(rows, "rows", "row")
    check_not_blank((getattr(row, "label", None) for row in rows), "the label of rows")
    if task is not None:
        _check_labels(rows, task)
    if len(classes := sorted({type(row).__name__ for row in rows})) > 1:
        raise InputError(f"rows must all be of one class, not {' and '.join(classes)}")
    return training_set_of(rows, task, how)


def train_encoder(
    encoder: SentenceTransformer,
    pairs: Iterable[ScoredPair],
    validation: Iterable[ScoredPair] = (),
    *,
    progress: Progress | None = None,
    **options: Any,
) -> TrainingHistory:
    """Train a sentence encoder on scored pairs, in place (D10).

    Args:
        encoder: the encoder to train, in place.
        pairs: training pairs with scores from -1 to 1, such as the rows that ``generate_pairs`` returns.
        validation: two or more pairs, with different scores, by which the best step is chosen; without such
            pairs the last step is kept, and ``progress`` says so.
        progress: shows the progress of the training; by default nothing is shown.
        options: the options of the command ``train-encoder`` by name, such as ``objective="contrastive"`` or
            ``learning_rate=1e-4``: ``attention_dropout``, ``batch_size``, ``centre``, ``dtype``, ``epochs``,
            ``eval_batch_size``, ``eval_steps``, ``hard_negatives``, ``keep_base``, ``learning_rate``,
            ``max_steps``, ``objective``, ``scale``, ``seed``, ``warmup``, ``weight_decay``. Options of the
            encoder itself (layers, attention, pooling, device, longest input) are arguments of
            ``load_encoder``.

    Returns:
        how the training went: the number of steps, the best step, and the figures on the validation pairs.

    Raises:
        InputError: there are no pairs, they are of another class, or the objective can train on none of them.
        ModelError: the training diverged.
        SettingsError: an option is unknown or has an invalid value, or it is an argument of ``load_encoder``,
            or it has an effect only in a training with a folder; or the encoder is not loaded.
    """
    check_progress(progress)
    if of_encoder := sorted(_OF_ENCODER & options.keys()):
        raise SettingsError(f"train_encoder: give {', '.join(of_encoder)} to load_encoder, or leave it out")
    refuse_options_of_steps("train_encoder", options)
    held_out = checked_rows(validation, "validation", ScoredPair)
    if not held_out and (unused := sorted(_OF_VALIDATION & options.keys())):
        raise SettingsError(f"train_encoder: {', '.join(unused)} has no effect without validation pairs")
    how = checked_options("train_encoder", EncoderOptions, options)
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    rows = checked_rows(pairs, "pairs", ScoredPair)
    check_not_empty(rows, "pairs", "ScoredPair")
    return train_encoder_on(
        encoder, _table(rows), _table(held_out) if held_out else None, how, progress=progress
    )


def train_classifier(
    encoder: SentenceTransformer,
    texts: Iterable[LabelledText],
    validation: Iterable[LabelledText] = (),
    *,
    progress: Progress | None = None,
    **options: Any,
) -> TextClassifier:
    """Train a classifier on labelled texts: a logistic regression on the encoder's vectors (D14).

    Args:
        encoder: the encoder whose vectors are classified; it is not changed.
        texts: training texts, none of them blank, with at least two labels, none of them blank, such as the
            rows that ``generate_texts`` returns.
        validation: texts by which the best of several values of ``c`` is chosen; without them, the value is
            chosen by cross-validation.
        progress: shows the progress of the training; by default nothing is shown.
        options: options of the command ``train-classifier`` by name: ``balanced``, ``batch_size``, ``c``,
            ``seed``.

    Returns:
        the classifier; its ``predict`` returns the labels of texts, ``confidences`` the probability of each
        of its ``labels``, and ``save(folder)`` writes it into a folder, for ``load_classifier``.

    Raises:
        InputError: there are fewer than two labels, a validation text has a label that no training text has,
            a text or label is blank, or rows are of another class.
        SettingsError: an option is unknown or has an invalid value, or the encoder is not loaded.
    """
    check_progress(progress)
    how = checked_options("train_classifier", ClassifierOptions, options)
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    train = _columns(texts, "texts")
    check_not_empty(train.texts, "texts", "LabelledText")
    held_out = columns if (columns := _columns(validation, "validation")).texts else None
    return train_classifier_on(encoder, train, held_out, how, progress=progress)[0]


def evaluate_classification(
    classifier: TextClassifier,
    texts: Iterable[LabelledText],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Mapping[str, Any]:
    """Accuracy and macro F1, ×100, of a classifier on texts that people labelled (D14).

    Args:
        classifier: the classifier to evaluate.
        texts: the test texts, at least one and none of them blank, with labels that the classifier knows.
        bootstrap: the number of resamples behind each interval; 0 for no intervals.
        seed: the random seed of the resamples.
        progress: shows how many of the texts are classified; by default nothing is shown.

    Returns:
        ``accuracy`` and ``macro_f1``, their 95 % intervals (``accuracy_ci``, ``macro_f1_ci``), and the
        figures of each label and pair of labels, as in ``results.json``.

    Raises:
        InputError: there are no texts, rows are of another class, a text or label is blank, or a label is
            unknown to the classifier.
        SettingsError: the classifier is not loaded, or ``bootstrap`` or ``seed`` is no whole number of at
            least 0.
    """
    check_progress(progress)
    check_loaded(classifier, "classifier", "by_names", "load_classifier")
    bootstrap, seed = checked_whole_number(bootstrap, "bootstrap"), checked_whole_number(seed, "seed")
    columns = _columns(texts, "texts")
    check_not_empty(columns.texts, "texts", "LabelledText")
    gold = spelled_as(classifier.labels, columns.labels)
    if unknown := sorted(set(gold) - set(classifier.labels)):
        raise InputError(
            f"the classifier does not know the labels {', '.join(unknown)}; it knows "
            f"{', '.join(classifier.labels)}"
        )
    with (progress or Silent()).task("classify", len(columns.texts), "texts") as bar:
        best = classifier.scores(columns.texts, advance=bar.advance).argmax(axis=1).tolist()
    return classification_figures(classifier.labels, gold, best, bootstrap=bootstrap, seed=seed)


def train_tagger(
    student: SpanEncoder,
    sentences: str | Path | Iterable[TaggedSentence],
    *,
    start: Literal["questions", "random"] = "questions",
    questions: Mapping[str, str] | None = None,
    seed: int = 1,
    progress: Progress | None = None,
    **options: Any,
) -> Tagger:
    """Train a tagger of named entities on a few sentences; the student is trained in place (Q10).

    Args:
        student: the encoder to start from, as ``load_student`` loads it.
        sentences: the training sentences, at least one of which has an entity: a source that the command
            ``train-tagger`` reads, or a list.
        start: how the layer that predicts tags is initialised: with the vectors of questions, or at random.
        questions: questions for types of entities that have no built-in one, by type.
        seed: the random seed of the order of the sentences, of dropout, and of a random layer.
        progress: shows how many of the sentences are learned; by default nothing is shown.
        options: options of the command ``train-tagger`` by name: ``batch_size``, ``dtype``, ``epochs``,
            ``learning_rate``.

    Returns:
        the tagger; its ``find_entities(texts)`` returns the named entities of texts, and ``save(folder)``
        writes it into a folder, for ``load_tagger``.

    Raises:
        InputError: no sentence has an entity, a source cannot be read, or rows are of another class.
        ModelError: the training diverged.
        SettingsError: an option is unknown or has an invalid value, a type has no question, or the student is
            not loaded.
    """
    check_progress(progress)
    check_loaded(student, "student", "question_vectors", "load_student")
    how, seed = checked_options("train_tagger", TaggerOptions, options), checked_whole_number(seed, "seed")
    if start not in ("questions", "random"):
        raise SettingsError(f"start must be questions or random, not {start!r}")
    if start == "random" and questions:
        raise SettingsError("questions has no effect with start='random'; leave one of them out")
    check_for_tagger(student)
    if isinstance(sentences, str | Path):
        rows = read_tagged(str(sentences))
    else:
        rows = [
            checked_sentence(f"sentences[{number}]", row.words, row.tags)
            for number, row in enumerate(checked_rows(sentences, "sentences", TaggedSentence))
        ]
    types = types_of(rows)
    if not types:
        raise InputError("sentences has no sentence with an entity; give others")
    asked = questions_for(types, questions) if start == "questions" else None
    with (progress or Silent()).task("train", how.epochs * len(rows), "sentences") as bar:
        network = train_on_sentences(student, rows, asked, how, seed=seed, advance=bar.advance)
    return tagger_of(network.encoder, network.tags, network.rows.detach())


def evaluate_sts(
    encoder: SentenceTransformer,
    data: str | Path | Iterable[GradedPair | ScoredPair],
    *,
    suites: Sequence[str] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Mapping[str, SuiteScores]:
    """Spearman's correlation ×100 of an encoder's cosines with human grades (D11).

    Args:
        encoder: the encoder to evaluate.
        data: a folder of test sets in their released form, a file of graded pairs, or a list of pairs.
        suites: the names of the test sets in the folder that are used; by default all of them.
        bootstrap: the number of resamples behind each interval; 0 for no intervals.
        seed: the random seed of the resamples.
        progress: shows how many of the sentences are encoded; by default nothing is shown.

    Returns:
        by the name of each test set, its scores; a list of pairs is a test set named ``pairs``.

    Raises:
        InputError: the data cannot be read, pairs are of another class or have a blank text, or all
            grades are equal.
        ModelError: a vector is not finite, or all pairs have the same cosine.
        SettingsError: the encoder is not loaded, ``suites`` are given for a list, or ``bootstrap`` or
            ``seed`` is no whole number of at least 0.
    """
    check_progress(progress)
    check_loaded(encoder, "encoder", "preprocess", "load_encoder")
    bootstrap, seed = checked_whole_number(bootstrap, "bootstrap"), checked_whole_number(seed, "seed")
    names = checked_texts(suites, "suites")
    if isinstance(data, str | Path):
        test_sets = read_sts(place(str(data)), names or None)
    elif names:
        raise SettingsError("suites are names of a folder's test sets; data is a list, so leave suites out")
    else:
        pairs = checked_rows(data, "data", GradedPair, ScoredPair)
        check_not_empty(pairs, "data", "GradedPair")
        for column in ("sentence1", "sentence2"):
            check_not_blank((getattr(pair, column) for pair in pairs), f"the {column} of data")
        graded = tuple(GradedPair(pair.sentence1, pair.sentence2, pair.score) for pair in pairs)
        test_sets = [StsSuite("pairs", {"pairs": graded})]

    def encode(texts: Sequence[str]) -> Float32s:
        with (progress or Silent()).task("encode", len(texts), "sentences") as bar:
            return encode_texts(encoder, texts, advance=bar.advance)

    return sts_scores(encode, test_sets, bootstrap=bootstrap, seed=seed)


def open_dataset(path: str | Path) -> DatasetFolder:
    """Open a finished dataset folder to read its rows and rejects.

    Returns:
        The folder: ``splits`` has the names of its splits, and ``rows`` the number of rows in all of them;
        ``table(split)`` returns the rows of a split, and ``rejects()`` what was made and not kept, each as a
        ``pyarrow.Table``.

    Raises:
        FolderError: ``path`` is not a dataset folder, or the folder is unfinished.
        SettingsError: ``path`` is no path.
    """
    if not isinstance(path, str | PathLike):
        raise SettingsError(f"path must be the path of a folder, not of the type {type(path).__name__}")
    return DatasetFolder.open(str(path))


def run_recipe(
    recipe: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a recipe's steps in order; steps that an earlier call has finished are not run again.

    A call that is stopped, as by Ctrl-C, keeps its finished parts, and the same call continues the recipe.

    Args:
        recipe: the name of a built-in recipe, or the path of a YAML file.
        out: the folder to write to; each step gets a folder in it.
        seed: a seed that replaces the recipe's seed.
        overrides: texts such as ``step.setting=value``, which replace settings of the recipe.
        progress: shows the progress of the steps; by default nothing is shown.

    Returns:
        the figures that the recipe lists under ``results``, and ``seconds``, the time of all steps.

    Raises:
        UserError: there is a mistake in the recipe or in the inputs of a step.
    """
    refuse_import_by_worker()
    check_progress(progress)
    if not isinstance(recipe, str | Path):
        raise SettingsError(
            "recipe must be the name of a recipe or the path of its YAML file, not of the type "
            f"{type(recipe).__name__}"
        )
    if not isinstance(out, str | Path):
        raise SettingsError(f"out must be the path of a folder, not of the type {type(out).__name__}")
    if seed is not None:
        seed = checked_whole_number(seed, "seed")
    overrides = checked_texts(overrides, "overrides")
    with errors_in_other_words({"set": "overrides", "seed": "seed", "out": "out"}):
        planned = load_recipe(find_recipe(str(recipe)), seed=seed, overrides=overrides)
        try:
            return run_planned(planned, place(str(out)), progress or Silent())
        except KeyboardInterrupt as stop:
            stop.add_note("finished parts are kept; the same call of run_recipe continues the recipe")
            raise


def _check_labels(rows: Sequence[GeneratedRow], task: TaskSpec) -> None:
    """Raise an ``InputError`` if a row has a label that is not one of the task's labels."""
    known = {label.name for label in task.labels}
    for index, row in enumerate(rows):
        label = row.score if isinstance(row, ScoredPair) else row.label
        if label not in known:
            raise InputError(
                f"rows[{index}] has the label {label}, which the task {task.name} does not have "
                f"({', '.join(task.label_names)}); give the task that the rows were written for"
            )


def _columns(rows: Iterable[LabelledText], name: str) -> LabelledTexts:
    """The texts and labels of the argument ``name``; an ``InputError`` if one of them is blank."""
    rows = checked_rows(rows, name, LabelledText)
    columns = LabelledTexts([row.text for row in rows], [label_name(row.label) for row in rows], 0)
    check_not_blank(columns.texts, f"the text of {name}")
    check_not_blank(columns.labels, f"the label of {name}")
    return columns


def _table(pairs: Sequence[ScoredPair]) -> Any:
    return to_table(list(pairs), SCORED_PAIR).select(["sentence1", "sentence2", "score"])
