"""Settings of the step ``report``."""

from typing import Annotated

from pydantic import Field

from pairsmith.core.fields import Device, Dtype
from pairsmith.core.settings import BY_CONTENT, Listed, Settings


class ReportSettings(Settings):
    """One page about a data set, a model, an evaluation, or a whole run."""

    data: str = Field(
        description="Folder to report on, which a step or a recipe wrote.", json_schema_extra=BY_CONTENT
    )
    against: Annotated[list[str], Listed] = Field(
        default=[],
        description="Evaluation data whose texts should not occur in the rows: files (also in the formats of "
        "SQuAD and MRQA), dataset folders, Hub ids, or folders of similarity test sets.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str | None = Field(
        default=None,
        description="Sentence encoder for comparing the texts of pairs: a folder or Hub id, or "
        "embedded:all-minilm-l6-v2. Unset: they are compared only by the words they share.",
    )
    traces: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Show the effect of self-debiasing on each token for this many first texts of a folder "
        "that generate wrote; needs --model.",
    )
    model: str | None = Field(
        default=None,
        description="The language model that wrote the rows, for --traces.",
        json_schema_extra=BY_CONTENT,
    )
    sample: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description="Number of rows of each data set that are examined closely; lengths, labels, distinct "
        "texts and texts of evaluation data are counted in all rows.",
    )
    examples: int = Field(default=5, ge=0, le=100, description="Number of example rows to show of each sort.")
    seed: int = Field(default=0, ge=0, description="Seed of the sample of rows.")
    device: Device = "auto"
    dtype: Dtype = "float32"
