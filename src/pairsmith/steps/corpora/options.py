"""Options for encoding a corpus and for judging pairs, which several steps share."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pairsmith.core.fields import ExecutorName, VectorDtype
from pairsmith.core.model_names import DtypeName
from pairsmith.core.settings import Settings
from pairsmith.methods.mining.options import MiningKind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
JudgeName = Literal["cross-encoder", "encoder", "likelihood", "likeness"]


def options_of(kind: type[T], settings: Settings, **others: Any) -> T:
    """The options with the values of the settings of the same names; ``others`` gives all others."""
    names = {option.name for option in fields(kind)}
    return kind(**settings.model_dump(include=names - others.keys()), **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """How a model computes, in which shards, and on which executor."""

    device: str
    dtype: DtypeName
    max_length: int | None  # longest text or pair in tokens; None: the model's own limit
    batch_tokens: int | None  # most tokens in a batch; None: what suits the device
    shard_size: int  # rows that are computed and saved together
    executor: ExecutorName
    workers: int
    ray_address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions:
    """How the records of a corpus are cut into units; see the settings of ``mine``.

    By default, each record is one unit.
    """

    kind: MiningKind = "pairs"
    group_column: str | None = None
    style: float = 0.0
    answers: str = ""
    window: int = 0
    min_sentences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingOptions(WorkOptions):
    """How the texts of a corpus become vectors."""

    encoder: str
    vector_dtype: VectorDtype = "float32"
    units: UnitOptions = field(default_factory=UnitOptions)
    vectors: str | None = None  # folder in which the vectors of outputs are kept and looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(WorkOptions):
    """How a model judges pairs."""

    judge: JudgeName  # the kind of judge that the model is
    model: str
    cue: str | None = None  # text that a likelihood judge inserts between the two texts of a pair
