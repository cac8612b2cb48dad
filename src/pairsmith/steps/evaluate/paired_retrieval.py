"""Comparison of an evaluation of retrieval with an earlier one, over the same queries."""

from collections.abc import Mapping, Sequence
from typing import Any

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import Place
from pairsmith.data.beir import RetrievalSet
from pairsmith.metrics.bootstrap import mean_intervals
from pairsmith.metrics.ranking import MEASURES
from pairsmith.steps.evaluate.paired import EarlierEvaluation, predictions_in, with_verdict
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings

FiguresOfQueries = Mapping[str, Sequence[float]]
"""For each of ``MEASURES``, the figures of n queries, ×100, in the order of the queries."""


def earlier_retrieval(
    settings: EvaluateRetrievalSettings, data: RetrievalSet, digest: str
) -> EarlierEvaluation | None:
    """The evaluation that ``against`` names, if any; ``digest`` is the hash of ``data``.

    Raises:
        FolderError: it was evaluated on other data, or with another ``depth`` or ``exclude_own``.
    """
    if settings.against is None:
        return None
    earlier = EarlierEvaluation.open(settings.against, "evaluate retrieval")
    if earlier.record.inputs.get("data") != digest:
        raise FolderError(
            f"{earlier.option}: measured on other queries, documents or relevance (there "
            f"{earlier.results['queries']:,} queries, {earlier.results['documents']:,} documents; "
            f"here {len(data.queries):,} queries, {len(data.documents):,} documents); give a result on "
            "the same data, or first evaluate its model on these data"
        )
    for name in ("depth", "exclude_own"):
        earlier_value, value = earlier.record.settings.get(name), getattr(settings, name)
        if earlier_value != value:
            raise FolderError(
                f"{earlier.option}: measured with {name} {earlier_value}, here it is {value}; the figures "
                "depend on it, so give the same value to both evaluations"
            )
    return earlier


def figures_in(folder: Place, queries: Sequence[str]) -> FiguresOfQueries:
    """The figures of ``queries``, in this order, from the predictions in the folder of an evaluation."""
    rows = {row["query"]: row for row in predictions_in(folder)}
    return {name: [float(rows[query][name]) for query in queries] for name in MEASURES}


def retrieval_differences(
    figures: FiguresOfQueries, earlier: FiguresOfQueries, *, bootstrap: int, seed: int
) -> dict[str, Any]:
    """The figures minus those of an earlier evaluation, for ``results.json``.

    For each measure: the mean ``difference`` over the queries, ×100; its 95 % interval (``difference_ci``);
    and a ``verdict``, see ``with_verdict``. Each of the ``bootstrap`` resamples draws queries with
    replacement, and both evaluations are averaged over the same resample.
    """
    differences = {
        name: [figure - before for figure, before in zip(figures[name], earlier[name], strict=True)]
        for name in MEASURES
    }
    limits = mean_intervals(differences, bootstrap=bootstrap, seed=seed)
    comparison: dict[str, Any] = {}
    for name, per_query in differences.items():
        bounds = limits[f"{name}_ci"]
        assert bounds is not None, "the settings guarantee one resample or more"
        comparison[name] = with_verdict(sum(per_query) / len(per_query), (bounds[0], bounds[1]))
    return comparison
