"""The outcome of a comparison: figures with their intervals over seeds, and costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pairsmith.cli.compare.file import Comparison
from pairsmith.cli.compare.recipe import Trial
from pairsmith.cli.running import plain_table
from pairsmith.core.progress import clock

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantiles of Student's t for 1 to 9 degrees of freedom, enough for ``MOST_SEEDS``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a way's rows cost, with one value for each seed.

    Attributes:
        seconds: time that its steps took, without the steps that it shares with other ways.
        tokens: number of tokens that models generated in these steps, including rejected texts.
        rows: number of rows that were made.
    """

    seconds: Sequence[float]
    tokens: Sequence[int]
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Score:
    """The scores of a trial, with one value for each seed.

    Attributes:
        trial: what the models were trained on.
        rows: number of rows that were actually taken from the ways.
        figures: the evaluation's figure.
        seconds: time that the training took.
    """

    trial: Trial
    rows: Sequence[int]
    figures: Sequence[float]
    seconds: Sequence[float]

    @property
    def mean(self) -> float:
        """Mean of the figures."""
        return fmean(self.figures)

    @property
    def margin(self) -> float | None:
        """Half the width of the mean's 95 % interval over seeds; None with a single seed."""
        return margin(self.figures)


def margin(values: Sequence[float]) -> float | None:
    """Half the width of a mean's 95 % interval, by Student's t: ``t · s / √n``; None for a single value.

    Args:
        values: 1 to 10 values.
    """
    if len(values) < 2:
        return None
    return _T[len(values) - 2] * stdev(values) / math.sqrt(len(values))


def as_record(comparison: Comparison, scores: Sequence[Score], costs: Mapping[str, Cost]) -> dict[str, Any]:
    """The content of ``comparison.json``."""
    return {
        "name": comparison.name,
        "figure": f"{comparison.measure.step} {comparison.measure.figure}",
        "seeds": list(comparison.seeds),
        "scores": [
            {
                "way": score.trial.way,
                "asked": score.trial.rows,
                "rows": list(score.rows),
                "figures": [round(figure, 4) for figure in score.figures],
                "mean": round(score.mean, 4),
                "margin": None if score.margin is None else round(score.margin, 4),
                "training_seconds": list(score.seconds),
            }
            for score in scores
        ],
        "costs": {
            way: {"seconds": list(cost.seconds), "tokens": list(cost.tokens), "rows": list(cost.rows)}
            for way, cost in costs.items()
        },
    }


HEAD = ("rows of", "rows", "score", "± 95 %", "to make", "tokens written", "to train")


def rows_of_table(scores: Sequence[Score], costs: Mapping[str, Cost]) -> list[tuple[str, ...]]:
    """The comparison as table rows under ``HEAD``; costs are those of all rows of a way."""
    found: list[tuple[str, ...]] = []
    for score in scores:
        made = [costs[way] for way in score.trial.ways]
        tokens = sum(fmean(cost.tokens) for cost in made)
        rows = round(fmean(score.rows))
        short = f" of {score.trial.rows:,}" if rows < score.trial.rows else ""
        found.append(
            (
                score.trial.way,
                f"{rows:,}{short}",
                f"{score.mean:.2f}",
                "–" if score.margin is None else f"{score.margin:.2f}",
                clock(sum(fmean(cost.seconds) for cost in made)) if made else "",
                f"{tokens:,.0f}" if tokens else "",
                clock(fmean(score.seconds)),
            )
        )
    return found


def table(scores: Sequence[Score], costs: Mapping[str, Cost]) -> str:
    """The comparison as a plain table, numbers right-aligned."""
    return plain_table([HEAD, *rows_of_table(scores, costs)])
