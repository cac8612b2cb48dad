"""Export to the annotation tools Label Studio and Argilla, with the rows' labels as suggestions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from pairsmith.core.errors import SettingsError
from pairsmith.data.kinds import WITH_NEGATIVES, Row, RowKind
from pairsmith.data.tasks import label_text
from pairsmith.tools.audit.rows import question_on
from pairsmith.tools.export.files import Files, Splits
from pairsmith.tools.report.parts import column_words

_MOST_LABELS = 20
"""Largest number of labels to choose from: people cannot choose among more."""

_SUGGESTED = ("label", "score")
"""Columns whose values are suggested to the people who label; rows without them get no suggestion."""

_FITS = ("yes", "no")
"""The choices if rows have no label: whether their texts belong together."""


def label_studio_files(splits: Splits, kind: RowKind) -> Files:
    """Label Studio: ``label-config.xml``, and each split's tasks with the rows' labels as predictions."""
    fields, choices = _fields(kind), _choices(splits, kind, "label-studio")
    yield "label-config.xml", [label_config(fields, choices, question_on(kind.texts, kind.claim == "score"))]

    def task(row: Row) -> dict[str, Any]:
        data = {"data": {"id": row["id"], **_texts(row, fields)}}
        if kind.claim not in _SUGGESTED:
            return data
        chosen = {"choices": [label_text(row[kind.claim])]}
        prediction = {"from_name": "label", "to_name": fields[0], "type": "choices", "value": chosen}
        return {**data, "predictions": [{"model_version": "pairsmith", "result": [prediction]}]}

    for split, rows in splits.items():
        yield f"{split}.json", [_json([task(row) for row in rows])]


def label_config(fields: Sequence[str], choices: Sequence[str], question: str) -> str:
    """A labelling interface in Label Studio's XML: named texts, a question, and a button for each choice."""
    texts = "".join(
        f"  <Header value={quoteattr(column_words(name))}/>\n"
        f"  <Text name={quoteattr(name)} value={quoteattr(f'${name}')}/>\n"
        for name in fields
    )
    buttons = "".join(f"    <Choice value={quoteattr(choice)}/>\n" for choice in choices)
    opening = f'  <Choices name="label" toName={quoteattr(fields[0])} choice="single" showInLine="true">\n'
    return f"<View>\n{texts}  <Header value={quoteattr(question)}/>\n{opening}{buttons}  </Choices>\n</View>"


def argilla_files(splits: Splits, kind: RowKind) -> Files:
    """Argilla: ``settings.json``, and the records of each split with the rows' labels as suggestions."""
    fields, choices = _fields(kind), _choices(splits, kind, "argilla")
    question = question_on(kind.texts, kind.claim == "score")
    text = {"type": "text", "use_markdown": False}
    options = [{"value": choice, "text": choice} for choice in choices]
    selection = {"type": "label_selection", "options": options}
    settings = {
        "guidelines": question,
        "fields": [
            {"name": name, "title": column_words(name), "required": True, "settings": text} for name in fields
        ],
        "questions": [{"name": "label", "title": question, "required": True, "settings": selection}],
    }
    yield "settings.json", [_json(settings)]

    def record(row: Row) -> dict[str, Any]:
        texts = {"id": str(row["id"]), "fields": _texts(row, fields)}
        if kind.claim not in _SUGGESTED:
            return texts
        return {
            **texts,
            "suggestions": {"label": {"value": label_text(row[kind.claim]), "agent": "pairsmith"}},
        }

    for split, rows in splits.items():
        yield f"{split}.json", [_json([record(row) for row in rows])]


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1)


def _fields(kind: RowKind) -> Sequence[str]:
    if kind is WITH_NEGATIVES:
        raise SettingsError(
            "this format is for people who label one pair or text at a time; these rows are "
            f"{kind.name}; choose another --form, such as triplets"
        )
    return (*kind.texts, "answer") if kind.claim == "answers" else kind.texts


def _texts(row: Row, fields: Sequence[str]) -> Mapping[str, str]:
    return {name: row["answers"]["text"][0] if name == "answer" else str(row[name]) for name in fields}


def _choices(splits: Splits, kind: RowKind, form: str) -> Sequence[str]:
    if kind.claim not in _SUGGESTED:
        return _FITS
    labels = sorted({label_text(row[kind.claim]) for rows in splits.values() for row in rows})
    if len(labels) > _MOST_LABELS:
        raise SettingsError(
            f"--form {form} makes a button for each {kind.claim}, but these rows have {len(labels)} "
            f"different {kind.claim}s, more than {_MOST_LABELS}; export rows with fewer, such as those that "
            "generate wrote"
        )
    return labels
