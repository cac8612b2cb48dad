"""Settings that many steps share, with bounds and help texts; each step sets its own defaults."""

import re
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from pairsmith.core.model_names import DeviceName, DtypeName, PoolingName
from pairsmith.core.settings import KEPT, MOST_BEAMS, NO_EFFECT, Settings, refuse

_RAY_ADDRESS = re.compile(r"auto|local|(?:ray://)?(?:[^\s/:\[\]]+|\[[\da-fA-F:.]+\]):\d{1,5}")
"""Addresses that Ray accepts; Ray itself would refuse others only after the step has begun."""

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
        "that they take on the disk, and moves cosines by less than 0.0001."
    ),
]
ExecutorName = Literal["local", "ray", "array"]
OnePer = Literal["pair", "input", "both"]
"""Which pairs compete with each other: none, pairs with the same input, or pairs that share any text."""
JudgeOfQueries = Annotated[
    Literal["cross-encoder", "likelihood", "encoder"],
    Field(
        description="What the judge is. cross-encoder: a model that reads query and text together; its "
        "scores are not normalised. likelihood: a causal language model; the score is how much likelier the "
        "query is after the text than alone, in nats. encoder: another sentence encoder; the score is the "
        "cosine."
    ),
]
Pooling = Annotated[
    PoolingName,
    Field(
        description="How token vectors become a sentence vector. default: as saved with the model, or else "
        "by their mean. mean, cls: the mean, or the vector of the first token, in the transformer's last "
        "layer, even if the model was saved with another pooling."
    ),
]
TextsAtOnce = Annotated[
    int, Field(ge=1, description="Number of texts encoded at once.", json_schema_extra=NO_EFFECT)
]
TextLength = Annotated[
    int | None,
    Field(ge=3, description="Longest text in tokens; the rest is cut off. Unset: the model's own limit."),
]
EncodedLength = Annotated[
    int | None,
    Field(
        ge=3,
        description="Longest text in tokens that the encoder reads; the rest is cut off. Unset: the "
        "encoder's own limit.",
    ),
]
VectorFolder = Annotated[
    str | None,
    Field(
        description="Folder in which the vectors of --corpus are stored. filter-queries, negatives, evaluate "
        "retrieval and search with the same folder read the stored vectors of the same texts and encoder "
        "instead of computing them again.",
        json_schema_extra=KEPT,
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
TextColumn = Annotated[
    str | None,
    Field(description="Column that holds the texts. Unset: text, sentence, or another usual name."),
]
LabelColumn = Annotated[
    str | None, Field(description="Column that holds the labels. Unset: label, or another usual name.")
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
AnswerTokens = Annotated[int, Field(ge=1, description="Largest number of tokens of an answer.")]
WindowsAtOnce = Annotated[
    int,
    Field(
        ge=1,
        description="Number of text windows that the model processes at once; it has no effect with a folder "
        "that infuse wrote.",
        json_schema_extra=NO_EFFECT,
    ),
]
WindowLength = Annotated[
    int | None,
    Field(
        ge=16,
        description="Largest number of tokens of an input: question and text together, or the text alone "
        "with a folder that infuse wrote. Longer texts are cut into windows. Unset: the model's own limit.",
    ),
]


SummaryBeams = Annotated[
    int, Field(ge=1, le=MOST_BEAMS, description="Number of beams of the beam search for each summary.")
]
SummaryTokens = Annotated[int, Field(ge=4, description="Largest number of tokens of a summary.")]
SummarizedLength = Annotated[
    int | None,
    Field(
        ge=8,
        description="Largest number of tokens of a document; the rest is cut off. It cannot exceed the "
        "model's own limit. Unset: the limit with which train-summarizer trained the model, else the "
        "model's own limit.",
    ),
]
SummarizedAtOnce = Annotated[
    int,
    Field(
        ge=1,
        description="Number of documents processed at once, each with all its beams.",
        json_schema_extra=NO_EFFECT,
    ),
]


class ShardBounds(NamedTuple):
    """Bounds of a step's default shard size, which is a tenth of all items within these bounds."""

    least: int  # smaller shards would hardly fill a batch of the model
    most: int

    @property
    def counted(self) -> int:
        """The number of items from which on the shard size does not depend on the number of items."""
        return 10 * self.most

    def pick(self, count: int) -> int:
        """The shard size for ``count`` items, so that a stop loses at most about a tenth of the work."""
        return min(self.most, max(self.least, -(-count // 10)))

    @property
    def unset(self) -> str:
        """The end of the setting's help text, which describes the default."""
        number = f"a tenth of all, but at least {self.least} and at most {self.most:,}"
        if self.least == self.most:
            number = str(self.most)
        return f"Unset: {number}. A folder that was begun keeps its number."


class WorkerSettings(Settings):
    """Settings of a step whose shards several workers make: where the workers run, and their number."""

    executor: ExecutorName = Field(
        default="local",
        description="Where the work runs: on this machine (local), on a Ray cluster (ray), or in several "
        "processes that are started elsewhere, such as the jobs of a Slurm array (array). Each of these "
        "processes makes the share of its --rank, and the last one puts all shares together.",
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
        description="Address of the Ray cluster's head, HOST:PORT. Unset: a cluster is started on this "
        "machine.",
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

    @model_validator(mode="after")
    def _address_of_a_cluster(self) -> Self:
        if self.executor != "ray":
            refuse(self, ("ray_address",), "without --executor ray")
        elif self.ray_address and not _RAY_ADDRESS.fullmatch(self.ray_address):
            raise ValueError(
                f"ray_address is {self.ray_address}; give HOST:PORT of the cluster's head, such as "
                "10.0.0.1:6379 (not its dashboard's), or ray://HOST:PORT for Ray's client, such as port 10001"
            )
        return self
