"""Similarity measures of pairs, and how well similarities or words distinguish the labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairsmith.core.arrays import Float64s
from pairsmith.data.text.words import terms
from pairsmith.metrics.auroc import auroc
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.tools.report.rows import words

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


APART = 0.6
"""Area under the ROC curve below which two labels hardly differ."""
_FEWEST = 20
"""Labels with fewer rows are left out."""
_CLASSIFIED = 4_000
"""Largest number of texts that the simple classifier is trained and tested on."""


@dataclass(frozen=True, slots=True)
class PairSimilarity:
    """The similarity of the texts of n pairs by the measure named ``measure``; ``values`` is ``(n,)``."""

    measure: str
    values: Float64s


def shared_words(pairs: Sequence[tuple[str, str]]) -> PairSimilarity:
    """The share of words that two texts have in common: the Jaccard index of their words, within [0, 1]."""
    shares = np.zeros(len(pairs))
    for place, (one, other) in enumerate(pairs):
        first, second = set(words(one).split()), set(words(other).split())
        shares[place] = len(first & second) / len(first | second) if first | second else 1.0
    return PairSimilarity("share of words in common", shares)


def cosines(pairs: Sequence[tuple[str, str]], encoder: "SentenceTransformer") -> PairSimilarity:
    """The cosine similarity of the vectors of each pair's texts, within [-1, 1]; NaN if a text is blank."""
    values = np.full(len(pairs), np.nan)
    rows = [place for place, pair in enumerate(pairs) if all(text.strip() for text in pair)]
    sides = [encode_texts(encoder, [pairs[row][side] for row in rows]) for side in (0, 1)]
    if rows:
        values[rows] = cosine_similarity_rows(*sides)
    return PairSimilarity("cosine", values)


def similar_labels(values: Float64s, labels: Sequence[str]) -> list[tuple[str, str, float]]:
    """Neighbouring numeric labels where pairs with the higher label are hardly more similar.

    Returns:
        the lower label, the higher label, and the area under the ROC curve: if one pair of each label is
        drawn, the probability that the pair with the higher label is the more similar one.
    """
    finite = np.isfinite(values)
    names = np.array(labels)
    enough = [name for name in set(labels) if np.sum(finite & (names == name)) >= _FEWEST]
    counted = sorted((name for name in enough if name != "–"), key=float)
    confusions = []
    for low, high in _neighbours(counted):
        both = finite & ((names == low) | (names == high))
        area = auroc(values[both], names[both] == high)
        if area < APART:
            confusions.append((low, high, area))
    return confusions


def _neighbours(labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each label with the next label that is higher by more than a fifth of the range of all labels.

    Thus 0 and 0.1, which is a smoothed 0, are no neighbours.
    """
    if labels:
        least = (float(labels[-1]) - float(labels[0])) / 5
        for place, low in enumerate(labels):
            others = labels[place + 1 :]
            higher = next((high for high in others if float(high) - float(low) > least), None)
            if higher is not None:
                yield low, higher


def classifier_accuracy(texts: Sequence[str], labels: Sequence[str], seed: int) -> tuple[float, float] | None:
    """The cross-validated accuracy of a simple text classifier, and the share of the commonest label.

    Both are within [0, 1]; None if fewer than two labels have enough rows.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline

    usable = [place for place, text in enumerate(texts) if words(text) and labels[place] != "–"]
    drawn = np.random.default_rng(seed).permutation(usable)[:_CLASSIFIED].tolist()
    counts = Counter(labels[place] for place in drawn)
    kept = sorted(place for place in drawn if counts[labels[place]] >= _FEWEST)
    names = np.array([labels[place] for place in kept])
    if len(set(names.tolist())) < 2:
        return None
    classifier = make_pipeline(
        TfidfVectorizer(tokenizer=terms, token_pattern=None, sublinear_tf=True),
        LogisticRegression(max_iter=500),
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    accuracies = cross_val_score(classifier, [texts[place] for place in kept], names, cv=folds)
    commonest = max(np.unique(names, return_counts=True)[1]) / len(names)
    return float(np.mean(accuracies)), float(commonest)
