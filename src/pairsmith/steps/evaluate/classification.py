"""Text classification: does a classifier give texts the labels that people gave them (D14)?"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pairsmith.core.errors import InputError, known_names_hint, one_line
from pairsmith.core.progress import Progress
from pairsmith.data.labelled_texts import LabelledTexts, read_labelled_texts, renamed
from pairsmith.methods.dino.evaluation import classification_figures
from pairsmith.models.classifier import choose_classifier
from pairsmith.models.trained_on import fingerprint_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.evaluation import Evaluation, extrapolated
from pairsmith.steps.evaluate.results import Evaluated, with_interval, written_by_program
from pairsmith.steps.planning import counted, load_text_encoder
from pairsmith.steps.shared import load_options

_WIDEST = 24
"""Characters of a label in the table, and the number of labels up to which the confusions are shown."""


def _read(settings: EvaluateClassificationSettings) -> LabelledTexts:
    return read_labelled_texts(
        settings.data, text_column=settings.text_column, label_column=settings.label_column
    )


def _compute(settings: EvaluateClassificationSettings, rows: LabelledTexts, progress: Progress) -> Evaluated:
    gold = renamed(rows.labels, settings.mapping(), settings.data)
    classifier = choose_classifier(settings.model, settings.names(), **load_options(settings))
    if unknown := sorted(set(gold) - set(classifier.labels)):
        raise InputError(_unknown(settings, unknown, classifier.labels))
    by_program = written_by_program(settings.data, "generate", "postprocess")
    if by_program:
        progress.say(
            f"{settings.data}: a program wrote these texts; the figures say how well their labels can be "
            "told apart, not how well texts of people are classified"
        )
    if len(set(gold)) == 1:
        progress.say(f"all texts have the label {gold[0]}: the figures say nothing of other labels")
    with progress.task("classify", len(rows.texts), "texts") as bar:
        scores = classifier.confidences(rows.texts, batch_size=settings.batch_size, advance=bar.advance)
    best = scores.argmax(axis=1).tolist()
    known = sum(fingerprint_of(text) in classifier.trained_on for text in rows.texts)
    if known:
        progress.say(
            f"{known:,} of {len(rows.texts):,} texts are among those that the classifier was trained on; the "
            "figures are better than they would be on others"
        )
    figures = {
        **classification_figures(
            classifier.labels, gold, best, bootstrap=settings.bootstrap, seed=settings.seed
        ),
        "blank": rows.blank,
        "trained_on": known,
        "by_program": by_program,
    }
    return figures, [
        {"text": text, "label": label, "predicted": classifier.labels[at], "score": round(float(row[at]), 4)}
        for text, label, at, row in zip(rows.texts, gold, best, scores, strict=True)
    ]


def _unknown(settings: EvaluateClassificationSettings, unknown: Sequence[str], known: Sequence[str]) -> str:
    """What is wrong with labels of the data that the model does not know."""
    said = f"{settings.data}: the model does not know the labels {', '.join(unknown[:10])}; "
    mapped = {new: old for old, new in settings.mapping().items()}
    if unknown[0] in mapped:
        return f"{said}--map {mapped[unknown[0]]}={unknown[0]}: {known_names_hint(unknown[0], known)}"
    knows = "--name describes" if settings.name else "it knows"
    described = ", or name them in --name as the data do" if settings.name else ""
    return (
        f"{said}{knows} {', '.join(known)}; say for each which it is, as --map {unknown[0]}=LABEL{described}"
    )


def classification_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as plain tables."""
    labels = {one_line(label): figures for label, figures in results["labels"].items()}
    wide = max(8, *(len(label[:_WIDEST]) for label in labels)) + 2
    lines = [
        f"{results['count']:,} texts",
        f"accuracy ×100 (95 %)  {with_interval(results, 'accuracy')}",
        f"macro F1 ×100 (95 %)  {with_interval(results, 'macro_f1')}",
        f"the most frequent label alone: accuracy {results['largest']:.2f}",
        *_all_right(results),
        "",
        f"{'label':<{wide}}{'texts':>7}{'precision':>11}{'recall':>9}{'F1':>9}",
    ]
    for label, figures in labels.items():
        shown = [_shown(figures[name]) for name in ("precision", "recall", "f1")]
        lines.append(
            f"{label[:_WIDEST]:<{wide}}{figures['count']:>7}{shown[0]:>11}{shown[1]:>9}{shown[2]:>9}"
        )
    if len(labels) <= _WIDEST:
        lines += ["", "texts of the label in each line that were given the label of each column"]
        lines.append(" " * wide + "".join(f"{label[:_WIDEST]:>{wide}}" for label in labels))
        for label, row in results["confusion"].items():
            counts = "".join(f"{count:>{wide}}" for count in row.values())
            lines.append(f"{one_line(label)[:_WIDEST]:<{wide}}{counts}")
    return "\n".join(lines)


def _all_right(results: Mapping[str, Any]) -> list[str]:
    """What an accuracy of 100 says, as resamples of right texts alone have an interval of no width."""
    if results["accuracy"] < 100:
        return []
    lowest = 100 * 0.05 ** (1 / results["count"])
    return [f"all are right: with so many texts the accuracy may still be as low as {lowest:.1f} (95 %)"]


def _shown(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _plan(settings: EvaluateClassificationSettings, before: Before) -> Estimate:
    """Encode a sample of the texts."""
    texts = _read(settings).texts
    count = counted(settings.data, before, len(texts))
    return extrapolated(partial(load_text_encoder, settings), texts, count, lambda text: len(text) + 80)


evaluate_classification = Evaluation("evaluate classification", _read, _compute, classification_table, _plan)
"""Classifies labelled texts.

``predictions.jsonl`` has a line for each text: its label, the predicted one, and the score of that, a
probability of a trained classifier, a cosine with ``name``. ``results.json`` has ``accuracy`` and
``macro_f1`` ×100 with 95 % intervals (``accuracy_ci``, ``macro_f1_ci``); by label (``labels``) ``precision``,
``recall`` and ``f1`` ×100, the ``count`` of texts and of ``predicted`` ones; ``confusion``, for each label
how many of its texts were given which; ``largest``, the share ×100 of the most frequent label, the accuracy
of always predicting it; ``count``, the number of texts; ``blank``, how many rows were left out as blank;
``trained_on``, how many of the texts the classifier was trained on; and ``by_program``, whether a program
wrote the texts.
"""
