"""An evaluation of retrieval beside an earlier one of the same data: differences over the same queries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairsmith.core.errors import DamagedError, FolderError, InputError, redacted
from pairsmith.core.paths import Place, place, reaching, size_of
from pairsmith.data.beir import RetrievalSet
from pairsmith.metrics.ranking import MEASURES
from pairsmith.runs import model_display_name
from pairsmith.steps.evaluate.results import (
    PREDICTIONS,
    RESULTS,
    Record,
    is_whole,
    mean_intervals,
    read_about,
)
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings

BETTER, WORSE, NOISE = "better", "worse", "within noise"

EachQuery = Mapping[str, Sequence[float]]
"""The figures of n queries, ×100, by the names of ``MEASURES``; all in the order of the same queries."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """An evaluation to compare with: its folder, the name of its model, and its figures."""

    folder: Place
    model: str
    figures: EachQuery


def read_earlier(settings: EvaluateRetrievalSettings, data: RetrievalSet, digest: str) -> Earlier | None:
    """The evaluation that ``against`` names, if any; one of other data, or measured otherwise, is refused.

    ``digest`` is that of ``data``.
    """
    if settings.against is None:
        return None
    folder = place(settings.against)
    try:
        with reaching(folder, InputError):
            about = read_about(folder)
    except FolderError as error:
        raise FolderError(f"--against: {error}; give a folder that evaluate retrieval wrote") from error
    results = json.loads((folder / RESULTS).read_bytes())
    _refuse_other(folder, about, results, settings, data, digest)
    if not about.complete:
        raise FolderError(f"--against {folder}: this evaluation is not finished; give its command again")
    if not is_whole(folder, about):
        raise DamagedError(
            f"--against {folder}: {PREDICTIONS} has changed since it was written; evaluate its model again, "
            "with --fresh"
        )
    model = model_display_name(str(results["about"].get("model", "")))
    return Earlier(folder, model, figures_in(folder, list(data.queries)))


def _refuse_other(
    folder: Place,
    about: Record,
    results: Mapping[str, Any],
    settings: EvaluateRetrievalSettings,
    data: RetrievalSet,
    digest: str,
) -> None:
    """Refuse an evaluation of another kind, of other data, or with settings that change the figures."""
    if about.step != "evaluate retrieval":
        raise FolderError(
            f"--against {folder}: a result of {about.step}; give a folder that evaluate retrieval wrote"
        )
    if about.inputs.get("data") != digest:
        counts = [f"{results[name]:,} {name}" for name in ("queries", "documents") if name in results]
        raise FolderError(
            f"--against {folder}: measured on other queries, documents or relevance (there "
            f"{', '.join(counts)}; here {len(data.queries):,} queries, {len(data.documents):,} documents); "
            "give a result on the same data, or evaluate its model on these"
        )
    for name in ("depth", "exclude_own"):
        there, own = about.settings.get(name), getattr(settings, name)
        if there != own:
            raise FolderError(
                f"--against {folder}: measured with {name} {there}, here it is {own}; figures depend on it, "
                "so give the same to both"
            )


def figures_in(folder: Place, queries: Sequence[str]) -> EachQuery:
    """The figures of the queries, in their order, that an evaluation wrote into its folder."""
    file = folder / PREDICTIONS
    rows: dict[str, Mapping[str, Any]] = {}
    with reaching(file, InputError):
        if size_of(file) is not None:
            lines = file.read_bytes().splitlines()
            rows = {row["query"]: row for row in map(json.loads, lines)}
    if not all(name in rows.get(query, ()) for query in queries for name in MEASURES):
        raise FolderError(
            f"{file} has not all figures of each query, as an older version wrote it; evaluate its model "
            "again, with --fresh or into another folder"
        )
    return {name: [float(rows[query][name]) for query in queries] for name in MEASURES}


def compared(earlier: Earlier, figures: EachQuery, *, bootstrap: int, seed: int) -> dict[str, Any]:
    """How much the figures are above those of the earlier evaluation, for ``results.json``.

    For each measure the mean ``difference`` over the queries, ×100, and ``difference_ci``, its 95 % interval:
    each of the ``bootstrap`` resamples draws queries, and both evaluations are averaged over the same ones.
    The ``verdict`` is ``NOISE`` where the interval contains 0.
    """
    differences = {
        name: [figure - there for figure, there in zip(figures[name], earlier.figures[name], strict=True)]
        for name in MEASURES
    }
    limits = mean_intervals(differences, bootstrap=bootstrap, seed=seed)
    comparison: dict[str, Any] = {"folder": redacted(str(earlier.folder)), "model": earlier.model}
    for name, per_query in differences.items():
        spread = limits[f"{name}_ci"]
        assert spread is not None, "the settings want resamples"
        comparison[name] = {
            "difference": round(sum(per_query) / len(per_query), 4),
            "difference_ci": spread,
            "verdict": BETTER if spread[0] > 0 else WORSE if spread[1] < 0 else NOISE,
        }
    return comparison


def paired_table(against: Mapping[str, Any]) -> str:
    """What ``compared`` found as a plain table, a line for each measure."""
    lines = [f"compared with {against['folder']} ({against['model']}), over the same queries"]
    lines.append(f"{'difference':<14}{'×100':>6}  (95 %)")
    for name in MEASURES:
        figures = against[name]
        low, high = figures["difference_ci"]
        lines.append(
            f"{name:<14}{figures['difference']:+6.2f}  [{low:+.2f}, {high:+.2f}]  {figures['verdict']}"
        )
    return "\n".join(lines)
