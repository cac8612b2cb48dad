"""What evaluations share of the figures in ``results.json``, and of the tables that show them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s
from pairsmith.metrics.auroc import auroc, auroc_draws
from pairsmith.metrics.bootstrap import (
    interval,
    mean_and_error,
    mean_draws,
    mean_intervals,
    rounded_interval,
)
from pairsmith.metrics.classification import F1Counts, f1_draws, f1_of_counts
from pairsmith.models.trained_on import fingerprint_of


def means_and_intervals(
    figures: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int
) -> dict[str, Any]:
    """The means of figures of the same n rows, n >= 1, for ``results.json``.

    The mean is under the name of the figure, and its 95 % interval under ``{name}_ci``; without resamples the
    interval is None. For the resamples see ``mean_draws``.
    """
    means = {name: round(math.fsum(values) / len(values), 4) for name, values in figures.items()}
    return {**means, **mean_intervals(figures, bootstrap=bootstrap, seed=seed)}


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """A figure of an evaluation, ×100, with its values on bootstrap resamples of the rows.

    ``draws`` is ``(draws,)`` float64, with NaN for a resample in which the figure is undefined.
    """

    value: float
    draws: Float64s


def resampled_means(
    figures: Mapping[str, Sequence[float]], *, bootstrap: int, seed: int
) -> dict[str, Resampled]:
    """The means of figures of the same n rows, n >= 1, by name; see ``mean_draws`` for the resamples."""
    draws = mean_draws(figures, bootstrap=bootstrap, seed=seed)
    return {name: Resampled(math.fsum(values) / len(values), draws[name]) for name, values in figures.items()}


def resampled_auroc(
    scores: Sequence[NDArray[np.floating]], positive: NDArray[np.bool_], *, bootstrap: int, seed: int
) -> Resampled:
    """The mean AUROC of one or more ``scores`` of the same n rows, each ``(n,)``; see ``auroc``."""
    areas = [auroc(values, positive) for values in scores]
    draws = [
        auroc_draws(values, positive, draws=bootstrap, rng=np.random.default_rng(seed)) for values in scores
    ]
    return Resampled(100.0 * float(np.mean(areas)), 100.0 * np.mean(draws, axis=0))


def resampled_f1(counts: Sequence[F1Counts], *, bootstrap: int, seed: int) -> Resampled:
    """The mean F1 over one or more trainings, from the counts of the same n rows, each ``(n, 3)``.

    See ``f1_draws`` for the counts. A resample draws the same rows for all trainings.
    """
    by_row = np.stack(counts, axis=1)  # (n, trainings, 3)
    draws = f1_draws(by_row, draws=bootstrap, rng=np.random.default_rng(seed))
    return Resampled(100.0 * float(f1_of_counts(by_row.sum(axis=0)).mean()), 100.0 * draws.mean(axis=1))


def over_splits(counts: Mapping[int, F1Counts], *, bootstrap: int, seed: int) -> dict[str, Any]:
    """The F1 ×100 of few-shot training on several splits, for ``results.json``.

    The result is that of ``over_repetitions``, with the ``splits`` and ``splits_ci`` by the splits' numbers.
    Each of the ``bootstrap`` resamples draws as many test rows as there are, with replacement, the same rows
    for all splits; the mean over the splits is taken in each resample. So the intervals say how much the
    figures depend on the choice of test rows, and the error how much they depend on the training rows.

    Args:
        counts: the counts of the n test rows after training on each split, ``(n, 3)``, by the number of the
            split: see ``f1_draws``.
        bootstrap: the number of resamples; 0: the intervals are None.
        seed: random seed of the resamples.
    """
    by_row = np.stack(list(counts.values()), axis=1)  # (n, splits, 3)
    f1 = 100.0 * f1_of_counts(by_row.sum(axis=0))
    draws = 100.0 * f1_draws(by_row, draws=bootstrap, rng=np.random.default_rng(seed))
    figures = over_repetitions("f1", "splits", f1.tolist(), draws)
    for name in ("splits", "splits_ci"):
        figures[name] = dict(zip(map(str, counts), figures[name], strict=True))
    return figures


def over_repetitions(name: str, repetitions: str, values: Sequence[float], draws: Float64s) -> dict[str, Any]:
    """A figure of p repetitions of an evaluation, such as prompts, for ``results.json``.

    - ``{name}``: the mean over the repetitions, with its 95 % interval over the test rows (``{name}_ci``) and
      its standard ``error`` over the repetitions, which is None with a single one;
    - ``{repetitions}``: the value of each; ``{repetitions}_ci``: its 95 % interval over the test rows.

    ``draws``, ``(draws, p)``, are the ``values`` on bootstrap resamples of the test rows; without any, the
    intervals are None.
    """
    mean, error = mean_and_error(values)
    return {
        name: mean,
        f"{name}_ci": rounded_interval(interval(draws.mean(axis=1))),
        "error": error,
        repetitions: [round(value, 4) for value in values],
        f"{repetitions}_ci": [rounded_interval(interval(column)) for column in draws.T],
    }


def mean_line(label: str, figures: Mapping[str, Any], name: str, values: Iterable[float]) -> str:
    """A line of a table: the mean ``name`` of ``figures`` with its uncertainty, and the ``values``."""
    return f"{label:<12}{with_error(figures, name):<36}{' '.join(f'{value:.1f}' for value in values)}"


def with_error(figures: Mapping[str, Any], name: str) -> str:
    """A mean, its standard error over repetitions, and its 95 % interval over the test rows, for a table."""
    error = figures["error"]
    mean = f"{figures[name]:.2f}" if error is None else f"{figures[name]:.2f} ± {error:.2f}"
    return mean + _brackets(figures, name)


def uncertainty_line(figures: Mapping[str, Any], name: str, repeats: str, rows: str) -> list[str]:
    """A line below a table that says what "±" and brackets mean; no line if the table has neither.

    ``figures`` are those of one line of the table. ``repeats`` are what the mean is taken over, such as
    ``splits``; ``rows`` names the test rows.
    """
    meanings = [f"±: standard error over the {repeats}"] if figures["error"] is not None else []
    if figures.get(f"{name}_ci") is not None:
        meanings.append(f"brackets: 95 % interval over the {rows}")
    return ["; ".join(meanings)] if meanings else []


def count_trained_on(training: Iterable[Sequence[str]], test: Iterable[Sequence[str]]) -> int:
    """The number of test rows that are also training rows; both are given by the texts of each row.

    Case, spaces, punctuation and the order of the texts do not matter.
    """
    fingerprints = {fingerprint_of(*texts) for texts in training}
    return sum(fingerprint_of(*texts) in fingerprints for texts in test)


def trained_on_line(results: Mapping[str, Any], rows: str) -> list[str]:
    """A line of a table on test rows that are also training rows; no line if there are none.

    ``rows`` names the rows, such as ``pairs``.
    """
    if not (count := results.get("trained_on")):
        return []
    return [
        f"{count:,} of the {results['count']:,} {rows} are also training {rows} of a split: F1 is better "
        f"than it would be on other {rows}"
    ]


def with_interval(figures: Mapping[str, Any], name: str) -> str:
    """A figure of ``results.json`` and its 95 % interval, for a table."""
    return f"{figures[name]:6.2f}{_brackets(figures, name)}"


def _brackets(figures: Mapping[str, Any], name: str) -> str:
    """The 95 % interval of a figure; empty without resamples, and in results of an earlier version."""
    limits = figures.get(f"{name}_ci")
    return "" if limits is None else f"  [{limits[0]:.2f}, {limits[1]:.2f}]"
