"""Compares an evaluation with an earlier one on the same data: reads it, gives differences and verdicts."""

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
    """An evaluation to compare with: its folder, the name of its model, and its figures."""

    folder: Place
    model: str
    figures: F


def earlier_folder(
    against: str, step: str, refuse_other: Callable[[str, EvaluationRecord, Mapping[str, Any]], None]
) -> tuple[Place, str]:
    """The folder that ``--against`` names, and the display name of the model that was evaluated there.

    A folder that ``step`` did not write, an unfinished or a changed one is refused. ``refuse_other`` refuses
    an evaluation of other data, or one that was measured otherwise: it is called with the beginning of its
    message, the record and the content of ``results.json``.
    """
    folder = place(against)
    wanted = f"give a folder that {step} wrote"
    try:
        with reaching(folder, InputError):
            about = read_about(folder)
    except FolderError as error:
        raise FolderError(f"--against: {error}; {wanted}") from error
    results = json.loads((folder / RESULTS).read_bytes())
    option = f"--against {folder}"
    if about.step != step:
        raise FolderError(f"{option}: a result of {about.step}; {wanted}")
    refuse_other(option, about, results)
    if not about.complete:
        raise FolderError(f"{option}: this evaluation is not finished; give its command again")
    if not is_intact(folder, about):
        raise DamagedError(
            f"{option}: {PREDICTIONS} has changed since it was written; evaluate its model again, with "
            "--fresh"
        )
    return folder, model_display_name(str(results["about"].get("model", "")))


def predictions_in(folder: Place) -> list[dict[str, Any]]:
    """The rows of ``predictions.jsonl`` that an evaluation wrote into its folder."""
    file = folder / PREDICTIONS
    with reaching(file, InputError):
        return [json.loads(line) for line in file.read_bytes().splitlines()]


def with_verdict(difference: float, limits: tuple[float, float]) -> dict[str, Any]:
    """A difference and the limits of its 95 % interval, ×100, for ``results.json``.

    The ``verdict`` is ``NOISE`` where the interval contains 0.
    """
    low, high = (round(limit, 4) for limit in limits)
    return {
        "difference": round(difference, 4),
        "difference_ci": [low, high],
        "verdict": BETTER if low > 0 else WORSE if high < 0 else NOISE,
    }


def paired_table(folder: str, model: str, rows: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Differences, as ``with_verdict`` returns them, as a plain table with a line for each.

    ``rows`` is what both evaluations share, such as ``queries``.
    """
    wide = max(13, *map(len, figures)) + 1
    lines = [f"compared with {folder} ({model}), over the same {rows}"]
    lines.append(f"{'difference':<{wide}}{'×100':>6}  (95 %)")
    for name, figure in figures.items():
        low, high = figure["difference_ci"]
        lines.append(
            f"{name:<{wide}}{figure['difference']:+6.2f}  [{low:+.2f}, {high:+.2f}]  {figure['verdict']}"
        )
    return "\n".join(lines)
