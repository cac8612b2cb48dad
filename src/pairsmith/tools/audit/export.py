"""Exports the answers as a dataset folder and in the formats of Label Studio and Argilla."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairsmith.core.progress import Silent
from pairsmith.data.filters import AGREEMENT
from pairsmith.data.schemas import REJECT, Reject, text_schema, to_table
from pairsmith.runs import Card, FolderWriter, Run, Sources
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import JSON, write_atomic
from pairsmith.tools.audit.agreement import AnnotatorLabels, Votes
from pairsmith.tools.audit.rows import Audit
from pairsmith.tools.export.annotation import label_config

LABELLED, ARGILLA = "labelled", "argilla.json"
LABEL_STUDIO, LABEL_STUDIO_CONFIG = "label-studio.json", "label-studio.xml"
_PEOPLE = uuid.UUID("5b1b7b5e-6d0c-5e0b-9d5f-0e6a51f3c0de")
"""Namespace of the UUIDs that Argilla needs for annotators; each is derived from the name."""


def export_annotations(
    audit: Audit,
    votes: Votes,
    most: AnnotatorLabels,
    out: Path,
    source: str,
    sources: Sources,
    tags: Sequence[str] = (),
) -> None:
    """Write the labelled rows in all formats into the audit's folder, replacing earlier exports.

    Args:
        audit: the rows that were labelled.
        votes: the labels of each annotator.
        most: by row id, the label that most annotators gave. Labelled rows without such a label are rejects.
        out: the audit's folder.
        source: the hash of the data.
        sources: where the data come from, with their licences.
        tags: tags of the data set card besides ``human-labelled``.
    """
    decides: dict[str, JSON] = {"labels": tuple(audit.labels), "answers": votes}
    rows, rejects = labelled_rows(audit, votes, most)
    writer = FolderWriter.start(
        Run(out / LABELLED, Silent(), fresh=True),
        Identity.of("audit", decides, {"data": source}),
        rows.schema,
    )
    writer.commit_all({"train": rows}, to_table(rejects, REJECT))
    writer.finish(
        Card(
            "Rows labelled by people",
            "Each row has the label that most people gave it; none of them saw its label in the data.",
            columns={
                "annotators": "how many people labelled the row",
                "share": "share of these people who gave it this label",
            },
            provenance="The labels were given by people who did not see the labels in the data.",
            tags=("human-labelled", *tags),
            sources=sources,
        )
    )
    tasks, records = label_studio_tasks(audit, votes), argilla_records(audit, votes)
    for name, content in ((LABEL_STUDIO, tasks), (ARGILLA, records)):
        write_atomic(out / name, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
    config = label_config(list(audit.rows[0].texts), audit.labels, audit.question)
    write_atomic(out / LABEL_STUDIO_CONFIG, config.encode())


def labelled_rows(audit: Audit, votes: Votes, most: AnnotatorLabels) -> tuple[pa.Table, list[Reject]]:
    """The rows, each with its majority label and the label's share of answers; and the rejects."""
    column = "score" if audit.graded else "label"
    schema = pa.schema(
        [
            *text_schema("id", *audit.rows[0].texts),
            (column, pa.float64() if audit.graded else pa.string()),
            ("annotators", pa.int64()),
            ("share", pa.float64()),
        ]
    )
    rows, rejects = [], []
    for row in audit.rows:
        answers = [labels[row.id] for labels in votes.values() if row.id in labels]
        if row.id in most:
            label = float(most[row.id]) if audit.graded else most[row.id]
            share = answers.count(most[row.id]) / len(answers)
            counted = {column: label, "annotators": len(answers), "share": share}
            rows.append({"id": row.id, **row.texts, **counted})
        elif answers:
            counts = ", ".join(f"{label} by {answers.count(label)}" for label in dict.fromkeys(answers))
            rejects.append(
                Reject.of(row.id, AGREEMENT, "no label has the most votes", {**row.texts, "given": counts})
            )
    return pa.Table.from_pylist(rows, schema), rejects


def label_studio_tasks(audit: Audit, votes: Votes) -> list[dict[str, Any]]:
    """The rows as tasks for an import into Label Studio, with the annotators' labels as annotations."""
    choice = {"from_name": "label", "to_name": next(iter(audit.rows[0].texts)), "type": "choices"}
    tasks: list[dict[str, Any]] = []
    for row in audit.rows:
        answers = {name: labels[row.id] for name, labels in votes.items() if row.id in labels}
        results = [choice | {"value": {"choices": [label]}} for label in answers.values()]
        data: dict[str, Any] = {"row": row.id, **row.texts, "annotators": list(answers)}
        tasks.append({"data": data, "annotations": [{"result": [result]} for result in results]})
    return tasks


def argilla_records(audit: Audit, votes: Votes) -> list[dict[str, Any]]:
    """The rows as records with the annotators' labels, which Argilla's ``records.from_json`` reads."""
    people = {name: str(uuid.uuid5(_PEOPLE, name)) for name in votes}
    return [
        {
            "id": row.id,
            "fields": dict(row.texts),
            "metadata": {},
            "suggestions": {},
            "vectors": {},
            "responses": {
                "label": [
                    {"value": labels[row.id], "user_id": people[name], "status": "submitted"}
                    for name, labels in votes.items()
                    if row.id in labels
                ]
            },
        }
        for row in audit.rows
    ]
