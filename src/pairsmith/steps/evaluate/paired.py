"""Comparison of an evaluation with an earlier one on the same data: differences, intervals and verdicts."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pairsmith.core.errors import DamagedError, FolderError, InputError
from pairsmith.core.paths import Place, place, reaching
from pairsmith.runs import model_display_name
from pairsmith.steps.evaluate.results import PREDICTIONS, RESULTS, EvaluationRecord, is_intact, read_about

BETTER, WORSE, NOISE = "better", "worse", "within noise"
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class EarlierEvaluation(Generic[F]):
    """An earlier evaluation to compare with: its folder, the display name of its model, and its figures."""

    folder: Place
    model: str
    figures: F


def earlier_folder(
    against: str, step: str, refuse_other: Callable[[str, EvaluationRecord, Mapping[str, Any]], None]
) -> tuple[Place, str]:
    """The folder that ``--against`` names, and the display name of the model that was evaluated there.

    Args:
        against: the value of ``--against``.
        step: the step that has to have written the folder.
        refuse_other: raises an error for an evaluation on other data, or with other settings that matter. It
            is called with the beginning of its message, the record, and the content of ``results.json``.

    Raises:
        FolderError: another step wrote the folder, or the evaluation is unfinished.
        DamagedError: the predictions have changed since they were written.
    """
    folder = place(against)
    remedy = f"give a folder that {step} wrote"
    try:
        with reaching(folder, InputError):
            about = read_about(folder)
    except FolderError as error:
        raise FolderError(f"--against: {error}; {remedy}") from error
    results = json.loads((folder / RESULTS).read_bytes())
    option = f"--against {folder}"
    if about.step != step:
        raise FolderError(f"{option}: has results of {about.step}; {remedy}")
    refuse_other(option, about, results)
    if not about.complete:
        raise FolderError(f"{option}: this evaluation is not finished; run its command again to finish it")
    if not is_intact(folder, about):
        raise DamagedError(
            f"{option}: {PREDICTIONS} has changed since it was written; evaluate its model again, with "
            "--fresh"
        )
    return folder, model_display_name(str(results["about"].get("model", "")))


def predictions_in(folder: Place) -> list[dict[str, Any]]:
    """The rows of ``predictions.jsonl`` in the folder of an evaluation."""
    file = folder / PREDICTIONS
    with reaching(file, InputError):
        return [json.loads(line) for line in file.read_bytes().splitlines()]


def with_verdict(difference: float, limits: tuple[float, float]) -> dict[str, Any]:
    """A difference, the limits of its 95 % interval (both ×100), and a verdict, for ``results.json``.

    The ``verdict`` is ``BETTER`` or ``WORSE``, or ``NOISE`` if the interval contains 0.
    """
    low, high = (round(limit, 4) for limit in limits)
    return {
        "difference": round(difference, 4),
        "difference_ci": [low, high],
        "verdict": BETTER if low > 0 else WORSE if high < 0 else NOISE,
    }


def paired_table(folder: str, model: str, rows: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Differences, as ``with_verdict`` returns them, as a text table with a line for each.

    ``rows`` names the items that both evaluations share, such as ``queries``.
    """
    width = max(13, *map(len, figures)) + 1
    lines = [f"compared with {folder} ({model}), over the same {rows}"]
    lines.append(f"{'difference':<{width}}{'×100':>6}  (95 %)")
    for name, figure in figures.items():
        low, high = figure["difference_ci"]
        lines.append(
            f"{name:<{width}}{figure['difference']:+6.2f}  [{low:+.2f}, {high:+.2f}]  {figure['verdict']}"
        )
    return "\n".join(lines)
