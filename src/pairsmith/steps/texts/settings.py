"""Settings of the steps that label texts, tag the named entities in them, and summarise them."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import (
    Device,
    Dtype,
    SummarizedAtOnce,
    SummarizedLength,
    SummaryBeams,
    SummaryTokens,
    TextColumn,
    TextLength,
    TextsAtOnce,
    WorkerSettings,
)
from pairsmith.core.settings import BY_CONTENT
from pairsmith.steps.evaluate.classification_settings import Classifier, LabelNames, check_names


class TextRowSettings(WorkerSettings):
    """Settings of a step that gives each text of a source new columns."""

    model: str
    data: str = Field(
        description="Texts: a .txt file with one on each line, rows with a column text (.jsonl, .csv, .tsv, "
        ".parquet), a dataset folder, or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    shard_size: Annotated[
        int, Field(ge=1, le=100_000, description="Number of texts that are processed and saved together.")
    ] = 1_000


class ClassifySettings(TextRowSettings):
    """Give each text the label that a classifier finds likeliest (D14)."""

    model: Classifier
    name: LabelNames = Field(default=[])
    least: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="Smallest confidence with which a label is accepted; other texts become rejects. "
        "Unset: all labels are accepted.",
    )
    batch_size: TextsAtOnce = 64

    @model_validator(mode="after")
    def _are_assigned(self) -> Self:
        check_names(self.name)
        return self


class TagSettings(TextRowSettings):
    """Find the named entities of each text with a tagger (Q10)."""

    model: str = Field(
        description="A folder that train-tagger wrote, or a folder or Hub id of a token classification model "
        "of transformers whose labels are BIO tags.",
        json_schema_extra=BY_CONTENT,
    )
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Largest number of tokens of a sentence; longer ones are cut between words. Unset: the "
        "model's own limit.",
    )


class SummarizeSettings(TextRowSettings):
    """Write a summary of each text by beam search (M9)."""

    model: str = Field(
        description="A folder that train-summarizer wrote, or a folder or Hub id of a model with an encoder "
        "and a decoder, or with a decoder only.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Texts: rows with a column text, document or another usual name (.jsonl, .csv, .tsv, "
        ".parquet), a dataset folder, a Hub data set, a document (.txt, .md, .html, .pdf), or a folder of "
        "documents.",
        json_schema_extra=BY_CONTENT,
    )
    beams: SummaryBeams = 6
    summary_tokens: SummaryTokens = 62
    max_length: SummarizedLength = None
    batch_size: SummarizedAtOnce = 8
    shard_size: int = Field(
        default=200, ge=1, le=100_000, description="Number of texts that are processed and saved together."
    )
