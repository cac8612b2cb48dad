"""Comparison of an evaluation with an earlier one on the same data: differences, intervals and verdicts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pairsmith.core.errors import DamagedError, FolderError, InputError, redacted
from pairsmith.core.paths import Place, place, reaching
from pairsmith.core.text_width import left_aligned, text_width
from pairsmith.runs import model_display_name
from pairsmith.steps.evaluate.results import PREDICTIONS, RESULTS, EvaluationRecord, is_intact, read_about

BETTER, WORSE, NOISE = "better", "worse", "within noise"


@dataclass(frozen=True, slots=True)
class EarlierEvaluation:
    """A finished evaluation to compare with: its folder, its record, and the content of ``results.json``."""

    folder: Place
    record: EvaluationRecord
    results: Mapping[str, Any]

    @classmethod
    def open(cls, against: str, step: str) -> Self:
        """Open the folder ``against``, which ``step`` has to have written.

        Raises:
            FolderError: another step wrote the folder, or the evaluation is unfinished.
            DamagedError: the predictions have changed since they were written.
        """
        folder = place(against)
        remedy = f"give a folder that {step} wrote"
        try:
            with reaching(folder, InputError):
                record = read_about(folder)
        except FolderError as error:
            raise FolderError(f"--against: {error}; {remedy}") from error
        earlier = cls(folder, record, json.loads((folder / RESULTS).read_bytes()))
        if record.step != step:
            raise FolderError(f"{earlier.option}: has results of {record.step}; {remedy}")
        if not record.complete:
            raise FolderError(
                f"{earlier.option}: this evaluation is not finished; run its command again to finish it"
            )
        if not is_intact(folder, record):
            raise DamagedError(
                f"{earlier.option}: {PREDICTIONS} has changed since it was written; evaluate its model "
                "again, with --fresh"
            )
        return earlier

    @property
    def option(self) -> str:
        """The option that names the folder, for messages."""
        return f"--against {self.folder}"

    def to_json(self) -> dict[str, Any]:
        """The folder, and the display name of the model that was evaluated, for ``results.json``."""
        model = model_display_name(str(self.results["about"].get("model", "")))
        return {"folder": redacted(str(self.folder)), "model": model}


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


def paired_table(against: Mapping[str, Any], rows: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Differences, as ``with_verdict`` returns them, as a text table with a line for each.

    ``against`` is the comparison in ``results.json``; ``rows`` names the items that both evaluations share.
    """
    width = max(13, *map(text_width, figures)) + 1
    lines = [f"compared with {against['folder']} ({against['model']}), over the same {rows}"]
    lines.append(f"{'difference':<{width}}{'×100':>6}  (95 %)")
    for name, figure in figures.items():
        low, high = figure["difference_ci"]
        lines.append(
            f"{left_aligned(name, width)}{figure['difference']:+6.2f}  [{low:+.2f}, {high:+.2f}]  "
            f"{figure['verdict']}"
        )
    return "\n".join(lines)
