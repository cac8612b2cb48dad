"""The page about a recipe's run: its results, what each step made, and a section for each step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairsmith.core.errors import FolderError, counted
from pairsmith.core.folder_kinds import read_record
from pairsmith.core.paths import MANIFEST, Place, size_of
from pairsmith.core.progress import clock
from pairsmith.runs import model_display_name
from pairsmith.tools.report.models import MEANINGS, figure_rows, validation_changes
from pairsmith.tools.report.parts import Block, Finding, Note, Page, PageSection, Table, number, shown_text
from pairsmith.tools.report.words import step_in_words

RUN_RECORD, TRAINING_RECORD, RESULTS = "run.json", "training.json", "results.json"
OWN_PAGES = ("report.json", "audit.json")
"""Records of the steps that have pages or results of their own."""

_SHOWN = {
    "Examples", "Labels", "Texts and labels", "Rejected rows", "Training", "Figures", "How it was made",
    "How it was measured",
}  # fmt: skip
"""The sections of a step's own page that are repeated on the page of the run, by their titles."""
_COUNTS = {"count", "pairs", "queries", "documents", "rows", "trained_on"}
"""Numbers in ``results.json`` that are counts, not figures."""
_OF_LABELS = {"labels", "confusion", "blank", "trained_on", "largest"}
"""Entries in a classifier's ``results.json`` that are left out beside its accuracy and F1."""
_MOST_FIGURES = 4
"""Largest number of figures in a table of evaluations."""
_LONGEST = 2_000
"""Longest recipe description that is shown, in characters."""


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A finished step of a run.

    Attributes:
        name: the step's name in the recipe.
        kind: the command that it runs, such as ``generate`` or ``evaluate sts``.
        outcome: in words, what the step made: rows, a model, or figures.
        page: the page about the step's own folder.
    """

    name: str
    kind: str
    outcome: str
    page: Page


def run_page(folder: Place, page_of: Callable[[Place], Page]) -> Page:
    """The page about the run in ``folder``; ``page_of`` makes the page about the folder of a step."""
    record = read_record(folder / RUN_RECORD)
    warn: list[Finding] = []
    steps = list(_steps(folder, record, page_of, warn))
    spent = {str(name): float(seconds) for name, seconds in record.get("spent", {}).items()}
    finished = {step.name for step in steps}
    overview = PageSection("The steps in order", [_table(steps, spent)], level=2)
    results = list(_results(folder, steps))
    sections = [*([PageSection("Results", results, level=2)] if results else []), overview]
    for step in steps:
        lines = [f"{step_in_words(step.kind)}." if step.kind else "", *step.page.lead]
        sections.append(PageSection(step.name, [Note(line) for line in lines if line], level=2))
        sections += [_without_examples(section) for section in step.page.sections if section.title in _SHOWN]
    total = clock(sum(spent.get(name, 0.0) for name in finished))
    description = " ".join(str(record.get("description", "")).split())
    count = counted(len(steps), "finished steps")
    lead = [*([shown_text(description, _LONGEST)] if description else []), f"{count}, {total} in all."]
    verdict = "The checks of this page found no problem in what the steps made."
    few = [step.name for step in steps if step.page.proves_little]
    if few:
        rows = f"the rows of {few[0]} are" if len(few) == 1 else f"the rows of {', '.join(few)} are each"
        verdict = f"The checks of this page found nothing wrong, but {rows} so few that this proves little."
    if warn:
        verdict = "Look at " + ("this point:" if len(warn) == 1 else f"these {len(warn)} points:")
    title = shown_text(str(record.get("recipe", "")) or folder.name, 100)
    return Page(title, sections, warn, lead, verdict, proves_little=bool(few))


def _steps(
    folder: Place, record: Mapping[str, Any], page_of: Callable[[Place], Page], warn: list[Finding]
) -> Iterator[StepOfRun]:
    """The finished steps of the run before this report, in order; ``warn`` gets their warnings.

    Reports and audits are left out, as they have pages or results of their own.
    """
    unfinished: list[str] = []
    for name in record.get("planned", []):
        step, finished = folder / name, name in record.get("steps", {})
        if any(size_of(step / file) is not None for file in OWN_PAGES):
            if not finished:
                break  # this is the report that is being written; the steps after it have yet to run
            continue
        if not finished:
            unfinished.append(name)
            continue
        try:
            page = page_of(step)
        except FolderError as error:
            warn.append(Finding(f"{name}: {error}"))
            page = Page(name, [])
        warn += [Finding(f"{name}: {finding.text}", finding.advice) for finding in page.warnings]
        yield StepOfRun(name, *_outcome(step), page)
    if unfinished:
        names = ", ".join(unfinished)
        one = len(unfinished) == 1
        warn.append(
            Finding(
                f"the step {names} is not finished" if one else f"the steps {names} are not finished",
                f"Give the same command again to finish {'it' if one else 'them'}.",
            )
        )


def _outcome(step: Place) -> tuple[str, str]:
    """The kind of a step and what it made, in words; both are empty if its record cannot be read."""
    records = (step / file for file in (MANIFEST, TRAINING_RECORD, RESULTS))
    path = next((record for record in records if size_of(record) is not None), None)
    if path is None:
        return "", ""
    try:
        record = read_record(path)
    except FolderError:
        return "", ""
    if path.name == RESULTS:
        figures = (f"{name} {value}" for name, value, _ in _main_figures(record)[:3])
        return str(record.get("about", {}).get("step", "")), "; ".join(figures)
    kind = str(record.get("step", ""))
    if path.name == MANIFEST:
        counts = record.get("counts", {})
        rejects = f", {counts['rejects']:,} rejected" if counts.get("rejects") else ""
        return kind, f"{counted(counts.get('rows', 0), 'rows')}{rejects}"
    if isinstance(texts := record.get("texts"), dict):  # a classifier is not trained in steps
        read, labels = counted(sum(texts.values()), "texts"), counted(len(texts), "labels")
        return kind, f"a classifier, trained on {read} with {labels}"
    steps = record.get("steps", 0)
    trained = f"a model, trained in {counted(steps, 'steps')}"
    return kind, "; ".join(validation_changes(record)) or trained


def _main_figures(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The figures of an evaluation, each as name, value and interval, without its counts."""
    own = {name: value for name, value in results.items() if name not in _OF_LABELS}
    return [row for row in figure_rows(own) if row[0].rpartition(" · ")[2] not in _COUNTS]


def _table(steps: Sequence[StepOfRun], spent: Mapping[str, float]) -> Table:
    rows = [
        (
            f"{place}. {step.name}",
            step_in_words(step.kind),
            shown_text(step.outcome, 200),
            clock(spent[step.name]) if step.name in spent else "",
        )
        for place, step in enumerate(steps, start=1)
    ]
    return Table(["step", "what it does", "what it made", "time"], rows, texts=3)


def _without_examples(section: PageSection) -> PageSection:
    """A section without example rows; the section "Examples" is kept whole."""
    if section.title == "Examples":
        return section
    return PageSection(section.title, [block for block in section.blocks if block.kind != "examples"])


def _results(folder: Place, steps: Sequence[StepOfRun]) -> Iterator[Block]:
    """A table of the evaluations of each kind, and the figures that the recipe names as its results."""
    for kind in dict.fromkeys(step.kind for step in steps if step.kind.startswith("evaluate")):
        yield from _compared(folder, kind, [step.name for step in steps if step.kind == kind])
    if size_of(folder / RESULTS) is not None:
        figures = {name: value for name, value in read_record(folder / RESULTS).items() if name != "seconds"}
        rows = [
            (shown_text(name.replace("_", " "), 100), number(value, 2))
            for name, value in figures.items()
            if isinstance(value, int | float)
        ]
        if rows:
            yield Table(["figure", "value"], rows, title="The recipe's results")


def _compared(folder: Place, kind: str, names: Sequence[str]) -> Iterator[Block]:
    """A table of the main figures of two or more evaluations of one kind, with a row for each evaluation."""
    results = {name: read_record(folder / name / RESULTS) for name in names}
    figures = {name: {row[0]: row for row in _main_figures(result)} for name, result in results.items()}
    shared = [name for name in figures[names[0]] if all(name in table for table in figures.values())]
    if len(names) < 2 or not shared:
        return
    shared = shared[:_MOST_FIGURES]
    abouts = {name: result.get("about", {}) for name, result in results.items()}
    # A column for the models or the data is shown only if they differ.
    sides = [
        side for side in ("model", "data") if len({str(about.get(side)) for about in abouts.values()}) > 1
    ]
    rows = []
    for name in names:
        compared = [shown_text(model_display_name(str(abouts[name].get(side, ""))), 60) for side in sides]
        cells = (figures[name][figure] for figure in shared)
        rows.append((name, *compared, *(f"{value} ({ci})" if ci else value for _, value, ci in cells)))
    head = ["step", *sides, *shared]
    yield Table(head, rows, texts=max(1 + len(sides), 2), title=f"All evaluations by {kind}")
    if kind in MEANINGS:
        yield Note(f"{MEANINGS[kind]} 95 % confidence intervals are in brackets.")
