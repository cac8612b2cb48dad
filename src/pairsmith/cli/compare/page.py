"""A comparison as one self-contained HTML page."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from pairsmith.cli.compare.file import Comparison
from pairsmith.cli.compare.outcome import TABLE_HEAD, Cost, Score, rows_of_table, tokens_of
from pairsmith.tools.report.charts import Point, lines
from pairsmith.tools.report.models import MEANINGS
from pairsmith.tools.report.parts import (
    Block,
    Chart,
    Facts,
    Note,
    Page,
    PageSection,
    Table,
    render_page,
    shown_text,
)


def page(comparison: Comparison, scores: Sequence[Score], costs: Mapping[str, Cost]) -> str:
    """The HTML page of a comparison with these scores, and these costs by the names of ways."""
    train, measure = comparison.train, comparison.measure
    figure = f"{measure.step} {measure.figure}"
    seeds = len(comparison.seeds)
    spread = "There is only one seed, so there are no intervals."
    if seeds > 1:
        spread = (
            f"Vertical lines are 95 % confidence intervals of the mean over {seeds} seeds, by Student's t. "
            "Where intervals overlap, the difference between two ways may be chance."
        )
    facts = [
        ("compared figure", figure),
        ("training step and base", f"{train.step} {train.settings.get('base', '')}"),
        ("human-labelled rows", Path(comparison.labelled).name if comparison.labelled else "none"),
        ("seeds", ", ".join(map(str, comparison.seeds))),
    ]
    table = Table(
        TABLE_HEAD,
        [tuple(shown_text(cell, 80) for cell in row) for row in rows_of_table(scores, costs)],
        note="Rows: how many rows of the way the model is trained on. Times and tokens are means over seeds. "
        "Time to make: to make all rows of the way once, with the models that were trained for them. Tokens "
        "generated: by models, also in rejected texts. Time to train: to train the model on the rows.",
    )
    most = f"with the most rows of each way. {spread}"
    by_rows, spans = mean_curves(scores)
    by_time, time_spans = points(scores, partial(time_of, costs=costs))
    by_tokens, token_spans = points(scores, partial(tokens_of, costs=costs))
    time_chart = lines(by_time, "seconds to make the rows and to train the model", time_spans)
    blocks: list[Block] = [
        Facts([(name, shown_text(value)) for name, value in facts]),
        table,
        Chart(lines(by_rows, "rows", spans), f"{figure} by the number of rows. {spread}"),
        Chart(time_chart, f"{figure} by the time taken, {most}"),
    ]
    if meaning := MEANINGS.get(measure.step.replace("-", " ", 1)):
        blocks.insert(1, Note(meaning))
    if any(tokens for line in by_tokens.values() for tokens, _ in line):
        token_chart = lines(by_tokens, "tokens that models generated", token_spans)
        blocks.append(Chart(token_chart, f"{figure} by the tokens that models generated, {most}"))
    sections = [PageSection("Comparison", blocks, level=2)]
    lead = filter(None, [shown_text(comparison.description.strip())])
    return render_page(Page(shown_text(comparison.name), sections, lead=list(lead)))


Lines = dict[str, list[Point]]


def mean_curves(scores: Sequence[Score]) -> tuple[Lines, Lines]:
    """The mean figure by number of rows, with a line for each way, and the interval at each point.

    Every line begins at the score of the human-labelled rows alone, if there are any.
    """
    begin = [score for score in scores if not score.trial.ways]
    means: Lines = {}
    spans: Lines = {}
    for way in dict.fromkeys(score.trial.way for score in scores if score.trial.ways):
        own = [*begin, *(score for score in scores if score.trial.way == way)]
        means[way] = [(fmean(score.rows), score.mean) for score in own]
        spans[way] = [_interval(score) for score in own]
    return means, spans


def points(scores: Sequence[Score], cost: Callable[[Score], float]) -> tuple[Lines, Lines]:
    """For the largest number of rows of each way, the mean figure by cost, and its interval."""
    most = {score.trial.way: score for score in scores if score.trial.ways}  # each way's last trial
    most |= {score.trial.way: score for score in scores if not score.trial.ways}  # last, as it has no curve
    means = {way: [(cost(score), score.mean)] for way, score in most.items()}
    return means, {way: [_interval(score)] for way, score in most.items()}


def time_of(score: Score, costs: Mapping[str, Cost]) -> float:
    """Seconds to make the rows of a score's ways and to train the model, as means over seeds."""
    return fmean(score.seconds) + sum(fmean(costs[way].seconds) for way in score.trial.ways)


def _interval(score: Score) -> Point:
    margin = score.margin or 0.0
    return score.mean - margin, score.mean + margin
