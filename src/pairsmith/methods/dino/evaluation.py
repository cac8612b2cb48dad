"""How DINO's pairs and texts are judged: what is learned from them, and whether their labels differ.

encoder, pairs with people's scores -> cosines -> Spearman's correlation (D11)
classifier, texts with people's labels -> confusions -> accuracy and macro F1 (D14)
generated pairs, cosines by another encoder -> the mean of each label
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError, ModelError
from pairsmith.data.sts import StsSuite
from pairsmith.metrics.bootstrap import interval, mean_draws, rounded, spearman_draws
from pairsmith.metrics.classification import accuracy, confusion, macro_f1, precision_recall_f1, resampled
from pairsmith.metrics.correlation import spearman
from pairsmith.metrics.similarity import cosine_similarity_rows

Encode = Callable[[Sequence[str]], NDArray[np.floating]]
"""A function from n texts to vectors, ``(n, d)`` of any floating dtype."""
Floats = NDArray[np.float64]
LabelledPairs = Sequence[tuple[str, str, str]]
"""First text, second text, label."""


# Pairs that people scored (D11)


@dataclass(frozen=True, slots=True)
class Figure:
    """A correlation ×100 and its 95 % interval, or None if none was asked for or it is undefined."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class SuiteScores:
    """The scores of an encoder on a suite (D11).

    Attributes:
        pairs: number of pairs.
        all: one correlation over the pairs of all subsets together.
        mean: the average of one correlation per subset; None where there is one subset.
        subsets: each subset's own correlation ×100.
    """

    pairs: int
    all: Figure
    mean: Figure | None
    subsets: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The suite's part of ``results.json``, figures rounded to four places."""
        figures: dict[str, Any] = {"all": round(self.all.value, 4), "all_ci": rounded(self.all.interval)}
        if self.mean is not None:
            figures["mean"] = round(self.mean.value, 4)
            figures["mean_ci"] = rounded(self.mean.interval)
            figures["subsets"] = {name: round(value, 4) for name, value in self.subsets.items()}
        return figures | {"pairs": self.pairs}


def sts_scores(
    encode: Encode, suites: Sequence[StsSuite], *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, SuiteScores]:
    """Score ``encode`` on ``suites`` with both aggregations of D11.

    ``encode`` is called once, with every distinct text; ``bootstrap`` is the number of resamples behind each
    interval, 0 for no interval, and ``seed`` theirs. A suite's interval does not depend on which other suites
    are scored.

    Raises:
        InputError: the scores of a suite or of a subset are all equal.
        ModelError: a vector is not finite, or all pairs are equally similar.
    """
    texts = distinct_texts(suites)
    vectors = np.asarray(encode(texts))
    faulty = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if faulty.size:
        raise ModelError(
            f"the model's vectors of {faulty.size} of {len(texts)} sentences are not finite, "
            f"the first that of {texts[faulty[0]][:80]!r}; try dtype float32, or another model"
        )
    rows = {text: row for row, text in enumerate(texts)}
    return {suite.name: _score_suite(suite, vectors, rows, bootstrap, seed) for suite in suites}


def _score_suite(
    suite: StsSuite, vectors: NDArray[np.floating], rows: Mapping[str, int], bootstrap: int, seed: int
) -> SuiteScores:
    cosines, gold = dict[str, Floats](), dict[str, Floats]()
    for name, pairs in suite.subsets.items():
        first = vectors[[rows[pair.sentence1] for pair in pairs]]
        cosines[name] = cosine_similarity_rows(first, vectors[[rows[pair.sentence2] for pair in pairs]])
        gold[name] = np.array([pair.score for pair in pairs])
    subsets = {name: _correlation(cosines[name], gold[name], f"{suite.name} {name}") for name in cosines}
    all_cosines, all_gold = np.concatenate(list(cosines.values())), np.concatenate(list(gold.values()))
    correlation = _correlation(all_cosines, all_gold, suite.name)
    rng = np.random.default_rng([seed, *suite.name.encode()])
    draws = spearman_draws(all_cosines, all_gold, draws=bootstrap, rng=rng)
    mean = None
    if len(subsets) > 1:
        parts = [spearman_draws(cosines[name], gold[name], draws=bootstrap, rng=rng) for name in subsets]
        mean = Figure(float(np.mean(list(subsets.values()))), _interval(mean_draws(parts)))
    return SuiteScores(len(all_gold), Figure(correlation, _interval(draws)), mean, subsets)


def _correlation(cosines: Floats, gold: Floats, where: str) -> float:
    """Spearman's correlation ×100; if undefined, an error on the data or on the model."""
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError(f"{where}: needs at least two pairs with different scores to rank")
    correlation = spearman(cosines, gold)
    if np.isnan(correlation):
        raise ModelError(f"{where}: the model gives every pair the same similarity, so it orders nothing")
    return 100.0 * correlation


def distinct_texts(suites: Sequence[StsSuite]) -> list[str]:
    """The texts of all pairs, sorted."""
    return sorted(
        {text for suite in suites for pair in suite.pairs for text in (pair.sentence1, pair.sentence2)}
    )


def _interval(draws: Floats) -> tuple[float, float] | None:
    """The 95 % interval ×100 of bootstrap correlations of shape (draws,)."""
    limits = interval(draws)
    return None if limits is None else (100.0 * limits[0], 100.0 * limits[1])


# Texts that people labelled (D14)


def classification_figures(
    labels: Sequence[str],
    gold: Sequence[str],
    predicted: Sequence[int],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """The figures of ``results.json`` that depend on n labels and predictions alone (D14).

    Accuracy, macro F1, and each label's precision, recall and F1 are ×100. Macro F1 is the mean over the
    labels that texts have or were given.

    Args:
        labels: all that could be predicted, k different ones.
        gold: the labels of the n texts, at least 1, all of them in ``labels``.
        predicted: for each text the number of the predicted label, from 0 to k - 1.
        bootstrap: number of resamples behind each interval, 0 for none; each draws n texts with replacement.
        seed: of the resamples.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    table = confusion([numbers[label] for label in gold], predicted, len(labels))
    figures: dict[str, Any] = {}
    drawn = resampled(table, (accuracy, macro_f1), draws=bootstrap, rng=np.random.default_rng(seed))
    for name, measure, values in zip(("accuracy", "macro_f1"), (accuracy, macro_f1), drawn, strict=True):
        figures[name] = round(100.0 * float(measure(table)), 4)
        figures[f"{name}_ci"] = rounded(interval(100.0 * values))
    precision, recall, f1 = precision_recall_f1(table)
    counts = Counter(gold)
    figures["labels"] = {
        label: {
            "precision": _hundredfold(precision[at]),
            "recall": _hundredfold(recall[at]),
            "f1": _hundredfold(f1[at]),
            "count": counts[label],
            "predicted": int(table[:, at].sum()),
        }
        for at, label in enumerate(labels)
    }
    figures["confusion"] = {
        label: dict(zip(labels, table[at].tolist(), strict=True)) for at, label in enumerate(labels)
    }
    return figures | {"largest": round(100.0 * max(counts.values()) / len(gold), 4), "count": len(gold)}


def _hundredfold(share: float) -> float | None:
    return None if np.isnan(share) else round(100.0 * float(share), 4)


# Generated pairs


def separation(pairs: LabelledPairs, cosines: Floats, *, draws: int, seed: int) -> dict[str, Any]:
    """The mean cosine of each label, and the difference between the highest and the lowest label.

    ``cosines``, ``(n,)`` float64 from -1 to 1, are those of the n pairs; ``draws`` is the number of bootstrap
    resamples of the first texts behind each interval. Resamples without pairs of a label are left out.
    """
    firsts = {text: place for place, text in enumerate(dict.fromkeys(first for first, _, _ in pairs))}
    labels = sorted({label for _, _, label in pairs}, key=_order)
    sums, counts = np.zeros((2, len(labels), len(firsts)))
    for (first, _, label), cosine in zip(pairs, cosines, strict=True):
        sums[labels.index(label), firsts[first]] += cosine
        counts[labels.index(label), firsts[first]] += 1
    rng = np.random.default_rng(seed)
    drawn = np.full((len(labels), draws), np.nan)
    for draw in range(draws):
        times = np.bincount(rng.integers(0, len(firsts), len(firsts)), minlength=len(firsts))
        total = counts @ times
        np.divide(sums @ times, total, out=drawn[:, draw], where=total > 0)
    means = sums.sum(axis=1) / counts.sum(axis=1)
    figures: dict[str, Any] = {
        "labels": {
            label: {
                "mean": round(float(means[i]), 4),
                "ci": rounded(interval(drawn[i])),
                "count": int(counts[i].sum()),
            }
            for i, label in enumerate(labels)
        }
    }
    if len(labels) > 1 and all(isinstance(_order(label)[1], float) for label in labels):
        figures["gap"] = round(float(means[0] - means[-1]), 4)
        figures["gap_ci"] = rounded(interval(drawn[0] - drawn[-1]))
    return figures


def _order(label: str) -> tuple[bool, float | str]:
    """Sort key: numbers from the highest down, then names."""
    try:
        return False, -float(label)
    except ValueError:
        return True, label
