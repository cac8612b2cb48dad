"""Comparison of an evaluation of retrieval with an earlier one, over the same queries."""

from collections.abc import Mapping, Sequence

from pairsmith.core.errors import FolderError
from pairsmith.core.paths import Place
from pairsmith.data.beir import RetrievalSet
from pairsmith.metrics.ranking import MEASURES
from pairsmith.steps.evaluate.paired import EarlierEvaluation, Predictions
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings

FiguresOfQueries = Mapping[str, Sequence[float]]
"""For each of ``MEASURES``, the figures of n queries, ×100, in the order of the queries."""


def earlier_retrieval(
    settings: EvaluateRetrievalSettings, data: RetrievalSet, digest: str
) -> tuple[EarlierEvaluation, FiguresOfQueries] | None:
    """The evaluation that ``against`` names, with its figures; None if unset.

    ``digest`` is the hash of ``data``.

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
    earlier.check_settings(settings, ("depth", "exclude_own"))
    return earlier, figures_in(earlier.folder, list(data.queries))


def figures_in(folder: Place, queries: Sequence[str]) -> FiguresOfQueries:
    """The figures of ``queries``, in this order, from the predictions in the folder of an evaluation."""
    rows = {row["query"]: [float(row[name]) for name in MEASURES] for row in Predictions(folder)}
    return {name: [rows[query][column] for query in queries] for column, name in enumerate(MEASURES)}
