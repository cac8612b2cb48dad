"""Settings of ``mine``, ``filter`` and ``rewrite``: their defaults, bounds and help texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.fields import BatchTokens, Device, Dtype, Executor, RayAddress, Workers
from pairsmith.settings import Listed, Settings, refuse

KindName = Literal["pairs", "reading", "summaries"]


class MineSettings(Settings):
    """Find pairs of an input and an output in two corpora by the margin score of their vectors (M3)."""

    kind: KindName = Field(
        default="pairs",
        description="What belongs together. pairs: any two texts; reading: a question, and an answer in a "
        "passage; summaries: a document, and a sentence of another document.",
    )

    inputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Corpus of inputs: a text, JSONL, TSV, CSV or Parquet file, a dataset folder, or a Hub "
        "data set.",
    )
    outputs: Annotated[list[str], Listed] = Field(min_length=1, description="Corpus of outputs, likewise.")
    encoder: str = Field(
        description="Sentence encoder of both: a folder or Hub id, embedded:all-minilm-l6-v2, pairsmith:tiny."
    )
    input_column: str | None = Field(default=None, description="Column of --inputs that holds the texts.")
    output_column: str | None = Field(default=None, description="Column of --outputs that holds the texts.")
    group_column: str | None = Field(
        default=None,
        description="Column of both, such as a date: texts are paired only where it says the same; of a date "
        "with a time the day counts.",
    )
    answers: str = Field(
        default="rule",
        description="What finds candidate answers in passages: rule (names, numbers and dates by their "
        "form), or spacy:MODEL (an installed model's entities).",
    )
    window: int = Field(
        default=150, ge=1, description="Words of a passage at most; longer ones are cut between sentences."
    )
    min_sentences: int = Field(
        default=4, ge=1, description="Sentences of a document at least, of kind summaries."
    )
    style: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Drop questions, or of kind summaries sentences, that are less likely to be in the style "
        "of the seeds, as an encoder by train-biencoder judges them; 0 keeps all.",
    )
    k: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="Nearest neighbours that are compared, in each direction. More take more time and "
        "memory, but not in proportion.",
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
        description="Pairs whose output stands word for word in the input, or the input in the output; of "
        "kind reading those whose answer stands in the question.",
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest text in tokens; the rest is cut off. Unset: the encoder's own.",
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens that are encoded at once; unset: what suits the device.",
    )
    memory: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="Gigabytes of similarities that the search may hold at once. The vectors come on top, "
        "and of each text some 200 bytes, and 30 for each of --k.",
    )
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    shard_size: int = Field(
        default=500, ge=1, le=100_000, description="Texts that are encoded and saved together."
    )
    index: str | None = Field(
        default=None,
        description="Search by a FAISS index such as IVF4096,Flat or IVF16384,PQ48x4fs, for corpora too "
        "large for an exact search (some millions of texts); what it misses is measured and said.",
    )
    index_rows: int = Field(
        default=1_000_000,
        ge=1,
        description="Vectors of an index at most, or as many as it is trained on; of more texts several "
        "indexes are made.",
    )
    recall: float = Field(
        default=0.95, gt=0, le=1, description="Share of the true neighbours that an index is tuned to find."
    )
    search_rows: int = Field(
        default=131_072, ge=1, description="Inputs that are searched and saved together."
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.kind == "pairs":
            refuse(self, ("style",), "of kind pairs, which has no style")
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"of kind {self.kind}; it is for passages")
        if self.kind != "summaries":
            refuse(self, ("min_sentences",), f"of kind {self.kind}; it is for documents")
        if self.index is None:
            refuse(self, ("index_rows", "recall"), "without index; the exact search misses nothing")
        return self


class FilterSettings(Settings):
    """Score pairs with a cross-encoder and keep the best (M6)."""

    pairs: str = Field(
        description="Dataset folder of pairs: with the columns input and output, as mine writes it, or "
        "sentence1 and sentence2. Of several splits train is taken; FOLDER:SPLIT names another."
    )
    model: str = Field(description="Cross-encoder: a folder that train-crossencoder wrote, or a Hub id.")
    by: Literal["auto", "score", "agreement"] = Field(
        default="auto",
        description="What is best. score: the highest score. agreement: how near the score, brought between "
        "0 and 1, is to the one that the pair was written for; of each label as large a part is kept. auto: "
        "agreement where pairs have the columns sentence1, sentence2 and score, else score.",
    )
    best: int | None = Field(default=None, ge=1, description="Keep so many pairs.")
    threshold: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Keep pairs whose unnormalised score, or whose agreement from 0 to 1, is at least this.",
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: int | None = Field(
        default=None, ge=8, description="Longest pair in tokens; the rest is cut off. Unset: the model's own."
    )
    batch_tokens: BatchTokens = None
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    shard_size: int = Field(
        default=2_000, ge=1, le=100_000, description="Pairs that are scored and saved together."
    )


class RewriteSettings(Settings):
    """Have a model generate one side of pairs anew: the questions or the summaries (the paper's Gen)."""

    kind: Literal["reading", "summaries"] = Field(
        description="What is written. reading: a question to each answer in its passage; summaries: a "
        "summary of each document."
    )
    pairs: str = Field(
        description="Dataset folder of pairs, as mine or filter writes it. Of several splits train is taken; "
        "FOLDER:SPLIT names another."
    )
    model: str = Field(
        description="A folder that train-summarizer wrote, of the same kind, or any model with an encoder "
        "and a decoder."
    )
    best: int | None = Field(default=None, ge=1, description="Only of so many pairs, the first.")
    beams: int = Field(default=6, ge=1, description="Texts that are followed at once.")
    tokens: int = Field(default=62, ge=4, description="Longest text in tokens.")
    device: Device = "auto"
    dtype: Dtype = "float32"
    max_length: int | None = Field(
        default=512, ge=8, description="Longest text that is read, in tokens; the rest is cut off."
    )
    batch_size: int = Field(default=8, ge=1, description="Texts that are written at once.")
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    shard_size: int = Field(
        default=200, ge=1, le=100_000, description="Texts that are written and saved together."
    )
