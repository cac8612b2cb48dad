"""Settings for training a text classifier."""

from typing import Annotated

from pydantic import Field, field_validator

from pairsmith.core.fields import Device, Dtype, TextsAtOnce
from pairsmith.core.model_names import MINILM
from pairsmith.core.settings import BY_CONTENT, Settings
from pairsmith.training.settings import Pooling, Several

TextColumn = Annotated[
    str | None,
    Field(description="Column that holds the texts. Unset: text, sentence, or another usual name."),
]
LabelColumn = Annotated[
    str | None,
    Field(description="Column that holds the labels. Unset: label, or another usual name."),
]


class TrainClassifierSettings(Settings):
    """A classifier of texts: a logistic regression on the vectors of a sentence encoder (D14)."""

    base: str = Field(
        default=MINILM,
        description="Sentence encoder whose vectors are classified; it is not changed: a folder or Hub id of "
        "a sentence-transformers or transformers model, embedded:all-minilm-l6-v2, or pairsmith:tiny.",
    )
    data: str = Field(
        description="Labelled texts: a folder that generate or postprocess wrote, a file with the columns "
        "text and label (.jsonl, .csv, .tsv, .parquet), or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    validation: str | None = Field(
        default=None,
        description="Labelled texts to measure on, by which the best of several --c is chosen. Unset: the "
        "split validation of --data; without one, several are compared by five-fold cross-validation.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    label_column: LabelColumn = None
    c: Annotated[list[float], Several] = Field(
        default=[1.0],
        min_length=1,
        description="C of the logistic regression: the lower, the smaller its weights stay, and the less it "
        "follows single texts. Of several, the one with the lowest log loss is kept; by texts of a language "
        "model that is too high a C for texts of people, so give several only with rows of people.",
    )
    balanced: bool = Field(
        default=True,
        description="Give all labels the same weight, however many texts each has: how many of a label were "
        "written says nothing about how frequent it is.",
    )
    pooling: Pooling = "default"
    batch_size: TextsAtOnce = 64
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest text in tokens; the rest is cut off. Unset: the base's own limit.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the parts of the cross-validation.")
    device: Device = "auto"
    dtype: Dtype = "float32"

    @field_validator("c")
    @classmethod
    def _positive(cls, values: list[float]) -> list[float]:
        if any(not 0 < value < float("inf") for value in values):
            raise ValueError("every C must be above 0")
        if len(set(values)) < len(values):
            raise ValueError(f"{', '.join(f'{value:g}' for value in values)}: give each C once")
        return values
