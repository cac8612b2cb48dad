"""The report's sections on a trained model and on an evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairsmith.core.errors import counted
from pairsmith.core.progress import clock
from pairsmith.runs import model_display_name
from pairsmith.steps.evaluate.results import FEW_PAIRS, FEW_ROWS
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
    "evaluate sts": "“all” is Spearman's correlation, ×100, between the cosine similarities of the model's "
    "vectors and human scores: 100 if both order the pairs alike, 0 if the two orders are unrelated.",
    "evaluate classification": "All figures are ×100. Accuracy is the share of texts whose label is "
    "predicted correctly; macro F1 is the mean over the labels of F1, the harmonic mean of precision and "
    "recall.",
    "evaluate labels": "“mean” is the mean cosine similarity of a label's pairs under a sentence encoder. "
    "“gap” is the mean of the highest label minus the mean of the lowest one: near 0, the labels do not "
    "differ.",
    "evaluate paraphrase": "auroc, f1 and correlation are ×100. auroc is the share of pairs of a paraphrase "
    "and another pair in which the paraphrase has the larger BERTScore. correlation is Pearson's, of the "
    "BERTScores of other pairs with human scores, on average over the language pairs. f1 is the mean "
    "after training on each split: “error” is its standard error over the splits, its interval is over the "
    "test pairs.",
    "evaluate sentiment": "All figures are ×100. accuracy and auroc are means over the prompts: “error” is "
    "the standard error over the prompts, the interval is over the texts. auroc is the share of pairs of a "
    "positive and a negative text in which the positive text has the larger score.",
    "evaluate ner": "f1 is the F1 of entities, ×100, the mean after training on each split: “error” is its "
    "standard error over the splits, its interval is over the test sentences.",
    "evaluate qa": "Both figures are ×100; case, punctuation and articles do not count. exact is the share "
    "of questions whose answer is one that people gave; f1 is the mean overlap in words with the nearest "
    "of these.",
    "evaluate summaries": "All figures are ×100. rouge1 and rouge2 are the F1 of the words and word pairs "
    "that a summary shares with the one that people wrote; rougeL and rougeLsum are the F1 of the longest "
    "common subsequence. “abstractiveness” is the share of a summary that is copied from its document.",
    "evaluate mteb": "All figures are ×100. “main” is the figure that MTEB ranks models by on a task, “mean” "
    "its mean over the tasks.",
    "evaluate retrieval": "All figures are ×100. ndcg@10 is high if relevant documents are at the top of the "
    "first ten; recall@100 is the share of the relevant documents among the first hundred.",
}
"""By evaluation, what its main figures mean."""

Points = list[tuple[float, float]]


def reliability_warnings(record: Mapping[str, Any]) -> Iterator[Finding]:
    """Warnings of a training of few steps, and of an evaluation on few rows or on generated texts."""
    steps = record.get("steps")
    settings = record.get("settings") or {}
    limit = settings.get("max_steps") or settings.get("steps")  # the user wanted few steps
    if isinstance(steps, int) and 0 < steps < FEW_STEPS and not limit:
        yield Finding(
            f"the training had only {counted(steps, 'steps')}, too few to learn much",
            "Make more rows, or give a smaller --batch-size or more --epochs.",
        )
    counts = [("", "queries", record.get("queries"), FEW_ROWS), ("", "rows", record.get("count"), FEW_ROWS)]
    counts += [
        (f"{shown_text(name, 60)}: ", "pairs", suite.get("pairs"), FEW_PAIRS)
        for name, suite in record.items()
        if isinstance(suite, Mapping)
    ]
    for where, rows, count, few in counts:
        if isinstance(count, int) and 0 < count < few:
            yield Finding(
                f"{where}measured on only {count} {rows}, too few for reliable figures",
                "The figures of two models may differ by chance. Evaluate on more data.",
            )
    if record.get("by_program"):
        yield Finding(
            "measured on texts that a program wrote",
            "Texts that people write differ from these. Also evaluate on some of them before you rely on the "
            "figures.",
        )


def model_lead(record: Mapping[str, Any]) -> list[str]:
    """The lines under a model's title: which step trained it, and how its validation figures changed."""
    sentences = [f"A model trained by the step {shown_text(str(record.get('step', '')), 60)}."]
    return sentences + [f"{sentence}." for sentence in validation_changes(record)]


def validation_changes(record: Mapping[str, Any]) -> Iterator[str]:
    """For each validation figure, its change from the first evaluated step to the step that was kept."""
    points = [point for point in record.get("validation") or [] if isinstance(point, Mapping)]
    kept = next((point for point in points if point.get("step") == record.get("best_step")), None)
    if len(points) < 2 or kept is None:
        return
    for name, value in kept.items():
        before = points[0].get(name)
        if name != "step" and isinstance(before, int | float) and isinstance(value, int | float):
            at = number(int(points[0].get("step", 0)))
            change = f"{before:.2f} at step {at}, {value:.2f} in the model that was kept"
            yield f"{shown_text(name, 40)} on the validation data: {change}"


def model_sections(record: Mapping[str, Any]) -> list[PageSection]:
    """The sections on a model, from its ``training.json``: how the training went, and its settings."""
    course: list[tuple[str, str]] = []
    if record.get("steps"):
        course.append(("steps", f"{record['steps']:,}; step {record.get('best_step', 0):,} was kept"))
    if isinstance(texts := record.get("texts"), Mapping):  # of a classifier, by label
        counts = ", ".join(f"{count:,} of {shown_text(label, 40)}" for label, count in texts.items())
        course.append(("texts", f"{sum(texts.values()):,}: {counts}"))
        if record.get("measured_on"):
            course.append(("log loss and accuracy measured on", str(record["measured_on"])))
    if isinstance(record.get("seconds"), int | float):
        course.append(("time taken", clock(record["seconds"])))
    facts = [("step", str(record.get("step", ""))), *sources(record.get("about") or {}), *_settings(record)]
    chosen = [choices_table(record)] if record.get("choices") else list(validation_charts(record))
    course_blocks: list[Block] = [*chosen, *([Facts(course)] if course else [])]
    return [PageSection("Training", course_blocks), PageSection("How it was made", [Facts(facts)])]


def choices_table(record: Mapping[str, Any]) -> Block:
    """The values of C that were tried for a classifier, with the figures of each."""
    tried = record["choices"]
    names = list(tried[0])
    return Table(
        [name.replace("_", " ") for name in names],
        [tuple(f"{choice[name]:g}" for name in names) for choice in tried],
    )


def validation_charts(record: Mapping[str, Any]) -> Iterator[Block]:
    """The validation figures by training step; a line for each learning rate if several were tried."""
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
        caption = f"Measured on the validation data: {', '.join(sorted(names))}."
        yield Chart(lines(series, "training step"), caption)
    else:
        yield Note("The model was trained without validation data.")


def evaluation_lead(results: Mapping[str, Any]) -> list[str]:
    """The lines under an evaluation's title: which model was evaluated on what, and what the figures mean."""
    about = results.get("about", {})
    step = str(about.get("step", ""))
    names = _display_names(about)
    title = shown_text(step or "an evaluation", 60)
    title += f" of the model {names['model']}" if "model" in names else ""
    title += f" on {names['data']}" if "data" in names else ""
    lines = [f"Measured by {title}.", *([MEANINGS[step]] if step in MEANINGS else [])]
    if table := comparison_table(results):
        name, verdict, difference, spread = table.rows[0]
        lines.append(f"{table.title}: {name} {difference}, 95 % interval {spread}: {verdict}.")
    return lines


def evaluation_sections(results: Mapping[str, Any]) -> list[PageSection]:
    """The sections on an evaluation, from its ``results.json``: figures with intervals, and settings."""
    about = results.get("about", {})
    blocks: list[Block] = []
    if figures := list(figure_rows(results)):
        blocks.append(Table(["figure", "value", "95 % interval"], figures))
    if table := comparison_table(results):
        blocks.append(table)
    texts = [
        (shown_text(name, 60), shown_text(value, 200))
        for name, value in results.items()
        if isinstance(value, str) and name not in _NOT_FIGURES
    ]
    if texts:
        blocks.append(Facts(texts))
    facts = [("step", str(about.get("step", ""))), *_display_names(about).items(), *_settings(about)]
    return [PageSection("Figures", blocks), PageSection("How it was measured", [Facts(facts)])]


def _display_names(about: Mapping[str, Any]) -> dict[str, str]:
    """The names of the evaluated model and of the data, as far as they are recorded."""
    return {
        key: shown_text(model_display_name(str(about[key])), 100)
        for key in ("model", "data")
        if about.get(key)
    }


def comparison_table(results: Mapping[str, Any]) -> Table | None:
    """The differences between the figures and those of an earlier evaluation; None without a comparison."""
    earlier = results.get("against")
    if not isinstance(earlier, Mapping):
        return None
    rows = [
        (
            shown_text(name, 60),
            shown_text(str(comparison["verdict"]), 60),
            f"{comparison['difference']:+.2f}",
            "{:+.2f} to {:+.2f}".format(*comparison["difference_ci"]),
        )
        for name, comparison in _comparisons(earlier)
    ]
    if not rows:
        return None
    folder, model = (str(earlier.get(name, "")) for name in ("folder", "model"))
    name = folder.partition("?")[0].rstrip("/").rpartition("/")[2]  # works for a URL without its package, too
    what, items = "between figures over the same rows", "rows"
    if "suites" in earlier:
        what, items = "between correlations over the same pairs", "pairs"
    return Table(
        ["figure", "verdict", "difference", "95 % interval"],
        rows,
        texts=2,
        note=f"Each difference is {what} for both models, so that hard and easy {items} affect both alike. "
        "Within noise: 0 lies in the interval.",
        title=f"Compared with {shown_text(name, 60)} ({shown_text(model, 60)})",
    )


def _comparisons(earlier: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The compared figures by name; a figure of a test set of pairs has the set's name before its own."""
    for name, comparison in earlier.items():
        if isinstance(comparison, Mapping) and "verdict" in comparison:
            yield name, comparison
    for suite, figures in earlier.get("suites", {}).items():
        yield from ((f"{suite} · {name}", figure) for name, figure in figures.items())


def figure_rows(
    results: Mapping[str, Any], above: Sequence[str] = (), intervals: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Name, value and 95 % interval of every number in the results; the interval is "" if there is none.

    The interval of the number ``name`` is ``results[f"{name}_ci"]``, or ``intervals[name]``.
    """
    for name, value in results.items():
        if name in _NOT_FIGURES or name.endswith("_ci"):
            continue
        if isinstance(value, Mapping):
            yield from figure_rows(value, (*above, name), results.get(f"{name}_ci"))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            limits = results.get(f"{name}_ci") or (intervals or {}).get(name)
            limits = limits or (results.get("ci") if name == "mean" else None)
            spread = f"{limits[0]:.2f} to {limits[1]:.2f}" if isinstance(limits, list) else ""
            yield shown_text(" · ".join((*above, name)), 100), number(value, 2), spread


def _settings(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    return settings_in_words(str(record.get("step", "")), record.get("settings") or {})
