"""The data set card: a README for a reader who has never heard of pairsmith."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from pairsmith.core.errors import redacted_values
from pairsmith.runs.attribution import Sources
from pairsmith.runs.folder import REJECTS, DatasetFolder
from pairsmith.runs.provenance import Attribution, Provenance, hub_data, hub_metadata

_SOURCE = "the place where it comes from"
_MANY_LABELS = 30
"""A table of the labels is shown for at most this many."""
_EXAMPLES = 3
"""Number of rows that are shown."""
_SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"),
)  # fmt: skip
MEANING = {
    "id": "name of the row; the same settings and inputs give the same ids",
    "sentence1": "the first text",
    "sentence2": "the second text",
    "text": "the text",
    "score": "how similar the two texts are claimed to be, from 0 (not at all) to 1 (same meaning)",
    "label": "the label the text or pair was written for",
}


@dataclass(frozen=True)
class Card:
    """A step's description of its rows. Counts of rows and rejects are taken from the folder itself."""

    title: str  # heading of the card
    description: str  # what the rows are and how they were made, in a few sentences of Markdown
    task_description: str = ""  # the task in words, e.g. the instructions the model followed
    counts: Mapping[str, int] | None = None  # numbers for a table of their own, by name, e.g. inputs read
    citations: Sequence[str] = ()  # works to cite, one Markdown line each
    licence: str = ""  # what a user has to know about rights in the inputs and in the model's output
    # Meanings of columns, where they differ from ``MEANING``.
    columns: Mapping[str, str] = field(default_factory=dict)
    # One sentence that says what made the rows.
    provenance: str = "The texts were made by a program; no person has checked each of them."
    tags: Sequence[str] = ("synthetic",)  # tags for the Hub, besides ``pairsmith``
    # The models and data that the rows were made with, for their licences and citations.
    sources: Sources = field(default_factory=Sources)
    task: str = ""  # the Hub's task category, where the columns do not determine it

    def about(self) -> Provenance:
        """The machine-readable part of the card, without passwords and tokens."""
        provenance = Provenance(
            title=_line(self.title),
            description=self.description.strip(),
            columns=dict(self.columns),
            citations=tuple(dict.fromkeys([*self.citations, *self.sources.citations])),
            credits=self.sources.credits,
            task=self.task,
        )
        return Provenance.model_validate(redacted_values(provenance.model_dump(mode="json")))


def render_card(card: Card, folder: DatasetFolder, schema: pa.Schema) -> str:
    """The README.md of ``folder``, whose rows have ``schema``: metadata for the Hub, then the card's text."""
    sections = [
        f"---\n{_metadata(card, folder, schema)}---\n\n# {_line(card.title)}\n\n{card.description.strip()}",
        _task(card),
        _rows(card, folder),
        _columns(card, schema),
        _labels(folder, schema),
        _examples(folder),
        _rejects(folder),
        _origin(card, folder),
        cite(card.about().citations),
        licences(card.licence, card.sources.credits),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _metadata(card: Card, folder: DatasetFolder, schema: pa.Schema) -> str:
    # `datasets` refuses a split without rows, and with it the whole folder, so such splits are omitted.
    splits = [split for split, rows in folder.split_rows.items() if rows] or folder.splits[:1]
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in splits]
    configs: list[dict[str, Any]] = [{"config_name": "default", "default": True, "data_files": files}]
    if folder.manifest.counts.rejects:
        rejects = [{"split": REJECTS, "path": "rejects/part-*.parquet"}]
        configs.append({"config_name": REJECTS, "data_files": rejects})
    made_with = card.sources.credits
    hub = hub_data(made_with)
    values: dict[str, Any] = {
        "pretty_name": _line(card.title),
        **hub_metadata(made_with),
        "tags": ["pairsmith", *card.tags],
        "task_categories": [card.task or task_category(schema)],
        **({"source_datasets": hub} if hub else {}),
        "size_categories": [next((name for size, name in _SIZES if folder.rows < size), "100B<n<1T")],
        "configs": configs,
    }
    # safe_dump quotes whatever needs it, so no text from outside can end or break the block.
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)


def task_category(schema: pa.Schema) -> str:
    """The Hub's task category for rows with these columns."""
    names = set(schema.names)
    if {"context", "answers"} <= names:
        return "question-answering"
    if {"document", "summary"} <= names:
        return "summarization"
    similarity = {"sentence2", "score"} <= names or "output" in names
    return "sentence-similarity" if similarity else "text-classification"


def cite(lines: Sequence[str]) -> str:
    """The section that says what to cite."""
    return "## Please cite\n\n" + "\n".join(f"- {_line(line)}" for line in lines) if lines else ""


def licences(text: str, made_with: Sequence[Attribution]) -> str:
    """The section on licences: ``text``, then a table with the licence of each source, as far as known."""
    parts = [text.strip()] if text.strip() else []
    if made_with:
        rows = [
            (
                credit.name,
                credit.role,
                ", ".join(credit.licences) or f"unknown: look at {credit.look or _SOURCE}",
            )
            for credit in made_with
        ]
        parts.append("It was made with\n\n" + _table(("what", "", "licence"), rows))
        parts.append("What these licences mean for the result is for its users to find out.")
    return "## Licence\n\n" + "\n\n".join(parts) if parts else ""


def _task(card: Card) -> str:
    if not card.task_description.strip():
        return ""
    # A fence longer than any run of backticks inside cannot be closed from inside.
    runs = re.findall(r"`+", card.task_description)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"## Task\n\n{fence}text\n{card.task_description.strip()}\n{fence}"


def _rows(card: Card, folder: DatasetFolder) -> str:
    rows = [(split, count) for split, count in folder.split_rows.items()]
    rows.append(("not kept (see below)", folder.manifest.counts.rejects))
    text = "## Rows\n\n" + _table(("split", "rows"), rows)
    if card.counts:
        text += "\n\n" + _table(("counted", "number"), card.counts.items())
    return text + (
        "\n\nOpen it with\n\n```python\nfrom datasets import load_dataset\n\n"
        'data = load_dataset("path/to/this/folder")\n```'
    )


def _columns(card: Card, schema: pa.Schema) -> str:
    meaning = {**MEANING, **card.columns}
    rows = [(column.name, str(column.type), meaning.get(column.name, "")) for column in schema]
    return "## Columns\n\n" + _table(("column", "type", "meaning"), rows)


def _labels(folder: DatasetFolder, schema: pa.Schema) -> str:
    column = next((name for name in ("score", "label") if name in schema.names), None)
    if column is None or not folder.rows:
        return ""
    values = pa.concat_tables([folder.table(split, [column]) for split in folder.splits])[column]
    counts = {entry["values"]: entry["counts"] for entry in values.value_counts().to_pylist()}
    if len(counts) <= _MANY_LABELS:
        ordered = sorted(counts.items(), key=lambda item: (item[0] is None, item[0]))
        return f"## Labels\n\n{_table((column, 'rows'), ordered)}"
    if pa.types.is_floating(schema.field(column).type):
        mean, least, most = pc.mean(values).as_py(), pc.min(values).as_py(), pc.max(values).as_py()
        spread = f"{least:.3f} to {most:.3f}, mean {mean:.3f}"
        return f"## Labels\n\n{len(counts):,} different values of `{column}`, {spread}."
    return f"## Labels\n\n{len(counts):,} different values of `{column}`."


def _examples(folder: DatasetFolder) -> str:
    rows = folder.head(_EXAMPLES)
    if not rows:
        return ""
    names = [name for name in rows[0] if name != "id"]
    return "## First rows\n\n" + _table(names, [[row[name] for name in names] for row in rows])


def _rejects(folder: DatasetFolder) -> str:
    counts = folder.manifest.counts.rejects_by_reason
    if not counts:
        return "## Rows not kept\n\nNone: every row that was made was kept."
    rows = [(*name.partition(": ")[::2], count) for name, count in counts.items()]
    return (
        "## Rows not kept\n\nRows that were made and then left out are in `rejects/`, each with the filter "
        "that removed it, the reason, and the row itself.\n\n" + _table(("filter", "reason", "rows"), rows)
    )


def _origin(card: Card, folder: DatasetFolder) -> str:
    manifest = folder.manifest
    rows = [("step", manifest.step), ("pairsmith", manifest.pairsmith)]
    rows += [(f"model {name}", revision) for name, revision in manifest.models.items()]
    rows += [(f"input {name}", f"SHA-256 {digest}") for name, digest in manifest.inputs.items()]
    rows += [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in manifest.settings.items()
    ]
    return (
        f"## How it was made\n\n{card.provenance} "
        "pairsmith is an open-source toolkit that makes labelled text data with language models. "
        "With the same settings, inputs and models it makes the same rows. "
        "`manifest.json` has all of this for programs.\n\n" + _table(("setting", "value"), rows)
    )


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(map(_cell, header))} |", f"|{' --- |' * len(header)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """``value`` as a table cell: one line of at most 200 characters, with Markdown and HTML escaped."""
    if isinstance(value, int):
        return f"{value:,}"
    text = _line("" if value is None else str(value))
    text = text if len(text) <= 200 else f"{text[:199]}…"
    return re.sub(r"([\\|`*\[\]<])", r"\\\1", text)


def _line(text: str) -> str:
    """``text`` on one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
