"""The outcome of a comparison: figures with confidence intervals over seeds, and costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from pairsmith.cli.compare.file import Comparison
from pairsmith.cli.compare.recipe import Trial
from pairsmith.cli.tables import plain_table
from pairsmith.core.progress import clock

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantiles of Student's t for 1 to 9 degrees of freedom, enough for ``MOST_SEEDS``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the rows of a way cost, with one value for each seed; shared steps are not counted.

    Attributes:
        seconds: duration of the way's steps.
        tokens: number of tokens that models generated, including those of rejected texts.
        rows: number of rows that the way made.
    """

    seconds: Sequence[float]
    tokens: Sequence[int]
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a trial, with one value for each seed.

    Attributes:
        trial: which rows the model was trained on.
        rows: number of rows that were taken from the ways; fewer than requested if the ways made fewer.
        figures: the figure of the evaluation.
        seconds: duration of the training.
    """

    trial: Trial
    rows: Sequence[int]
    figures: Sequence[float]
    seconds: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean of the figures over seeds."""
        return fmean(self.figures)

    @property
    def margin(self) -> float | None:
        """Half the width of the mean's 95 % interval over seeds; None with a single seed."""
        return interval_half_width(self.figures)


def interval_half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval, by Student's t, of the mean of 1 to 10 values: ``t · s / √n``.

    None for a single value.
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
        "costs": {way: asdict(cost) for way, cost in costs.items()},
    }


def tokens_of(score: Score, costs: Mapping[str, Cost]) -> float:
    """The number of tokens that models generated for the ways of a score, as a mean over seeds."""
    return sum(fmean(costs[way].tokens) for way in score.trial.ways)


TABLE_HEAD = ("way", "rows", "score", "± 95 %", "time to make", "tokens generated", "time to train")
"""The score is the compared figure, ``± 95 %`` the margin of its interval; the other columns are costs."""


def rows_of_table(scores: Sequence[Score], costs: Mapping[str, Cost]) -> list[tuple[str, ...]]:
    """The comparison as table rows under ``TABLE_HEAD``; the costs are for all rows that a way made."""
    lines: list[tuple[str, ...]] = []
    for score in scores:
        ways = score.trial.ways
        tokens, rows = tokens_of(score, costs), round(fmean(score.rows))
        short = f" of {score.trial.rows:,}" if rows < score.trial.rows else ""
        lines.append(
            (
                score.trial.way,
                f"{rows:,}{short}",
                f"{score.mean:.2f}",
                "–" if score.margin is None else f"{score.margin:.2f}",
                clock(sum(fmean(costs[way].seconds) for way in ways)) if ways else "",
                f"{tokens:,.0f}" if tokens else "",
                clock(fmean(score.seconds)),
            )
        )
    return lines


def table(scores: Sequence[Score], costs: Mapping[str, Cost]) -> str:
    """The comparison as a plain table, numbers right-aligned."""
    return plain_table([TABLE_HEAD, *rows_of_table(scores, costs)])
