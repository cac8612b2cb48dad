"""What the page says in words about a dataset folder: its lead, the verdict, and how the rows were made."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pairsmith.core.errors import counted
from pairsmith.core.progress import clock
from pairsmith.runs import DatasetFolder, model_display_name
from pairsmith.runs.log import working_seconds
from pairsmith.tools.meanings import labels_of_task
from pairsmith.tools.report.parts import Facts, Finding, shown_text
from pairsmith.tools.report.rows import PAIRS, shown_label
from pairsmith.tools.report.words import settings_in_words


def checks_in_words(folder: DatasetFolder, against: Sequence[str]) -> str:
    """What the page checks for and what it does not, for the end of the box with the verdict."""
    names = set(folder.schema().names)
    labelled = bool(names & {"label", "score"})
    checks = []
    if labelled:
        checks.append("how many rows each label has, whether the texts of labels with enough rows differ")
    if any(set(sides) <= names for sides in PAIRS):
        checks.append("whether the two texts of a pair are near-copies")
    checks.append("whether many texts begin alike")
    unchecked = ""
    if against:
        checks.append("whether rows share text with the evaluation data")
    else:
        unchecked = (
            " Not checked: whether rows share text with evaluation data. To check it, name the data with the "
            "option against of pairsmith report."
        )
    return (
        f"Checked: {', '.join(checks)}.{unchecked} No check can tell whether the "
        f"{'labels' if labelled else 'rows'} are correct: read the examples, or have people label some rows "
        "with pairsmith audit."
    )


FEWEST_ROWS = 100
"""The checks say little about fewer rows: a share of them is uncertain by ten percentage points or more."""


def verdict(rows: int, findings: Sequence[Finding]) -> str:
    """One sentence: whether the checks found something that speaks against training on the rows."""
    if not rows:
        return "There are no rows to train on."
    if not findings and rows < FEWEST_ROWS:
        prove = counted(rows, "rows prove")
        return (
            f"The checks found nothing wrong, but {prove} little: make at least {FEWEST_ROWS} before you "
            "rely on them."
        )
    if not findings:
        return "The checks found no reason not to train on these rows."
    points = "this point" if len(findings) == 1 else f"these {len(findings)} points"
    return f"Before you train on these rows, look at {points}:"


def dataset_lead(folder: DatasetFolder) -> list[str]:
    """The lines under the title of a data set's page: its card's description, and the number of rows."""
    about = folder.manifest.about
    description = about.description.replace("`", "").strip()
    splits = folder.split_rows
    counts = counted(folder.rows, "rows")
    if len(splits) > 1:
        counts += f": {', '.join(f'{rows:,} in {split}' for split, rows in splits.items())}"
    if rejects := folder.manifest.counts.rejects:
        counts += f". {counted(rejects, 'more were')} rejected"
    return [*([shown_text(description)] if description else []), f"{counts}."]


def provenance(folder: DatasetFolder) -> Facts:
    """Which step made the data set, from what, with which models and settings, and how long it took."""
    manifest = folder.manifest
    rows = [("step", manifest.step), *sources(manifest.about.model_dump())]
    if cost := seconds(folder):
        rows.append(("time taken", f"{clock(cost)} ({folder.rows / cost:,.1f} rows a second)"))
    rows += settings_in_words(manifest.step, manifest.settings)
    if isinstance(task := manifest.settings.get("task"), Mapping):
        rows.insert(1, ("task", shown_text(str(task.get("name", "")))))
        rows += [
            (
                f"instruction {number} for {shown_label(label['name'])}".replace(" 1 for", " for"),
                shown_text(text),
            )
            for label in labels_of_task(manifest.settings)
            for number, text in enumerate(
                map(str, [label["instruction"], *(label.get("more_instructions") or ())]), start=1
            )
        ]
    return Facts(
        [*rows, ("pairsmith", f"version {manifest.pairsmith}"), ("begun", _moment(manifest.created))]
    )


def _moment(when: str) -> str:
    """An ISO time as ``2026-11-26 16:06 UTC``; any other text as it is."""
    try:
        return f"{datetime.fromisoformat(when):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return shown_text(when, 40)


def sources(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The names and licences of the models and of the data that were used, from the ``about`` of a record."""
    rows = []
    for role, word in (("model", "models"), ("data", "data")):
        names = [
            shown_text(model_display_name(str(credit.get("name", ""))), 100)
            for credit in about.get("credits", ())
            if isinstance(credit, Mapping) and credit.get("role") == role
        ]
        if names:
            rows.append(
                (word.removesuffix("s") if len(names) == 1 else word, ", ".join(dict.fromkeys(names)))
            )
    licences = {
        shown_text(model_display_name(str(credit.get("name", ""))), 100): shown_text(
            ", ".join(map(str, credit.get("licences") or ["unknown"])), 100
        )
        for credit in about.get("credits", ())
        if isinstance(credit, Mapping)
    }
    if licences:
        shown = "; ".join(f"{name}: {licence}" for name, licence in licences.items())
        rows.append(("licences, as far as they are known", shown))
    return rows


def seconds(folder: DatasetFolder) -> float:
    """How many seconds the step worked, by its log; the ranks of an array job are added up."""
    return working_seconds(folder.path, folder.manifest.created)
