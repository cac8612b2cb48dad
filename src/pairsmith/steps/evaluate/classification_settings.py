"""Settings of the evaluation of text classifiers."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from pairsmith.core.fields import Device, Dtype, LabelColumn, TextColumn, TextLength, TextsAtOnce
from pairsmith.core.settings import BY_CONTENT
from pairsmith.steps.evaluate.settings import ComparedSettings

Assigned = BeforeValidator(lambda value: _as_list(value))
"""Accepts a single text ``"a=b"``, or in YAML a mapping ``{a: b}``, instead of the list ``["a=b"]``."""

Classifier = Annotated[
    str,
    Field(
        description="A folder that train-classifier wrote. With --name, a sentence encoder: a folder or Hub "
        "id, or embedded:all-minilm-l6-v2.",
        json_schema_extra=BY_CONTENT,
    ),
]
LabelNames = Annotated[
    list[str],
    Assigned,
    Field(
        description='LABEL=TEXT: description of a label, as in good="a good movie review". Each text gets '
        "the label whose description has the most similar vector, by any sentence encoder, without training. "
        "If a label has several descriptions, the mean of their vectors is used."
    ),
]


class EvaluateClassificationSettings(ComparedSettings):
    """Accuracy and macro F1 of a text classifier (D14)."""

    model: Classifier
    data: str = Field(
        description="Labelled texts: rows with the columns text and label (.jsonl, .csv, .tsv, .parquet), a "
        "dataset folder, or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    label_column: LabelColumn = None
    map: Annotated[list[str], Assigned] = Field(
        default=[], description="OLD=NEW: the model's name NEW for the label OLD of the data, as in 0=bad."
    )
    name: LabelNames = Field(default=[])
    batch_size: TextsAtOnce = 64
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _are_assigned(self) -> Self:
        check_assigned("map", self.map, "OLD=NEW")
        check_names(self.name)
        old = [assignment.partition("=")[0].strip() for assignment in self.map]
        if repeated := sorted({label for label in old if old.count(label) > 1}):
            raise ValueError(f"map names {', '.join(repeated)} twice; give each label of the data once")
        return self

    def mapping(self) -> dict[str, str]:
        """The model's label for each label of the data that has another name."""
        return {
            old.strip(): new.strip() for old, _, new in (assignment.partition("=") for assignment in self.map)
        }


def label_descriptions(assignments: Sequence[str]) -> dict[str, list[str]]:
    """The descriptions of each label, from assignments ``LABEL=TEXT``."""
    descriptions: dict[str, list[str]] = {}
    for label, _, text in (assignment.partition("=") for assignment in assignments):
        descriptions.setdefault(label.strip(), []).append(text.strip())
    return descriptions


def check_names(assignments: Sequence[str]) -> None:
    """Raise a ``ValueError`` for texts that are not ``LABEL=TEXT``, and if only one label is described."""
    check_assigned("name", assignments, "LABEL=TEXT")
    if assignments and len(label_descriptions(assignments)) < 2:
        raise ValueError("name has to be given for two labels or more")


def check_assigned(field: str, values: Sequence[str], form: str) -> None:
    """Raise a ``ValueError`` for values of a field without a text on both sides of an equals sign."""
    for value in values:
        left, _, right = value.partition("=")
        if not left.strip() or not right.strip():
            raise ValueError(f"{field} is {value!r}; give {form}")


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [f"{left}={right}" for left, right in value.items()]
    return value
