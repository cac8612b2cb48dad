"""Options for encoding a corpus, searching it and judging pairs, which several steps share."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from pairsmith.core.model_names import DtypeName
from pairsmith.core.settings import Settings

if TYPE_CHECKING:
    from pairsmith.runs.storage import JSON

MiningKind = Literal["pairs", "reading", "summaries"]
JudgeName = Literal["cross-encoder", "encoder", "likelihood", "likeness"]


@dataclass(frozen=True, slots=True)
class Options:
    """A part of a step's settings, for functions that several steps call."""

    @classmethod
    def of(cls, settings: Settings, **others: Any) -> Self:
        """The options with the values of the settings of the same names; ``others`` gives all others."""
        names = {option.name for option in fields(cls)}
        return cls(**settings.model_dump(include=names - others.keys()), **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions(Options):
    """How a model computes, in which shards, and on which executor."""

    device: str
    dtype: DtypeName
    max_length: int | None  # longest text or pair in tokens; None: the model's own limit
    batch_tokens: int | None  # most tokens in a batch; None: what suits the device
    shard_size: int  # rows that are computed and saved together
    executor: Literal["local", "ray", "array"]
    workers: int
    ray_address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions(Options):
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
    vector_dtype: Literal["float32", "float16"] = "float32"
    units: UnitOptions = field(default_factory=UnitOptions)
    vectors: str | None = None  # folder in which the vectors of outputs are kept and looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(Options):
    """How nearest neighbours are searched, in which parts, and on which executor."""

    device: str
    memory: float  # gigabytes of similarities held at once
    index: str | None  # in FAISS's notation; None: an exact search
    index_rows: int  # most vectors in an index
    recall: float  # smallest share of the nearest neighbours that an index has to find
    search_rows: int  # rows that are searched and saved together in an exact search
    executor: Literal["local", "ray", "array"]
    workers: int
    ray_address: str | None

    def deciding(self) -> "dict[str, JSON]":
        """The options that decide the parts and the neighbours."""
        names = ("index", "index_rows", "recall") if self.index else ("search_rows",)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(WorkOptions):
    """How a model judges pairs."""

    judge: JudgeName  # the kind of judge that the model is
    model: str
    cue: str | None = None  # text that a likelihood judge inserts between the two texts of a pair
