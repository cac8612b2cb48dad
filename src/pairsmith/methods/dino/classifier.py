"""Training a text classifier on labelled texts: a logistic regression on an encoder's vectors (D14).

The encoder is not trained. Generated texts are few, and some of them have the wrong label; a model with few
parameters fits such label noise less. With all-MiniLM-L6-v2 the head has 385 parameters per label, the
encoder 22 million.
"""

import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, counted
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.labelled_texts import LabelledTexts
from pairsmith.methods.dino.options import ClassifierOptions
from pairsmith.models.classifier import TextClassifier, text_unit_vectors
from pairsmith.models.trained_on import fingerprint_of

FOLDS = 5
MAX_ITERATIONS = 1_000
"""Largest number of iterations of the solver."""


@dataclass(frozen=True, slots=True)
class ClassifierTraining:
    """How a classifier was trained.

    Attributes:
        texts: for each label, the number of training texts.
        repeated: number of texts left out because an earlier row has the same text and label.
        contradicting: number of texts left out because the same text occurs with several labels.
        c: the C that was chosen.
        measured_on: how C was chosen, as in "300 validation texts" or "cross-validation"; "" if not measured.
        curve: for each C that was tried, the mean log loss and the accuracy ×100 on the held-out texts.
        seconds: duration of the training.
    """

    texts: dict[str, int]
    repeated: int
    contradicting: int
    c: float
    measured_on: str
    curve: dict[float, tuple[float, float]]
    seconds: float

    def __str__(self) -> str:
        """In words: the number of texts and labels, the chosen C and its accuracy."""
        texts = counted(sum(self.texts.values()), "texts")
        kept = f"{texts} of {counted(len(self.texts), 'labels')}, C {self.c:g}"
        if self.c not in self.curve:
            return kept
        return f"{kept}, accuracy {self.curve[self.c][1]:.1f} on {self.measured_on}"

    def to_json(self) -> dict[str, Any]:
        """The part of ``training.json`` that says how the training went."""
        return {
            "texts": self.texts,
            "repeated": self.repeated,
            "contradicting": self.contradicting,
            "c": self.c,
            "measured_on": self.measured_on,
            "choices": [
                {"c": c, "log_loss": round(loss, 4), "accuracy": round(accuracy, 4)}
                for c, (loss, accuracy) in self.curve.items()
            ],
            "seconds": round(self.seconds, 2),
        }


def train_classifier_on(
    encoder: SentenceTransformer,
    train: LabelledTexts,
    validation: LabelledTexts | None,
    options: ClassifierOptions,
    *,
    progress: Progress | None = None,
) -> tuple[TextClassifier, ClassifierTraining]:
    """Fit a classifier's head; the encoder is not changed.

    Of equal texts with the same label, only the first is used. Equal texts with different labels contradict
    each other, and none of them is used. If ``options.c`` has several values, the C with the lowest log loss
    is chosen: on the validation texts or, without these, by cross-validation in ``FOLDS`` parts.

    Raises:
        InputError: fewer than two labels are left, or a validation text has a label that no training text
            has.
    """
    begun = time.monotonic()
    shown = progress or Silent()
    texts, labels, repeated, contradicting = distinct(train)
    names = check_labels(labels, validation)
    held_out = validation.texts if validation else []
    with shown.task("encode", len(texts) + len(held_out), "texts") as bar:
        vectors = text_unit_vectors(
            encoder, [*texts, *held_out], batch_size=options.batch_size, advance=bar.advance
        )
    gold = np.array([names.index(label) for label in labels])
    learned = frozenset(map(fingerprint_of, texts))
    if both := sum(fingerprint_of(text) in learned for text in held_out):
        shown.say(
            f"{both:,} of {len(held_out):,} validation texts are also training texts; the chosen C may be "
            "too high"
        )
    held_out_gold = [names.index(label) for label in validation.labels] if validation else []
    curve, measured_on = _held_out_figures(vectors, gold, held_out_gold, options)
    if len(options.c) > 1 and not curve:
        shown.say(f"a label has a single text, so C cannot be chosen; C {_middle(options.c):g} is used")
    # The lowest loss, and of equal ones the lowest C.
    best = min(sorted(curve), key=lambda c: curve[c][0]) if curve else _middle(options.c)
    weight, bias = fit_head(vectors[: len(texts)], gold, best, balanced=options.balanced)
    classifier = TextClassifier(encoder, tuple(names), weight, bias, learned)
    counts = {name: labels.count(name) for name in names}
    seconds = time.monotonic() - begun
    return classifier, ClassifierTraining(counts, repeated, contradicting, best, measured_on, curve, seconds)


def fit_head(
    vectors: Float32s, gold: NDArray[np.int64], c: float, *, balanced: bool = True
) -> tuple[Float32s, Float32s]:
    """The weights ``(k, d)`` and biases ``(k,)``, float32, of a logistic regression with k classes.

    ``vectors`` are ``(n, d)``. ``gold``, ``(n,)``, has the class of each vector, from 0 to k - 1; every class
    occurs.
    """
    model = _fitted(vectors, gold, c, balanced)
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:  # for two labels scikit-learn has one row
        weight, bias = np.vstack([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight.astype(np.float32), bias.astype(np.float32)


def check_labels(labels: Sequence[str], validation: LabelledTexts | None) -> list[str]:
    """The distinct labels of training texts, sorted; errors as for ``train_classifier_on``."""
    names = sorted(set(labels))
    if len(names) < 2:
        remainder = f"all {len(labels):,} have the label {names[0]!r}" if names else "none are left"
        raise InputError(
            f"a classifier needs texts of at least two labels; of the texts without contradicting labels, "
            f"{remainder}"
        )
    if validation and (unknown := sorted(set(validation.labels) - set(names))):
        raise InputError(
            f"the validation texts have the labels {', '.join(unknown)}, which no training text has; "
            f"the training texts have: {', '.join(names)}"
        )
    return names


def distinct(rows: LabelledTexts) -> tuple[list[str], list[str], int, int]:
    """The distinct texts, their labels, and the numbers of repeated and of contradicting rows.

    Two texts count as the same if they differ only in case, spaces and punctuation. Rows with the same text
    and different labels contradict each other.
    """
    labels_of: dict[str, set[str]] = defaultdict(set)
    text_of: dict[str, str] = {}
    fingerprints = [fingerprint_of(text) for text in rows.texts]
    for fingerprint, text, label in zip(fingerprints, rows.texts, rows.labels, strict=True):
        labels_of[fingerprint].add(label)
        text_of.setdefault(fingerprint, text)
    kept = {text_of[name]: next(iter(labels)) for name, labels in labels_of.items() if len(labels) == 1}
    contradicting = sum(len(labels_of[fingerprint]) > 1 for fingerprint in fingerprints)
    return list(kept), list(kept.values()), len(rows.texts) - len(kept) - contradicting, contradicting


def _held_out_figures(
    vectors: Float32s, gold: NDArray[np.int64], held_out_gold: Sequence[int], options: ClassifierOptions
) -> tuple[dict[float, tuple[float, float]], str]:
    """The mean log loss and the accuracy ×100 of each C on held-out texts, and which texts these are.

    ``vectors`` are the vectors of the training texts, whose labels are ``gold``, and then of the validation
    texts, whose labels are ``held_out_gold``. Without validation texts, the figures are measured by
    cross-validation; they are empty if C cannot or need not be chosen.
    """
    size = len(gold)
    parts = [(np.arange(size), np.arange(size, len(vectors)))]  # rows to train on, and held-out rows
    measured_on = counted(len(held_out_gold), "validation texts")
    if not held_out_gold:
        folds = min(FOLDS, int(np.bincount(gold).min()))
        if folds < 2 or len(options.c) < 2:
            return {}, ""
        cut = StratifiedKFold(folds, shuffle=True, random_state=options.seed)
        parts, measured_on = list(cut.split(vectors, gold)), "cross-validation"
    labels = np.concatenate([gold, np.array(held_out_gold, np.int64)])
    figures: dict[float, tuple[float, float]] = {}
    for c in options.c:
        loss, correct, rows = 0.0, 0, 0
        for training, held_out in parts:
            model = _fitted(vectors[training], labels[training], c, options.balanced)
            probabilities, expected = model.predict_proba(vectors[held_out]), labels[held_out]
            loss += float(log_loss(expected, probabilities, labels=np.unique(gold), normalize=False))
            correct += int((probabilities.argmax(axis=1) == expected).sum())
            rows += len(held_out)
        figures[c] = (loss / rows, 100.0 * correct / rows)
    return figures, measured_on


def _fitted(vectors: Float32s, gold: NDArray[np.int64], c: float, balanced: bool) -> LogisticRegression:
    model = LogisticRegression(C=c, class_weight="balanced" if balanced else None, max_iter=MAX_ITERATIONS)
    with warnings.catch_warnings():  # a head whose solver has not quite converged is measured like any other
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(vectors.astype(np.float64), gold)
    return model


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
