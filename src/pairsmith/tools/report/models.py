"""The report's sections on a trained model and on an evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairsmith.core.progress import clock
from pairsmith.runs import model_display_name
from pairsmith.steps.evaluate.results import FEW_ROWS
from pairsmith.tools.report.charts import lines
from pairsmith.tools.report.origin import sources
from pairsmith.tools.report.parts import (
    Block,
    Chart,
    Facts,
    Finding,
    Note,
    PageSection,
    Table,
    number,
    shown_text,
)
from pairsmith.tools.report.words import settings_in_words
from pairsmith.training.options import FEW_STEPS

_NOT_FIGURES = {"about", "seconds", "against"}

MEANINGS = {
    "evaluate sts": "“all” is Spearman's correlation, ×100, between the cosines of the model's vectors and "
    "people's scores: 100 where both order the pairs alike, 0 where they have nothing to do with each other.",
    "evaluate classification": "All are ×100. Accuracy is the share of texts that got their label; macro F1 "
    "is the mean over the labels of the harmonic mean of precision and recall.",
    "evaluate labels": "“mean” is the mean cosine of a label's pairs under an encoder that did not write "
    "them. “gap” is that of the highest label less that of the lowest: near 0, labels do not differ.",
    "evaluate retrieval": "All are ×100. ndcg@10 is high where relevant documents stand at the top of the "
    "first ten; recall@100 is the share of the relevant documents among the first hundred.",
}
"""By evaluation, what its main figures mean."""

Points = list[tuple[float, float]]


def little(record: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with a training of few steps, and with an evaluation on few rows or on a program's."""
    steps = record.get("steps")
    settings = record.get("settings") or {}
    limit = settings.get("max_steps") or settings.get("steps")  # few on purpose
    if isinstance(steps, int) and 0 < steps < FEW_STEPS and not limit:
        yield Finding(
            f"the training had only {steps} step{'s' if steps > 1 else ''}, too few to learn much",
            "Make more rows, or give a smaller --batch-size or more --epochs.",
        )
    for what in ("queries", "count"):
        number = record.get(what)
        if isinstance(number, int) and 0 < number < FEW_ROWS:
            rows = "queries" if what == "queries" else "rows"
            yield Finding(
                f"measured on {number} {rows}: figures of so few say little",
                "Two models may have figures this far apart by chance. Measure on more.",
            )
    if record.get("by_program"):
        yield Finding(
            "measured on what a program wrote",
            "What people write differs. Measure on some of that, too, before you believe the figures.",
        )


def model_lead(record: Mapping[str, Any]) -> list[str]:
    """The lines under a model's title: which step trained it, and what came of it on the validation data."""
    sentences = [f"A model trained by the step {shown_text(str(record.get('step', '')), 60)}."]
    return sentences + [f"{sentence}." for sentence in gains(record)]


def gains(record: Mapping[str, Any]) -> Iterator[str]:
    """For each validation figure how it changed from the first step to the one that was kept."""
    points = [point for point in record.get("validation") or [] if isinstance(point, Mapping)]
    kept = next((point for point in points if point.get("step") == record.get("best_step")), None)
    if len(points) < 2 or kept is None:
        return
    for name, value in kept.items():
        before = points[0].get(name)
        if name != "step" and isinstance(before, int | float) and isinstance(value, int | float):
            at = number(int(points[0].get("step", 0)))
            change = f"{before:.2f} at step {at}, {value:.2f} in the model kept"
            yield f"{shown_text(name, 40)} on the validation data: {change}"


def model_sections(record: Mapping[str, Any]) -> list[PageSection]:
    """The sections on a model, from its ``training.json``: how the training went, and its settings."""
    course: list[tuple[str, str]] = []
    if record.get("steps"):
        course.append(("steps", f"{record['steps']:,}; step {record.get('best_step', 0):,} was kept"))
    if isinstance(record.get("seconds"), int | float):
        course.append(("time taken", clock(record["seconds"])))
    facts = [("step", str(record.get("step", ""))), *sources(record.get("about") or {}), *_settings(record)]
    chosen = [choices_table(record)] if record.get("choices") else list(validation_charts(record))
    course_blocks: list[Block] = [*chosen, *([Facts(course)] if course else [])]
    return [PageSection("Training", course_blocks), PageSection("How it was made", [Facts(facts)])]


def choices_table(record: Mapping[str, Any]) -> Block:
    """The values that were tried for a setting of a classifier, with the figures of each."""
    tried = record["choices"]
    names = list(tried[0])
    return Table(
        [name.replace("_", " ") for name in names],
        [tuple(f"{choice[name]:g}" for name in names) for choice in tried],
    )


def validation_charts(record: Mapping[str, Any]) -> Iterator[Block]:
    """The validation figures by training step; a line for each learning rate where several were tried."""
    rates = record.get("rates") or []
    series: dict[str, Points] = {}
    names: set[str] = set()
    for tried in rates or [record]:
        for point in tried.get("validation") or []:
            for name, value in point.items():
                if name != "step" and isinstance(value, int | float):
                    names.add(name)
                    line = f"learning rate {tried['learning_rate']:g}" if rates else name
                    series.setdefault(line, []).append((float(point["step"]), float(value)))
    if not record.get("steps"):
        return  # a classifier is not trained in steps
    if series:
        yield Chart(lines(series, "training step"), f"On the validation data: {', '.join(sorted(names))}.")
    else:
        yield Note("It was trained without validation data.")


def evaluation_lead(results: Mapping[str, Any]) -> list[str]:
    """The lines under an evaluation's title: what was measured on which data, and what its figures mean."""
    about = results.get("about", {})
    step = str(about.get("step", ""))
    names = {key: model_display_name(str(about[key])) for key in ("model", "data") if about.get(key)}
    title = shown_text(step or "an evaluation", 60)
    title += f" of the model {shown_text(names['model'], 100)}" if "model" in names else ""
    title += f" on {shown_text(names['data'], 100)}" if "data" in names else ""
    return [f"Measured by {title}.", *([MEANINGS[step]] if step in MEANINGS else []), *_differences(results)]


def _differences(results: Mapping[str, Any]) -> Iterator[str]:
    """A sentence on the first figure of an evaluation that was compared with an earlier one."""
    for table in against(results):
        name, verdict, difference, spread = table.rows[0]
        yield f"{table.title}: {name} {difference}, 95 % interval {spread}: {verdict}."


def evaluation_sections(results: Mapping[str, Any]) -> list[PageSection]:
    """The sections on an evaluation, from its ``results.json``: figures with intervals, and settings."""
    about = results.get("about", {})
    blocks: list[Block] = []
    if figures := list(figure_rows(results)):
        blocks.append(Table(["figure", "value", "95 % interval"], figures))
    blocks += against(results)
    texts = [
        (shown_text(name, 60), shown_text(value, 200))
        for name, value in results.items()
        if isinstance(value, str) and name not in _NOT_FIGURES
    ]
    if texts:
        blocks.append(Facts(texts))
    names = [
        (key, shown_text(model_display_name(str(about[key])), 100))
        for key in ("model", "data")
        if about.get(key)
    ]
    facts = [("step", str(about.get("step", ""))), *names, *_settings(about)]
    return [PageSection("Figures", blocks), PageSection("How it was measured", [Facts(facts)])]


def against(results: Mapping[str, Any]) -> Iterator[Table]:
    """How much the figures are above those of an earlier evaluation, if they were compared with one."""
    beside = results.get("against")
    if not isinstance(beside, Mapping):
        return
    rows = [
        (
            shown_text(name, 60),
            shown_text(str(comparison["verdict"]), 60),
            f"{comparison['difference']:+.2f}",
            "{:+.2f} to {:+.2f}".format(*comparison["difference_ci"]),
        )
        for name, comparison in _comparisons(beside)
    ]
    if not rows:
        return
    folder, model = (str(beside.get(name, "")) for name in ("folder", "model"))
    name = folder.partition("?")[0].rstrip("/").rpartition("/")[2]  # also of a store whose package is missing
    yield Table(
        ["figure", "verdict", "difference", "95 % interval"],
        rows,
        texts=2,
        note=f"{_HOW_COMPARED['suites' in beside]} Within noise: the interval holds 0.",
        title=f"Compared with {shown_text(name, 60)} ({shown_text(model, 60)})",
    )


_HOW_COMPARED = {
    False: "Each difference is the mean over the same queries, so that hard and easy ones weigh on both.",
    True: "Each difference is that of correlations over the same pairs, so that hard and easy ones weigh on "
    "both.",
}
"""What a difference is, by whether test sets of pairs were compared, or rankings for queries."""


def _comparisons(beside: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The compared figures by name; those of a test set of pairs are named after it, too."""
    for name, comparison in beside.items():
        if isinstance(comparison, Mapping) and "verdict" in comparison:
            yield name, comparison
    for suite, figures in beside.get("suites", {}).items():
        yield from ((f"{suite} · {name}", figure) for name, figure in figures.items())


def figure_rows(results: Mapping[str, Any], above: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Name, value and 95 % interval (empty where there is none) of every number in the results."""
    for name, value in results.items():
        if name in _NOT_FIGURES or name.endswith("_ci"):
            continue
        if isinstance(value, Mapping):
            yield from figure_rows(value, (*above, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            limits = results.get(f"{name}_ci") or (results.get("ci") if name == "mean" else None)
            spread = f"{limits[0]:.2f} to {limits[1]:.2f}" if isinstance(limits, list) else ""
            yield shown_text(" · ".join((*above, name)), 100), number(value, 2), spread


def _settings(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    return settings_in_words(str(record.get("step", "")), record.get("settings") or {})
