"""Evaluations of DINO: of models trained on generated rows, and of how well labels separate generated pairs.

encoder, pairs with human scores -> cosines -> Spearman's correlation (D11)
classifier, texts with human labels -> confusions -> accuracy and macro F1 (D14)
generated pairs, cosines by another encoder -> the mean of each label
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.core.errors import InputError, ModelError
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sts import StsSuite
from pairsmith.metrics.bootstrap import interval, resampled_tables, rounded_interval, spearman_draws
from pairsmith.metrics.classification import accuracy, confusion_matrix, macro_f1, precision_recall_f1
from pairsmith.metrics.correlation import spearman
from pairsmith.metrics.similarity import cosine_similarity_rows

Encode = Callable[[Sequence[str]], NDArray[np.floating]]
"""A function from n texts to vectors, ``(n, d)`` of any floating dtype."""
CosinesOfSubsets = Mapping[str, Float64s]
"""The cosines of a suite's pairs by subset, each ``(pairs,)`` float64 from -1 to 1."""
CosinesOfSuites = Mapping[str, CosinesOfSubsets]
"""The cosines of all suites by name."""
LabelledPairs = Sequence[tuple[str, str, str]]
"""First text, second text, label."""


# Pairs that people scored (D11)


@dataclass(frozen=True, slots=True)
class Figure:
    """A correlation ×100, and its 95 % interval: None if it was not requested or is undefined."""

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
        figures: dict[str, Any] = {
            "all": round(self.all.value, 4),
            "all_ci": rounded_interval(self.all.interval),
        }
        if self.mean is not None:
            figures["mean"] = round(self.mean.value, 4)
            figures["mean_ci"] = rounded_interval(self.mean.interval)
            figures["subsets"] = {name: round(value, 4) for name, value in self.subsets.items()}
        return figures | {"pairs": self.pairs}


def sts_scores(
    encode: Encode, suites: Sequence[StsSuite], *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, SuiteScores]:
    """Score ``encode`` on ``suites`` with both aggregations of D11.

    ``encode`` is called once, with every distinct text. ``bootstrap`` is the number of resamples behind each
    interval, 0 for no interval, and ``seed`` is the random seed of the resamples. A suite's interval does not
    depend on which other suites are scored.

    Raises:
        InputError: the scores of a suite or of a subset are all equal.
        ModelError: a vector is not finite, or all pairs are equally similar.
    """
    return scores_of_cosines(suites, sts_cosines(encode, suites), bootstrap=bootstrap, seed=seed)


def sts_cosines(encode: Encode, suites: Sequence[StsSuite]) -> dict[str, dict[str, Float64s]]:
    """The cosine of each pair's two vectors by suite and subset, each ``(pairs,)`` float64 (D11).

    ``encode`` is called once, with every distinct text. Raises a ``ModelError`` where a vector is not finite.
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

    def of_pairs(pairs: Sequence[GradedPair]) -> Float64s:
        first = [rows[pair.sentence1] for pair in pairs]
        second = [rows[pair.sentence2] for pair in pairs]
        return cosine_similarity_rows(vectors[first], vectors[second])

    return {suite.name: {name: of_pairs(pairs) for name, pairs in suite.subsets.items()} for suite in suites}


def scores_of_cosines(
    suites: Sequence[StsSuite], cosines: CosinesOfSuites, *, bootstrap: int, seed: int = 0
) -> dict[str, SuiteScores]:
    """What ``sts_scores`` returns, computed from the cosines that ``sts_cosines`` returns (D11)."""
    scores = {}
    for suite in suites:
        of_subsets, gold = cosines[suite.name], _gold(suite)
        subsets = {name: _correlation(of_subsets[name], gold[name], f"{suite.name} {name}") for name in gold}
        correlation = _correlation(_joined(of_subsets), _joined(gold), suite.name)
        draws, mean_draws_of_subsets = _draws(suite, of_subsets, bootstrap, seed)
        mean = None
        if mean_draws_of_subsets is not None:
            mean = Figure(float(np.mean(list(subsets.values()))), _interval(mean_draws_of_subsets))
        overall = Figure(correlation, _interval(draws))
        scores[suite.name] = SuiteScores(sum(map(len, gold.values())), overall, mean, subsets)
    return scores


@dataclass(frozen=True, slots=True)
class SuiteDifferences:
    """The scores of one encoder on a suite minus the scores of another encoder (D11), ×100.

    Attributes:
        all: the difference of the two correlations over all pairs.
        mean: the difference of the two means of the subsets' correlations; None if there is one subset.
    """

    all: Figure
    mean: Figure | None


def score_differences(
    suites: Sequence[StsSuite],
    cosines: CosinesOfSuites,
    others: CosinesOfSuites,
    *,
    bootstrap: int,
    seed: int = 0,
) -> dict[str, SuiteDifferences]:
    """For each suite, the scores of ``cosines`` minus the scores of ``others``, with paired intervals (D11).

    Each of the ``bootstrap`` resamples, 1 or more, draws pairs with replacement. Both correlations are
    computed over the same resample, so that easy and hard pairs weigh on both encoders alike. ``seed`` is the
    random seed of the resamples.
    """
    own, other = (scores_of_cosines(suites, encoder, bootstrap=0, seed=seed) for encoder in (cosines, others))
    differences = {}
    for suite in suites:
        a, b = own[suite.name], other[suite.name]
        all_a, mean_a = _draws(suite, cosines[suite.name], bootstrap, seed)
        all_b, mean_b = _draws(suite, others[suite.name], bootstrap, seed)
        mean = None
        if a.mean and b.mean and mean_a is not None and mean_b is not None:
            mean = Figure(a.mean.value - b.mean.value, _interval(mean_a - mean_b))
        overall = Figure(a.all.value - b.all.value, _interval(all_a - all_b))
        differences[suite.name] = SuiteDifferences(overall, mean)
    return differences


def _draws(
    suite: StsSuite, cosines: CosinesOfSubsets, bootstrap: int, seed: int
) -> tuple[Float64s, Float64s | None]:
    """Bootstrap correlations over all pairs, and their mean over the subsets; each ``(bootstrap,)`` float64.

    Which pairs a resample draws depends on the suite and the seed alone, so that two encoders are compared on
    the same resamples.
    """
    gold = _gold(suite)
    rng = np.random.default_rng([seed, *suite.name.encode()])
    overall = spearman_draws(_joined(cosines), _joined(gold), draws=bootstrap, rng=rng)
    if len(gold) == 1:
        return overall, None
    by_subset = [spearman_draws(cosines[name], gold[name], draws=bootstrap, rng=rng) for name in gold]
    return overall, np.mean(by_subset, axis=0)


def _gold(suite: StsSuite) -> dict[str, Float64s]:
    """Human scores by subset."""
    return {name: np.array([pair.score for pair in pairs]) for name, pairs in suite.subsets.items()}


def _joined(by_subset: CosinesOfSubsets) -> Float64s:
    return np.concatenate(list(by_subset.values()))


def _correlation(cosines: Float64s, gold: Float64s, where: str) -> float:
    """Spearman's correlation ×100; if undefined, an error on the data or on the model."""
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError(f"{where}: needs at least two pairs with different scores to rank")
    correlation = spearman(cosines, gold)
    if np.isnan(correlation):
        raise ModelError(f"{where}: the model gives every pair the same similarity, so there is no ranking")
    return 100.0 * correlation


def distinct_texts(suites: Sequence[StsSuite]) -> list[str]:
    """The texts of all pairs, sorted."""
    return sorted(
        {text for suite in suites for pair in suite.pairs for text in (pair.sentence1, pair.sentence2)}
    )


def _interval(draws: Float64s) -> tuple[float, float] | None:
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
    """The figures of ``results.json`` that follow from the labels and predictions of n texts alone (D14).

    Accuracy, macro F1, and each label's precision, recall and F1 are ×100. Macro F1 is the mean over the
    labels that occur among the true or the predicted labels.

    Args:
        labels: the k distinct labels that the classifier can predict.
        gold: the true labels of the n texts, n >= 1, all of them in ``labels``.
        predicted: for each text, the index in ``labels`` of its predicted label.
        bootstrap: number of resamples behind each interval, 0 for none; each draws n texts with replacement.
        seed: random seed of the resamples.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    table = confusion_matrix([numbers[label] for label in gold], predicted, len(labels))
    figures: dict[str, Any] = {}
    drawn = resampled_tables(table, (accuracy, macro_f1), draws=bootstrap, rng=np.random.default_rng(seed))
    for name, measure, values in zip(("accuracy", "macro_f1"), (accuracy, macro_f1), drawn, strict=True):
        figures[name] = round(100.0 * float(measure(table)), 4)
        figures[f"{name}_ci"] = rounded_interval(interval(100.0 * values))
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


def separation(pairs: LabelledPairs, cosines: Float64s, *, draws: int, seed: int) -> dict[str, Any]:
    """The mean cosine of each label, and the difference between the highest and the lowest label.

    ``cosines``, ``(n,)`` float64 from -1 to 1, are the cosines of the n pairs. ``draws`` is the number of
    bootstrap resamples behind each interval; first texts are drawn, each with all its pairs. A resample that
    has no pair of a label does not count for that label's interval.
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
                "ci": rounded_interval(interval(drawn[i])),
                "count": int(counts[i].sum()),
            }
            for i, label in enumerate(labels)
        }
    }
    if len(labels) > 1 and all(isinstance(_order(label)[1], float) for label in labels):
        figures["gap"] = round(float(means[0] - means[-1]), 4)
        figures["gap_ci"] = rounded_interval(interval(drawn[0] - drawn[-1]))
    return figures


def _order(label: str) -> tuple[bool, float | str]:
    """Sort key: numbers from the highest down, then names."""
    try:
        return False, -float(label)
    except ValueError:
        return True, label
