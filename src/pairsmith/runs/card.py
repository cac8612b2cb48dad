"""The data set card: a README for a reader who has never heard of pairsmith."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from pairsmith.core.errors import counted, redacted_values
from pairsmith.runs.attribution import SYNTHETIC, Sources
from pairsmith.runs.folder import DatasetFolder
from pairsmith.runs.manifest import REJECTS
from pairsmith.runs.provenance import Attribution, Provenance, hub_data, hub_metadata, joint_languages

_SOURCE = "the place where it comes from"
_MANY_LABELS = 30
"""A table of the labels is shown for at most this many."""
_EXAMPLES = 3
"""Number of rows that a card shows as examples."""
_READ_OF_CELL = 10_000
"""Number of characters of a text that are read for a table cell, which shows at most 200 characters."""
_SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"),
)  # fmt: skip
MEANING = {
    "id": "the row's id; the same settings and inputs give the same ids",
    "sentence1": "the first text",
    "sentence2": "the second text",
    "text": "the text",
    "score": "how similar the two texts are claimed to be, from 0 (not at all) to 1 (same meaning)",
    "label": "the label that the text or pair was written for",
    "source": "the data set that the row is from; if that is a mixture, followed by the source there",
    "input": "a text",
    "output": "a text that belongs to it",
    "document": "a document",
    "summary": "its summary",
    "input_id": "the same for all rows with this input",
    "output_id": "the same for all rows with this output",
    "title": "the title of the document, and of the section if there is one",
    "context": "the passage",
    "question": "a question about the passage",
    "answers": "the texts of the answers, and the character of the passage at which each starts, from 0",
    "query": "a search query",
    "positive": "a text that answers the query",
    "negatives": "texts that do not answer the query",
    "scores": "the score of the query and each of the negatives",
    "query_id": "the same for all rows with this query",
    "positive_id": "the same for all rows with this positive",
    "negative_ids": "the ids of the negatives: the same for a text wherever it occurs",
    "chunk": "the id of the chunk of a document that the query was written for",
    "kind": "the kind of query, such as question or keywords",
    "vector": "the text's vector, of length 1",
}
"""Meanings of columns that a card does not explain itself."""


@dataclass(frozen=True)
class Card:
    """A step's description of its rows. Counts of rows and rejects are taken from the folder itself."""

    title: str  # heading of the card
    description: str  # what the rows are and how they were made, in a few sentences of Markdown
    task_description: str = ""  # the instructions that the model followed
    # Numbers for a table of their own, by what they count, as a noun phrase: "input texts", "rows read".
    counts: Mapping[str, int] | None = None
    citations: Sequence[str] = ()  # works to cite, one Markdown line each
    licence: str = ""  # what a user has to know about rights in the inputs and in the model's output
    # Meanings of columns, where they differ from ``MEANING``.
    columns: Mapping[str, str] = field(default_factory=dict)
    # Meanings of columns that the rows keep from the source, whatever their names: a kept ``label`` is none
    # of the labels that the step gave.
    kept: Mapping[str, str] = field(default_factory=dict)
    # One sentence that says what made the rows, and whether people have checked them.
    provenance: str = "The texts were made by a program; no person has checked each of them."
    # Tags for the Hub, besides ``pairsmith``. If no model wrote new texts, ``synthetic_tag`` returns them.
    tags: Sequence[str] = (SYNTHETIC,)
    # The models and data that the rows were made with, for their licences and citations.
    sources: Sources = field(default_factory=Sources)
    task: str = ""  # the Hub's task category, where the columns do not determine it

    def about(self) -> Provenance:
        """The machine-readable part of the card, without passwords and tokens."""
        provenance = Provenance(
            title=_line(self.title),
            description=self.description.strip(),
            columns={**self.columns, **self.kept},
            citations=tuple(dict.fromkeys([*self.citations, *self.sources.citations])),
            credits=self.sources.credits,
            task=self.task,
        )
        return Provenance.model_validate(redacted_values(provenance.model_dump(mode="json")))


def render_card(card: Card, folder: DatasetFolder, schema: pa.Schema, options: str = "") -> str:
    """The README.md of ``folder``, whose rows have ``schema``: metadata for the Hub, then the card's text.

    ``options`` are the options of the command that made the rows; without options, no command is shown.
    """
    written = pa.schema([column for column in schema if column.name not in card.kept])
    sections = [
        f"---\n{_metadata(card, folder, written)}---\n\n# {_line(card.title)}\n\n{card.description.strip()}",
        _loading(folder),
        _examples(folder),
        _columns(card, schema),
        _rows(card, folder),
        _labels(folder, written),
        _rejects(folder),
        _instructions(card),
        _origin(folder, options),
        limits(card.provenance, card.sources.credits),
        cite(card.about().citations),
        licences(card.licence, card.sources.credits),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _metadata(card: Card, folder: DatasetFolder, schema: pa.Schema) -> str:
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in _loadable(folder)]
    configs: list[dict[str, Any]] = [{"config_name": "default", "default": True, "data_files": files}]
    if folder.manifest.counts.rejects:
        rejects = [{"split": REJECTS, "path": "rejects/part-*.parquet"}]
        configs.append({"config_name": REJECTS, "data_files": rejects})
    made_with = card.sources.credits
    hub, task = hub_data(made_with), card.task or task_category(schema)
    values: dict[str, Any] = {
        "pretty_name": _line(card.title),
        **hub_metadata(made_with),
        "tags": ["pairsmith", *card.tags],
        **({"task_categories": [task]} if task else {}),
        **({"source_datasets": hub} if hub else {}),
        "size_categories": [next((name for size, name in _SIZES if folder.rows < size), "100B<n<1T")],
        "configs": configs,
    }
    # safe_dump quotes whatever needs it, so no text from outside can end or break the block.
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)


def _loadable(folder: DatasetFolder) -> list[str]:
    """The splits to list: `datasets` refuses a split without rows, and with it the whole folder."""
    return [split for split, rows in folder.split_rows.items() if rows] or [*folder.splits[:1]]


def task_category(schema: pa.Schema) -> str:
    """The Hub's task category for rows with these columns; empty if it is unclear."""
    names = set(schema.names)
    if {"context", "answers"} <= names:
        return "question-answering"
    if {"document", "summary"} <= names:
        return "summarization"
    if {"sentence2", "score"} <= names or "output" in names:
        return "sentence-similarity"
    if "query" in names:
        return "text-retrieval"
    if "vector" in names:
        return "feature-extraction"
    return "text-classification" if "label" in names else ""


def cite(lines: Sequence[str]) -> str:
    """The section that says what to cite."""
    return "## Please cite\n\n" + "\n".join(f"- {_line(line)}" for line in lines) if lines else ""


def limits(text: str, made_with: Sequence[Attribution]) -> str:
    """The section on limits: ``text``, and what is known about the language of the data sets used."""
    parts = [text, "Expect errors, and the biases of the models and data that it was made with."]
    if languages := joint_languages(made_with):
        parts.append(f"Language of the data, as their cards say: {', '.join(languages)}.")
    elif any(credit.role == "data" for credit in made_with):
        parts.append("The language of the data is not recorded.")
    return "## Limits\n\n" + " ".join(parts)


def repeat(step: str, version: str, options: str) -> str:
    """The section on how a folder was made; without ``options``, it was not made by a command of its own."""
    text = (
        f"## How it was made\n\nIt was made by the step `{step}` of pairsmith {version}, an open-source "
        "toolkit that makes labelled text data with language models and trains small models on such data. "
    )
    if not options:
        return f"{text}The same settings, inputs and models give the same result."
    command = fenced("sh", f"pairsmith {step} {options} --out FOLDER")
    return (
        f"{text}With the same inputs and models, this command gives the same result (paths are shown without "
        f"their folders); `pairsmith {step} --help` explains the settings.\n\n{command}"
    )


def fenced(language: str, text: str) -> str:
    """``text`` as a code block, with a fence that no run of backticks in it can close."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


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
        parts.append(_table(("made with", "role", "licence"), rows))
        parts.append(
            "The licences are those that the cards of the sources name. What they mean for the result is for "
            "its users to find out."
        )
    return "## Licence\n\n" + "\n\n".join(parts) if parts else ""


def _instructions(card: Card) -> str:
    text = card.task_description.strip()
    return f"## Instructions to the model\n\n{fenced('text', text)}" if text else ""


def _rows(card: Card, folder: DatasetFolder) -> str:
    rows = [*folder.split_rows.items()]
    if rejects := folder.manifest.counts.rejects:
        rows.append(("left out (see below)", rejects))
    text = "## Rows\n\n" + _table(("split", "rows"), rows)
    return f"{text}\n\n{_table(('count of', 'number'), card.counts.items())}" if card.counts else text


def _loading(folder: DatasetFolder) -> str:
    lines = [
        "from datasets import load_dataset\n",
        'folder = "path/to/this/folder"  # or OWNER/NAME of a data set on the Hugging Face Hub',
        f'rows = load_dataset(folder, split="{_loadable(folder)[0]}")',
    ]
    if folder.manifest.counts.rejects:
        lines.append(f'left_out = load_dataset(folder, "{REJECTS}", split="{REJECTS}")')
    return "\n".join(["## How to load it\n", "```python", *lines, "```"])


def _columns(card: Card, schema: pa.Schema) -> str:
    meaning = {**MEANING, **card.columns, **card.kept}
    rows = [(column.name, str(column.type), meaning.get(column.name, "")) for column in schema]
    return "## Columns\n\n" + _table(("column", "type", "meaning"), rows)


def _labels(folder: DatasetFolder, schema: pa.Schema) -> str:
    column = next((name for name in ("score", "label") if name in schema.names), None)
    if column is None or not folder.rows or pa.types.is_nested(schema.field(column).type):
        return ""
    values = pa.concat_tables([folder.table(split, [column]) for split in folder.splits])[column]
    counts = {entry["values"]: entry["counts"] for entry in values.value_counts().to_pylist()}
    heading, measured = f"## {column.capitalize()}s\n\n", pa.types.is_floating(schema.field(column).type)
    # Measured scores, such as cosines, have about as many values as there are rows.
    if len(counts) <= (min(_MANY_LABELS, folder.rows // 2 + 1) if measured else _MANY_LABELS):
        ordered = sorted(counts.items(), key=lambda item: (item[0] is None, item[0]))
        return heading + _table((column, "rows"), ordered)
    if measured:
        mean, least, most = pc.mean(values).as_py(), pc.min(values).as_py(), pc.max(values).as_py()
        spread = f"{least:.3f} to {most:.3f}, mean {mean:.3f}"
        return f"{heading}{counted(len(counts), 'different values')} of `{column}`, {spread}."
    return f"{heading}{counted(len(counts), 'different values')} of `{column}`."


def _examples(folder: DatasetFolder) -> str:
    rows = folder.head(_EXAMPLES)
    if not rows:
        return ""
    names = [name for name in rows[0] if name != "id" and not name.endswith(("_id", "_ids"))]
    cells = [[_rounded(row[name]) for name in names] for row in rows]
    return "## First rows\n\n" + _table(names, cells)


def _rounded(value: Any) -> Any:
    """``value`` with floats of 4 digits, also in lists and structs."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [*map(_rounded, value)] if isinstance(value, list) else value


def _rejects(folder: DatasetFolder) -> str:
    counts = folder.manifest.counts.rejects_by_reason
    if not counts:
        return ""
    rows = [(*name.partition(": ")[::2], count) for name, count in counts.items()]
    return (
        "## Rows left out\n\nRows that were left out are in `rejects/`, each with the filter that removed "
        "it, the reason, and the row itself as JSON.\n\n" + _table(("filter", "reason", "rows"), rows)
    )


def _origin(folder: DatasetFolder, options: str) -> str:
    manifest = folder.manifest
    rows = [(f"version of the {name}", revision) for name, revision in manifest.models.items()]
    rows += [(f"SHA-256 of {name}", digest) for name, digest in manifest.inputs.items()]
    for name, value in manifest.settings.items():
        if isinstance(value, dict):
            value = value.get("name", value)  # a task, whose instructions have a section of their own
        if value not in (None, [], ""):
            rows.append((name, value))
    return f"{repeat(manifest.step, manifest.pairsmith, options)}\n\n{_table(('setting', 'value'), rows)}"


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(map(_cell, header))} |", f"|{' --- |' * len(header)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """``value`` as a table cell: one line of at most 200 characters, with Markdown and HTML escaped."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, bool | list | dict):
        value = json.dumps(value, ensure_ascii=False)
    value = "" if value is None else str(value)
    text = _line(value[:_READ_OF_CELL])  # all of a text of megabytes would take seconds
    text = text if len(text) <= 200 and len(value) <= _READ_OF_CELL else f"{text[:199]}…"
    return re.sub(r"([\\|`*\[\]<])", r"\\\1", text)


def _line(text: str) -> str:
    """``text`` on one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
