"""Settings of the evaluation of text classifiers."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from pairsmith.core.fields import Device, Dtype, TextsAtOnce
from pairsmith.core.settings import BY_CONTENT, Settings
from pairsmith.steps.evaluate.settings import Bootstraps, BootstrapSeed, TextLength
from pairsmith.training.classifier_settings import LabelColumn, TextColumn

Assigned = BeforeValidator(lambda value: _as_list(value))
"""Accepts in place of ``["a=b"]`` a single text, and in YAML a mapping ``{a: b}``."""


class EvaluateClassificationSettings(Settings):
    """Accuracy and macro F1 of a text classifier (D14)."""

    model: str = Field(
        description="A folder that train-classifier wrote. With --name, a sentence encoder: a folder or Hub "
        "id, or embedded:all-minilm-l6-v2.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Labelled texts: rows with the columns text and label (.jsonl, .csv, .tsv, .parquet), a "
        "dataset folder, or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    label_column: LabelColumn = None
    map: Annotated[list[str], Assigned] = Field(
        default=[],
        description="OLD=NEW: the label OLD of the data is called NEW by the model, as in 0=bad.",
    )
    name: Annotated[list[str], Assigned] = Field(
        default=[],
        description='LABEL=TEXT: describes a label, as in good="a good movie review". A text is given the '
        "label whose description is nearest to it, by any sentence encoder and without training; of several "
        "descriptions of a label the mean counts.",
    )
    batch_size: TextsAtOnce = 64
    max_length: TextLength = None
    bootstrap: Bootstraps = 1000
    seed: BootstrapSeed = 0
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _are_assigned(self) -> Self:
        for field in ("map", "name"):
            for given in getattr(self, field):
                left, _, right = given.partition("=")
                if not left.strip() or not right.strip():
                    form = "OLD=NEW" if field == "map" else "LABEL=TEXT"
                    raise ValueError(f"{field} is {given!r}; give {form}")
        old = [each.partition("=")[0].strip() for each in self.map]
        if twice := sorted({each for each in old if old.count(each) > 1}):
            raise ValueError(f"map names {', '.join(twice)} twice; give each label of the data once")
        if self.name and len(self.names()) < 2:
            raise ValueError("name has to be given for two labels or more")
        return self

    def mapping(self) -> dict[str, str]:
        """From the labels of the data to those of the model, where they differ."""
        return {old.strip(): new.strip() for old, _, new in (each.partition("=") for each in self.map)}

    def names(self) -> dict[str, list[str]]:
        """The descriptions of each label; empty for a trained classifier."""
        found: dict[str, list[str]] = {}
        for label, _, text in (each.partition("=") for each in self.name):
            found.setdefault(label.strip(), []).append(text.strip())
        return found


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [f"{left}={right}" for left, right in value.items()]
    return value
