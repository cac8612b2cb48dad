"""Comparison of an evaluation of similarity with an earlier one, over the same pairs (D11)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pairsmith.core.errors import FolderError, redacted
from pairsmith.core.paths import Place
from pairsmith.data.sts import StsSuite
from pairsmith.methods.dino.evaluation import CosinesOfSuites, Figure, SuiteDifferences, score_differences
from pairsmith.steps.evaluate.paired import (
    EarlierEvaluation,
    earlier_folder,
    paired_table,
    predictions_in,
    with_verdict,
)
from pairsmith.steps.evaluate.results import EvaluationRecord
from pairsmith.steps.evaluate.settings import EvaluateStsSettings

WHOLE_RANGE = (-200.0, 200.0)
"""All possible differences of two correlations ×100: the interval if no resample has a correlation."""


def earlier_sts(
    settings: EvaluateStsSettings, suites: Sequence[StsSuite], digest: str
) -> EarlierEvaluation[CosinesOfSuites] | None:
    """The evaluation that ``against`` names, if any; ``digest`` is the hash of the pairs of ``suites``.

    Raises:
        FolderError: it was evaluated on other pairs.
    """
    if settings.against is None:
        return None

    def refuse_other(option: str, about: EvaluationRecord, results: Mapping[str, Any]) -> None:
        if about.inputs.get("data") == digest:
            return
        earlier = {
            name: figures["pairs"]
            for name, figures in results.items()
            if isinstance(figures, Mapping) and isinstance(figures.get("pairs"), int)
        }
        current = {suite.name: len(suite.pairs) for suite in suites}
        raise FolderError(
            f"{option}: measured on other pairs (there {_counts(earlier)}; here {_counts(current)}); give a "
            "result on the same file or test sets, or first evaluate its model on these pairs"
        )

    folder, model = earlier_folder(settings.against, "evaluate sts", refuse_other)
    return EarlierEvaluation(folder, model, cosines_in(folder, suites))


def _counts(pairs: Mapping[str, int]) -> str:
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
    cosines = (row["cosine"] for row in predictions_in(folder))
    return {
        suite.name: {
            name: np.array([next(cosines) for _ in pairs], np.float64)
            for name, pairs in suite.subsets.items()
        }
        for suite in suites
    }


def sts_differences(
    earlier: EarlierEvaluation[CosinesOfSuites],
    suites: Sequence[StsSuite],
    cosines: CosinesOfSuites,
    *,
    bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """The figures minus those of the earlier evaluation, for ``results.json``.

    ``suites`` has the differences of each suite, see ``score_differences``: under ``all`` and ``mean``, as in
    ``SuiteScores``, each with its interval and verdict, see ``with_verdict``.
    """
    differences = score_differences(suites, cosines, earlier.figures, bootstrap=bootstrap, seed=seed)
    return {
        "folder": redacted(str(earlier.folder)),
        "model": earlier.model,
        "suites": {name: _with_verdicts(difference) for name, difference in differences.items()},
    }


def _with_verdicts(differences: SuiteDifferences) -> dict[str, Any]:
    figures: dict[str, Figure | None] = {"all": differences.all, "mean": differences.mean}
    return {
        name: with_verdict(figure.value, figure.interval or WHOLE_RANGE)
        for name, figure in figures.items()
        if figure is not None
    }


def sts_comparison(against: Mapping[str, Any]) -> str:
    """The result of ``sts_differences`` as a text table with a line for each figure of each suite."""
    figures = {
        suite if name == "all" else f"{suite}, mean of subsets": difference
        for suite, by_figure in against["suites"].items()
        for name, difference in by_figure.items()
    }
    return paired_table(against["folder"], against["model"], "pairs", figures)
