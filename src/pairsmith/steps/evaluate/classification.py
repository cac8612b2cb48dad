"""Text classification: does a classifier predict the labels that people gave to texts (D14)?"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairsmith.core.errors import InputError, counted, known_names_hint, one_line
from pairsmith.core.progress import Progress
from pairsmith.core.text_width import left_aligned, right_aligned, text_width
from pairsmith.data.labelled_texts import (
    LabelledTexts,
    label_name,
    read_labelled_texts,
    renamed,
    spelled_as,
)
from pairsmith.methods.dino.evaluation import classification_figures
from pairsmith.metrics.classification import accuracy, confusion_matrix, macro_f1, resampled_rows
from pairsmith.models.classifier import choose_classifier
from pairsmith.models.trained_on import fingerprint_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.classification_settings import (
    EvaluateClassificationSettings,
    label_descriptions,
)
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated, written_by_program
from pairsmith.steps.evaluate.figures import Resampled, with_interval
from pairsmith.steps.evaluate.paired import Line, Paired
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.planning import count_in_run, text_encoder
from pairsmith.steps.shared import load_options

_SHOWN = 24
"""Largest number of characters of a label in the table, and of labels in a confusion matrix that is shown."""


def _read(settings: EvaluateClassificationSettings) -> LabelledTexts:
    return read_labelled_texts(
        settings.data, text_column=settings.text_column, label_column=settings.label_column
    )


def _gold_labels(
    settings: EvaluateClassificationSettings, rows: LabelledTexts, labels: Collection[str]
) -> list[str]:
    """The label of each text as the model spells it; an ``InputError`` if it is not among its ``labels``."""
    gold = spelled_as(labels, renamed(rows.labels, settings.mapping(), settings.data))
    if unknown := sorted(set(gold) - set(labels)):
        raise InputError(_unknown_labels(settings, unknown, sorted(labels)))
    return gold


def _compute(settings: EvaluateClassificationSettings, rows: LabelledTexts, progress: Progress) -> Evaluated:
    classifier = choose_classifier(
        settings.model, label_descriptions(settings.name), **load_options(settings)
    )
    gold = _gold_labels(settings, rows, classifier.labels)
    by_program = written_by_program(settings.data, "generate", "postprocess")
    if by_program:
        progress.say(
            f"{settings.data}: a program wrote these texts; the figures show how well their labels can be "
            "told apart, not how well texts that people wrote are classified"
        )
    if len(set(gold)) == 1:
        progress.say(f"all texts have the label {gold[0]}: the figures say nothing about other labels")
    with progress.task("classify", len(rows.texts), "texts") as bar:
        scores = classifier.confidences(rows.texts, batch_size=settings.batch_size, advance=bar.advance)
    best = scores.argmax(axis=1).tolist()
    training_texts = sum(fingerprint_of(text) in classifier.trained_on for text in rows.texts)
    if training_texts:
        progress.say(
            f"{training_texts:,} of {len(rows.texts):,} texts are among those that the classifier was "
            "trained on; the figures are better than they would be on other texts"
        )
    figures = {
        **classification_figures(
            classifier.labels, gold, best, bootstrap=settings.bootstrap, seed=settings.seed
        ),
        "blank": rows.blank,
        "trained_on": training_texts,
        "by_program": by_program,
    }
    return figures, [
        {"text": text, "label": label, "predicted": classifier.labels[at], "score": round(float(row[at]), 4)}
        for text, label, at, row in zip(rows.texts, gold, best, scores, strict=True)
    ]


def _unknown_labels(
    settings: EvaluateClassificationSettings, unknown: Sequence[str], labels: Sequence[str]
) -> str:
    """The error message for labels of the data that are not among the ``labels`` of the model."""
    problem = f"{settings.data}: the model does not know the labels {', '.join(unknown[:10])}; "
    mapped = {new: old for old, new in settings.mapping().items()}
    if unknown[0] in mapped:
        return f"{problem}--map {mapped[unknown[0]]}={unknown[0]}: {known_names_hint(unknown[0], labels)}"
    verb = "--name describes" if settings.name else "it knows"
    other = ", or describe them with --name" if settings.name else ""
    return (
        f"{problem}{verb} {', '.join(labels)}; give the model's label for each of them, as --map "
        f"{unknown[0]}=LABEL{other}"
    )


def classification_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as plain tables."""
    labels = results["labels"]
    names = _shown_names(labels)
    width = max(8, *map(text_width, names.values())) + 2
    lines = [
        counted(results["count"], "texts"),
        f"accuracy ×100 (95 %)  {with_interval(results, 'accuracy')}",
        f"macro F1 ×100 (95 %)  {with_interval(results, 'macro_f1')}",
        f"the most frequent label alone: accuracy {results['largest']:.2f}",
        *_when_all_correct(results),
        "",
        f"{'label':<{width}}{'texts':>7}{'precision':>11}{'recall':>9}{'F1':>9}",
    ]
    for label, figures in labels.items():
        precision, recall, f1 = (_shown(figures[name]) for name in ("precision", "recall", "f1"))
        name = left_aligned(names[label], width)
        lines.append(f"{name}{figures['count']:>7}{precision:>11}{recall:>9}{f1:>9}")
    if len(labels) <= _SHOWN:
        lines += ["", "number of texts by their label (lines) and by the predicted label (columns)"]
        lines.append(" " * width + "".join(right_aligned(names[label], width) for label in labels))
        for label, row in results["confusion"].items():
            counts = "".join(f"{count:>{width}}" for count in row.values())
            lines.append(f"{left_aligned(names[label], width)}{counts}")
    return "\n".join(lines)


def _shown_names(labels: Iterable[str]) -> dict[str, str]:
    """Each label as the table shows it: its first ``_SHOWN`` characters, or all if labels share these."""
    lines = {label: one_line(label) for label in labels}
    cut = Counter(line[:_SHOWN] for line in lines.values())
    return {label: line[:_SHOWN] if cut[line[:_SHOWN]] == 1 else line for label, line in lines.items()}


def _when_all_correct(results: Mapping[str, Any]) -> list[str]:
    """A lower bound of an accuracy of 100, whose bootstrap interval has no width; no line if it is lower.

    With a true accuracy p, all n texts are classified correctly with probability p^n, which is 0.05 at the
    bound.
    """
    if results["accuracy"] < 100:
        return []
    lowest = 100 * 0.05 ** (1 / results["count"])
    return [f"all are correct: with so many texts the accuracy may still be as low as {lowest:.1f} (95 %)"]


def _shown(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _plan(settings: EvaluateClassificationSettings, before: Before) -> Estimate:
    """Encode a sample of the texts."""
    texts = _read(settings).texts
    count = count_in_run(len(texts), [settings.data], before)
    load = partial(text_encoder, settings.model, settings)
    return extrapolated(load, texts, count, lambda text: len(text) + 80)


def _rows(settings: EvaluateClassificationSettings, rows: LabelledTexts) -> Iterator[dict[str, Any]]:
    labels = renamed(rows.labels, settings.mapping(), settings.data)
    for text, label in zip(rows.texts, labels, strict=True):
        yield {"text": text, "label": label}


def _resampled(settings: EvaluateClassificationSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    numbers: dict[str, int] = {}
    gold, predicted = (
        [numbers.setdefault(line[name], len(numbers)) for line in lines] for name in ("label", "predicted")
    )
    measures = {"accuracy": accuracy, "macro_f1": macro_f1}
    table = confusion_matrix(gold, predicted, len(numbers))
    rng = np.random.default_rng(settings.seed)
    drawn = resampled_rows(
        gold, predicted, len(numbers), list(measures.values()), draws=settings.bootstrap, rng=rng
    )
    return {
        name: Resampled(100.0 * float(measure(table)), 100.0 * draws)
        for (name, measure), draws in zip(measures.items(), drawn, strict=True)
    }


evaluate_classification = Evaluation(
    "evaluate classification",
    _read,
    _compute,
    classification_table,
    _plan,
    Paired(
        "texts",
        _rows,
        _resampled,
        normalise={"label": label_name},
        advice={
            "label": "labels are compared under the names that --map gives them, so give a result on data "
            "with the same labels, of a model that has the same names for them"
        },
    ),
    check_labels=_gold_labels,
)
"""Predicts the labels of labelled texts, and compares them.

``predictions.jsonl`` has a line for each text: its label, the predicted label, and the score of the predicted
label, which is the probability by a trained classifier or, with ``name``, a cosine. ``results.json`` has

- ``accuracy`` and ``macro_f1`` ×100 with 95 % intervals (``accuracy_ci``, ``macro_f1_ci``);
- ``labels``: for each label its ``precision``, ``recall`` and ``f1`` ×100, the number of texts that have it
  (``count``) and for which it was ``predicted``;
- ``confusion``: for each label, the number of its texts by predicted label;
- ``largest``: the share ×100 of the most frequent label, which is the accuracy of always predicting it;
- ``count``: the number of texts; ``blank``: the number of rows left out because their text is blank;
  ``trained_on``: the number of texts that the classifier was trained on;
- ``by_program``: whether a program wrote the texts;
- with ``against``: the differences of accuracy and macro F1 from the earlier ones.
"""
