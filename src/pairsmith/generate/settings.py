"""Settings of ``generate`` and ``postprocess``: their defaults, bounds and help texts."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.bundled import TINY
from pairsmith.settings import Settings
from pairsmith.tasks import Decoding

Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


class GenerateSettings(Settings):
    """Write labelled texts or pairs from a task's instructions with a causal language model."""

    task: str = Field(
        default="sts", description="A built-in task (see `pairsmith tasks`), or the path of a task file."
    )
    model: str = Field(
        default=TINY,
        description="The language model: a folder, a Hub id, or pairsmith:tiny (shows the mechanics only).",
    )
    inputs: str | None = Field(
        default=None,
        description="First texts of a pair task: a text, JSONL, TSV, CSV or Parquet file, a dataset folder, "
        "or a Hub data set.",
        json_schema_extra={"path": True},
    )
    column: str | None = Field(default=None, description="Column of --inputs that holds the texts.")
    limit: int | None = Field(default=None, ge=1, description="Take only so many of the inputs.")
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of every random draw.")
    decay: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Strength of self-debiasing, 0 for none [default: the task's, 100].",
    )
    top_k: int | None = Field(
        default=None,
        ge=0,
        description="Draw from the k likeliest tokens, 0 for all [default: the task's, 5].",
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Draw from the likeliest tokens that hold this probability [default: the task's, 0.9].",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens within which the closing quotation mark must come [default: the task's, 40].",
    )
    per_input: int | None = Field(
        default=None,
        ge=1,
        description="Texts per input and label; in a text task, texts per label [default: the task's, 2].",
    )
    tries: int | None = Field(
        default=None,
        ge=1,
        description="Tries at most to get them; in a text task, for each text [default: the task's, 5].",
    )
    preview: int = Field(
        default=0,
        ge=0,
        description="Show so many examples, and what self-debiasing changed token by token; write nothing.",
    )
    device: Device = Field(default="auto", description="auto, cpu, cuda, cuda:1 or mps.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="Type of the model's weights."
    )
    rows: int = Field(
        default=256, ge=1, description="Rows that the model computes at once; lower it if memory runs out."
    )
    shard_size: int = Field(
        default=500, ge=1, description="Inputs (in a text task, texts) that are made and saved together."
    )

    def decoding(self, of_task: Decoding) -> Decoding:
        """The task's decoding with what was set here put in its place."""
        names = ("decay", "top_k", "top_p", "max_tokens", "per_input", "tries")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return of_task.model_copy(update=given)


class PostprocessSettings(Settings):
    """Clean generated rows, smooth their scores, add sampled negatives, and split."""

    data: str = Field(description="The folder that `generate` wrote.", json_schema_extra={"path": True})
    smoothing: float = Field(
        default=0.2, ge=0, le=1, description="Move each score by this share towards the mean of the labels."
    )
    augment: int = Field(
        default=2,
        ge=0,
        description="For each first text, pair it with so many second texts of others, score 0.",
    )
    validation: float = Field(
        default=0.1, ge=0, lt=1, description="Share of each label's rows that goes into the validation split."
    )
    per_input: int = Field(
        default=2, ge=1, description="Keep at most so many second texts of a first text and label."
    )
    min_words: int = Field(default=1, ge=1, description="Drop texts that were written with fewer words.")
    near_copies: Literal["task", "drop", "keep"] = Field(
        default="task",
        description="Pairs whose texts differ in case, spaces and punctuation only: drop, keep, or as each "
        "label of the task says.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the sampled negatives and the split.")
