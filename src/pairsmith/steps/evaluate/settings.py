"""Settings of the evaluation steps."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.errors import ModelError
from pairsmith.core.fields import (
    AnswerTokens,
    Device,
    Dtype,
    Pooling,
    SummarizedAtOnce,
    SummarizedLength,
    SummaryBeams,
    SummaryTokens,
    TextLength,
    TextsAtOnce,
    WindowLength,
    WindowsAtOnce,
)
from pairsmith.core.model_names import MINILM, check_name
from pairsmith.core.settings import BY_CONTENT, MOST_ITEMS, Listed, Settings


class IntervalSettings(Settings):
    """Settings of the 95 % intervals of an evaluation's figures."""

    bootstrap: int = Field(
        default=1000,
        ge=0,
        le=1_000_000,
        description="Number of bootstrap resamples for the 95 % intervals; 0 for no intervals.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the bootstrap resamples.")


class ComparedSettings(IntervalSettings):
    """Settings of an evaluation whose figures can be compared with those of an earlier result."""

    against: str | None = Field(
        default=None,
        description="Folder of an earlier result of this command on the same rows. The results then also "
        "show how much the figures differ from the earlier ones, with a 95 % interval over the rows, and "
        "whether they are better, worse or within noise.",
        json_schema_extra=BY_CONTENT,
    )

    @model_validator(mode="after")
    def _resamples_to_compare(self) -> Self:
        if self.against is not None and self.bootstrap == 0:
            raise ValueError("against needs resamples for its intervals; give a bootstrap of 1 or more")
        return self


class EvaluateStsSettings(ComparedSettings):
    """Spearman's correlation between cosine similarity and human scores (D11)."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a sentence-transformers or transformers model, "
        "embedded:all-minilm-l6-v2, pairsmith:tiny, or glove:PATH for the average of GloVe vectors.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Folder with some or all of stsb/, sick/ and sts12/ … sts16/, or one file with the "
        "columns sentence1, sentence2 and score (.tsv, .csv, .jsonl, .parquet).",
        json_schema_extra=BY_CONTENT,
    )
    suites: list[str] = Field(
        default=[], description="Test sets to use: stsb, sick, sts12 … sts16. Unset: all that --data has."
    )
    pooling: Pooling = "default"
    layers: int | None = Field(
        default=None, ge=1, description="Use only the model's first N layers. Unset: all."
    )
    batch_size: TextsAtOnce = 64
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateLabelsSettings(IntervalSettings):
    """The mean cosine of the pairs of each label, which shows whether the generated texts differ by label."""

    model: str = Field(
        default=MINILM,
        description="Encoder that compares the texts, preferably one that was not used to generate them: a "
        "folder or Hub id of a sentence-transformers or transformers model, or embedded:all-minilm-l6-v2.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Scored or labelled pairs: a folder that generate or postprocess wrote, or a file.",
        json_schema_extra=BY_CONTENT,
    )
    batch_size: TextsAtOnce = 64
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateMtebSettings(Settings):
    """The main scores of tasks that the package mteb runs."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a sentence-transformers or transformers model, "
        "embedded:all-minilm-l6-v2, or pairsmith:tiny.",
        json_schema_extra=BY_CONTENT,
    )
    tasks: Annotated[list[str], Listed] = Field(
        default=[],
        description="Names of mteb tasks, such as STSBenchmark; their data are downloaded from the Hugging "
        "Face Hub.",
        json_schema_extra=BY_CONTENT,
    )
    benchmark: str | None = Field(
        default=None,
        description="Run all tasks of this mteb benchmark, such as MTEB(eng, v2).",
        json_schema_extra=BY_CONTENT,
    )
    data: str | None = Field(
        default=None,
        description="Your own graded pairs, in the formats that evaluate sts reads. Each set becomes a task, "
        "and nothing is downloaded for it.",
        json_schema_extra=BY_CONTENT,
    )
    pooling: Pooling = "default"
    batch_size: TextsAtOnce = 64
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.tasks and self.benchmark is None and self.data is None:
            raise ValueError("name some --tasks or a --benchmark of mteb, or give graded pairs as --data")
        return self


class EvaluateQaSettings(ComparedSettings):
    """Exact match and F1 of a reader's answers (M11, Q7)."""

    model: str = Field(
        description="Folder that train-reader, train-teacher or infuse wrote, or a Hub id of a model "
        "for question answering.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Questions with answers: a SQuAD file, or rows with the columns question, context and "
        "answers.",
        json_schema_extra=BY_CONTENT,
    )
    max_answer_tokens: AnswerTokens = 17
    batch_size: WindowsAtOnce = 32
    max_length: WindowLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateSummariesSettings(ComparedSettings):
    """ROUGE of generated summaries, and how much of them is copied from the documents (M11)."""

    model: str = Field(
        description="Summariser: a folder that train-summarizer wrote, a Hub id of a model with an encoder "
        "and a decoder or with a decoder only, or lead:N for the first N sentences of each document.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Documents with summaries: rows with the columns document and summary.",
        json_schema_extra=BY_CONTENT,
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ITEMS,
        description="Use only the first N documents.",
        json_schema_extra=BY_CONTENT,
    )
    beams: SummaryBeams = 6
    max_length: SummarizedLength = None
    summary_tokens: SummaryTokens = 62
    words: Literal["english", "any"] = Field(
        default="english",
        description="What ROUGE counts. english: as published, stems of words of the letters a to z; other "
        "letters divide words. any: words of any script without stemming, and single letters of scripts "
        "without spaces between words, such as Japanese.",
    )
    batch_size: SummarizedAtOnce = 8
    device: Device = "auto"
    dtype: Dtype = "float32"


LEAD = "lead:"


def lead_count(model: str) -> int | None:
    """The number of sentences in ``lead:N``, the lead baseline; None for any other model name."""
    if not model.startswith(LEAD):
        return None
    number = model.removeprefix(LEAD)
    if not re.fullmatch(r"[1-9]\d{0,3}", number):
        raise ModelError(
            f"model {model}: give lead:N with a number of sentences from 1 to 9999, such as lead:3"
        )
    return int(number)


def check_summarizer_name(model: str) -> None:
    """Check that ``model`` can be a summariser, as far as its name shows."""
    if lead_count(model) is None:
        check_name(model)
