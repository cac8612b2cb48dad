"""What a folder is, in words: the lines under the title of its page, and how it was made."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pairsmith.core.progress import clock
from pairsmith.runs import DatasetFolder, model_display_name
from pairsmith.runs.log import recent
from pairsmith.tools.report.parts import Facts, Finding, shown_text
from pairsmith.tools.report.rows import PAIRS, label_name
from pairsmith.tools.report.words import settings_in_words

_PARTS = {
    "label": "how many rows each label has, whether the texts of labels with enough rows differ",
    "pair": "whether the two texts of a pair are near-copies",
}
_READ = (
    "Nothing here can say whether the {what} are right: read the examples, or have people check some rows "
    "with pairsmith audit."
)


def checked(folder: DatasetFolder, against: Sequence[str]) -> str:
    """What was looked at, for the end of the box with the verdict."""
    names = set(folder.schema().names)
    labelled = bool(names & {"label", "score"})
    looked = [_PARTS["label"]] if labelled else []
    looked += [_PARTS["pair"]] if any(set(sides) <= names for sides in PAIRS) else []
    looked += ["how texts begin", *(["whether rows share text with the evaluation data"] if against else [])]
    text = f"Looked at: {', '.join(looked)}."
    if not against:
        text += " Not looked at: whether rows share text with evaluation data, as none was named (--against)."
    return f"{text} {_READ.format(what='labels' if labelled else 'rows')}"


def verdict(rows: int, findings: Sequence[Finding]) -> str:
    """Whether a data set is fit to train on, as far as the page can tell."""
    if not rows:
        return "There is nothing to train on."
    if not findings:
        return "Nothing was found that speaks against training on these rows."
    points = "this" if len(findings) == 1 else f"these {len(findings)} points"
    return f"Before you train on these rows, look at {points}:"


def lead(folder: DatasetFolder) -> list[str]:
    """The lines under the title of a data set's page: what its card says, and how many rows it has."""
    about = folder.manifest.about
    description = about.description.replace("`", "").strip()
    splits = folder.split_rows
    counts = f"{folder.rows:,} rows"
    if len(splits) > 1:
        counts += f": {', '.join(f'{rows:,} in {split}' for split, rows in splits.items())}"
    if rejects := folder.manifest.counts.rejects:
        counts += f". {rejects:,} {'other was' if rejects == 1 else 'others were'} not kept"
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
                f"instruction {number} for {label_name(label['name'])}".replace(" 1 for", " for"),
                shown_text(text),
            )
            for label in task.get("labels", [])
            for number, text in enumerate(
                map(str, [label["instruction"], *(label.get("more_instructions") or ())]), start=1
            )
        ]
    return Facts(
        [*rows, ("pairsmith", f"version {manifest.pairsmith}"), ("begun", _moment(manifest.created))]
    )


def _moment(when: str) -> str:
    """A time as ``2026-11-26 16:06 UTC``; as it is written, where it is none."""
    try:
        return f"{datetime.fromisoformat(when):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return shown_text(when, 40)


def sources(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The models and the data that something was made with, by their names, from its record's ``about``."""
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
    return rows


def seconds(folder: DatasetFolder) -> float:
    """Seconds that the step worked, by its log: from each start to the last shard finished after it."""
    total, mark = timedelta(), None
    for event in recent(folder.path):
        when = datetime.fromisoformat(event["time"])
        if event.get("event") == "start":
            mark = when
        elif event.get("event") == "shard" and mark:
            total, mark = total + (when - mark), when
    return total.total_seconds()
