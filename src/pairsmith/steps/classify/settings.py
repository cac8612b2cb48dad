"""Settings of the step that labels texts with a text classifier."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import Device, Dtype, TextColumn, TextLength, TextsAtOnce, WorkerSettings
from pairsmith.core.settings import BY_CONTENT
from pairsmith.steps.evaluate.classification_settings import Classifier, LabelNames, check_names


class ClassifySettings(WorkerSettings):
    """Give each text the label that a classifier finds likeliest (D14)."""

    model: Classifier
    data: str = Field(
        description="Texts to label: a .txt file with one on each line, rows with a column text (.jsonl, "
        ".csv, .tsv, .parquet), a dataset folder, or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    name: LabelNames = Field(default=[])
    least: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="Smallest confidence with which a label is accepted; texts with less become rejects. "
        "Unset: all labels are accepted.",
    )
    batch_size: TextsAtOnce = 64
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    shard_size: Annotated[
        int, Field(ge=1, le=100_000, description="Number of texts that are labelled and saved together.")
    ] = 1_000

    @model_validator(mode="after")
    def _are_assigned(self) -> Self:
        check_names(self.name)
        return self
