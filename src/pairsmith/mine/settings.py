"""Settings of ``mine``: their defaults, bounds and help texts."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.modelnames import DeviceName, DtypeName
from pairsmith.settings import Listed, Settings


class MineSettings(Settings):
    """Find pairs of an input and an output in two corpora by the margin score of their vectors (M3)."""

    inputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Corpus of inputs: a text, JSONL, TSV, CSV or Parquet file, a dataset folder, or a Hub "
        "data set; may be given several times.",
    )
    outputs: Annotated[list[str], Listed] = Field(
        min_length=1, description="Corpus of outputs, likewise; may be given several times."
    )
    encoder: str = Field(
        description="Sentence encoder of both: a folder or Hub id, embedded:all-minilm-l6-v2, pairsmith:tiny."
    )
    input_column: str | None = Field(default=None, description="Column of --inputs that holds the texts.")
    output_column: str | None = Field(default=None, description="Column of --outputs that holds the texts.")
    k: int = Field(
        default=4, ge=1, le=1024, description="Nearest neighbours that are compared, in each direction."
    )
    margin: Literal["ratio", "distance", "absolute"] = Field(
        default="ratio",
        description="The cosine of a pair divided by the mean cosine of both texts with their nearest "
        "neighbours; less that mean; or by itself.",
    )
    retrieval: Literal["max", "intersection", "forward", "backward"] = Field(
        default="max",
        description="max: the best pairs in which each text stands once; intersection: texts that are each "
        "other's best; forward: the best output of each input; backward: the best input of each output.",
    )
    threshold: float | None = Field(
        default=None, allow_inf_nan=False, description="Drop pairs whose margin is below it."
    )
    best: int | None = Field(
        default=None, ge=1, description="Keep only so many pairs, those of largest margin."
    )
    verbatim: Literal["drop", "keep"] = Field(
        default="drop",
        description="Pairs whose output stands word for word in the input, or the input in the output.",
    )
    device: DeviceName = Field(default="auto", description="auto, cpu, cuda, cuda:1 or mps.")
    dtype: DtypeName = Field(default="float32", description="Number format of the encoder's weights.")
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest text in tokens; the rest is cut off. Unset: the encoder's own.",
    )
    batch_size: int = Field(default=64, ge=1, description="Texts that are encoded at once.")
    memory: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="Gigabytes that the search may use beside the vectors.",
    )
    executor: Literal["local", "ray"] = Field(
        default="local", description="Where texts are encoded: on this machine, or on a Ray cluster."
    )
    workers: int = Field(
        default=1, ge=1, description="Processes, or actors of Ray, that encode, each with the encoder loaded."
    )
    ray_address: str | None = Field(
        default=None, description="Address of the Ray cluster; unset: one is started on this machine."
    )
    shard_size: int = Field(
        default=10_000, ge=1, le=100_000, description="Texts that are encoded and saved together."
    )
