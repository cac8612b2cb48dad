"""Settings that many steps share, with bounds and help texts; each step sets its own defaults."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from pairsmith.core.model_names import DeviceName, DtypeName
from pairsmith.core.settings import NO_EFFECT, Settings

Device = Annotated[
    DeviceName,
    Field(
        description="auto, cpu, cuda, cuda:1 or mps. auto uses the first available of CUDA, MPS and the CPU.",
        json_schema_extra=NO_EFFECT,
    ),
]
Dtype = Annotated[
    DtypeName,
    Field(
        description="Number format of the model's weights. auto: bfloat16 if the device computes fast with "
        "it, else float32."
    ),
]
TrainingDtype = Annotated[
    Literal["auto", "float32", "bfloat16"],
    Field(
        description="Number format of the computations; the weights are trained and saved in float32. auto: "
        "bfloat16 if the device computes fast with it, else float32."
    ),
]
VectorDtype = Annotated[
    Literal["float32", "float16"],
    Field(
        description="Number format in which vectors are kept and searched. float16 halves the space "
        "that they take on the disk, and moves cosines by less than 0.0001.",
    ),
]
OnePer = Literal["pair", "input", "both"]
"""Which pairs compete with each other: none, those of one input, or those with one input or one output."""
JudgeOfQueries = Annotated[
    Literal["cross-encoder", "likelihood", "encoder"],
    Field(
        description="What the judge is. cross-encoder: it reads query and text together; its scores are not "
        "normalised. likelihood: how much likelier a causal language model finds the query after the text "
        "than alone, in nats. encoder: the cosine of another sentence encoder."
    ),
]
TextsAtOnce = Annotated[
    int, Field(ge=1, description="Number of texts encoded at once.", json_schema_extra=NO_EFFECT)
]
EncodedLength = Annotated[
    int | None,
    Field(
        ge=3,
        description="Longest text in tokens that the encoder reads; the rest is cut off. Unset: its own "
        "limit.",
    ),
]
IndexRows = Annotated[
    int,
    Field(
        ge=1,
        description="Maximum number of vectors in an index, unless its training needs more; larger corpora "
        "get several indexes.",
    ),
]
IndexRecall = Annotated[
    float, Field(gt=0, le=1, description="Share of the true neighbours that an index is tuned to find.")
]
InputColumn = Annotated[
    str | None,
    Field(
        description="Column of --inputs that holds the texts. Unset: text, document, or another usual name."
    ),
]
OutputColumn = Annotated[
    str | None,
    Field(
        description="Column of --outputs that holds the texts. Unset: text, document, or another usual name."
    ),
]
BatchTokens = Annotated[
    int | None,
    Field(
        ge=1,
        description="Maximum number of tokens in a batch, padding included; lower it if memory runs out. "
        "Unset: what suits the device.",
        json_schema_extra=NO_EFFECT,
    ),
]


class ShardBounds(NamedTuple):
    """How many items a step saves together where its settings do not say: a tenth of all, within bounds."""

    least: int  # with fewer, a batch of the model would hardly be filled
    most: int

    @property
    def counted(self) -> int:
        """Of more items than this, the number makes no difference."""
        return 10 * self.most

    def pick(self, count: int) -> int:
        """The size of a shard of ``count`` items, so that a stop loses about a tenth of the work at most."""
        return min(self.most, max(self.least, -(-count // 10)))

    @property
    def unset(self) -> str:
        """The end of the setting's help text."""
        number = f"a tenth of all, but at least {self.least} and at most {self.most:,}"
        if self.least == self.most:
            number = str(self.most)
        return f"Unset: {number}. A folder that was begun keeps its number."


class WorkerSettings(Settings):
    """Settings of a step whose shards are made by several workers: where they run, and how many they are."""

    executor: Literal["local", "ray", "array"] = Field(
        default="local",
        description="Where the work runs: on this machine (local), on a Ray cluster (ray), or in several "
        "processes that are started elsewhere, such as the jobs of a Slurm array (array). Each of those "
        "makes its --rank's share of the shards, and the last one puts them together.",
        json_schema_extra=NO_EFFECT,
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Number of worker processes, or Ray actors, each of which loads the model.",
        json_schema_extra=NO_EFFECT,
    )
    ray_address: str | None = Field(
        default=None,
        description="Address of the Ray cluster. Unset: a cluster is started on this machine.",
        json_schema_extra=NO_EFFECT,
    )
    rank: int | None = Field(
        default=None,
        ge=0,
        description="With --executor array: the number of this process, from 0.",
        json_schema_extra=NO_EFFECT,
    )
    world_size: int | None = Field(
        default=None,
        ge=1,
        description="With --executor array: the number of processes.",
        json_schema_extra=NO_EFFECT,
    )
