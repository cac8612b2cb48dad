"""Comparison of an evaluation of similarity with an earlier one, over the same pairs (D11)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pairsmith.core.errors import FolderError, SettingsError
from pairsmith.core.paths import Place
from pairsmith.data.sts import StsSuite
from pairsmith.methods.dino.evaluation import CosinesOfSuites, score_differences
from pairsmith.steps.evaluate.paired import EarlierEvaluation, Predictions, paired_table, with_verdict
from pairsmith.steps.evaluate.results import AGAINST
from pairsmith.steps.evaluate.settings import EvaluateStsSettings

_WIDEST_INTERVAL_OF_CORRELATIONS = (-200.0, 200.0)
"""All possible differences of two correlations ×100: the interval if no resample has a correlation."""


def earlier_sts(
    settings: EvaluateStsSettings, suites: Sequence[StsSuite], digest: str
) -> tuple[EarlierEvaluation, CosinesOfSuites] | None:
    """The evaluation that ``against`` names, with its cosines; None if unset.

    ``digest`` is the hash of the pairs of ``suites``.

    Raises:
        FolderError: it was evaluated on other pairs.
        SettingsError: a suite has the name under which ``results.json`` has the comparison.
    """
    if settings.against is None:
        return None
    if any(suite.name == AGAINST for suite in suites):
        raise SettingsError(f"--against does not support a test set that is named {AGAINST}; rename its file")
    earlier = EarlierEvaluation.open(settings.against, "evaluate sts")
    if earlier.record.inputs.get("data") != digest:
        earlier_counts = {
            name: figures["pairs"]
            for name, figures in earlier.results.items()
            if isinstance(figures, Mapping) and isinstance(figures.get("pairs"), int)
        }
        counts = {suite.name: len(suite.pairs) for suite in suites}
        raise FolderError(
            f"{earlier.option}: measured on other pairs (there {_listed(earlier_counts)}; here "
            f"{_listed(counts)}); give a result on the same file or test sets, or first evaluate its model "
            "on these pairs"
        )
    return earlier, cosines_in(earlier.folder, suites)


def _listed(pairs: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} pairs of {name}" for name, count in pairs.items())


def predictions(suites: Sequence[StsSuite], cosines: CosinesOfSuites) -> Iterator[dict[str, Any]]:
    """The rows of ``predictions.jsonl``: each pair with its human score and its cosine."""
    for suite in suites:
        for name, pairs in suite.subsets.items():
            for pair, cosine in zip(pairs, cosines[suite.name][name].tolist(), strict=True):
                yield {
                    "suite": suite.name,
                    "subset": name,
                    "sentence1": pair.sentence1,
                    "sentence2": pair.sentence2,
                    "score": pair.score,
                    "cosine": cosine,
                }


def cosines_in(folder: Place, suites: Sequence[StsSuite]) -> CosinesOfSuites:
    """The cosines of the pairs of ``suites``, from the predictions in the folder of an evaluation."""
    cosines = (row["cosine"] for row in Predictions(folder))
    return {
        suite.name: {
            name: np.array([next(cosines) for _ in pairs], np.float64)
            for name, pairs in suite.subsets.items()
        }
        for suite in suites
    }


def sts_differences(
    suites: Sequence[StsSuite],
    cosines: CosinesOfSuites,
    earlier: CosinesOfSuites,
    *,
    bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """The figures minus those of an earlier evaluation, for ``results.json``, by suite.

    A suite has the differences of ``score_differences`` under ``all`` and ``mean``, as in ``SuiteScores``,
    each with its interval and verdict, see ``with_verdict``.
    """
    differences = score_differences(suites, cosines, earlier, bootstrap=bootstrap, seed=seed)
    return {
        suite: {
            name: with_verdict(figure.value, figure.interval or _WIDEST_INTERVAL_OF_CORRELATIONS)
            for name, figure in (("all", of_suite.all), ("mean", of_suite.mean))
            if figure is not None
        }
        for suite, of_suite in differences.items()
    }


def sts_comparison(against: Mapping[str, Any]) -> str:
    """The result of ``sts_differences`` as a text table with a line for each figure of each suite."""
    figures = {
        suite if name == "all" else f"{suite}, mean of subsets": difference
        for suite, by_figure in against["suites"].items()
        for name, difference in by_figure.items()
    }
    return paired_table(against, "pairs", figures)
