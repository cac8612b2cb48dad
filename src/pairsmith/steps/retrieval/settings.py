"""Settings of the steps from documents to the training data of a retriever."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from pairsmith.core.fields import (
    BatchTokens,
    Device,
    Dtype,
    EncodedLength,
    JudgeOfQueries,
    ShardBounds,
    VectorFolder,
    WorkerSettings,
)
from pairsmith.core.settings import BY_CONTENT, MOST_ITEMS, NO_EFFECT, Listed, NoEffectError, refuse
from pairsmith.methods.retrieval.query_options import AgainstName, QueryKind, QueryOptions
from pairsmith.steps.corpora.options import EncodingOptions, JudgeOptions, options_of


class ChunkSettings(WorkerSettings):
    """Cut documents into chunks of whole sentences, each with the title of its section."""

    documents: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Documents: a folder, searched with all folders in it; files of the kinds .txt, .md, "
        ".html and .pdf; or tables with a document in each row: JSON Lines, CSV, TSV and Parquet files, "
        "dataset folders, Hub data sets.",
        json_schema_extra=BY_CONTENT,
    )
    column: str | None = Field(
        default=None, description="Column of tables that holds the documents. Unset: text, or a usual name."
    )
    title_column: str | None = Field(
        default=None,
        description="Column of tables that holds the documents' titles. Unset: title, if there is one.",
    )
    words: int = Field(default=120, ge=1, description="Maximum number of words in a chunk.")
    overlap: int = Field(
        default=0,
        ge=0,
        description="Number of sentences at the end of a chunk that the next chunk of the same section "
        "repeats, if they fit.",
    )
    workers: Annotated[
        int,
        Field(ge=1, description="Number of worker processes, or Ray actors.", json_schema_extra=NO_EFFECT),
    ] = 1
    shard_size: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="Number of documents that are processed and saved together.",
    )


class QueriesSettings(WorkerSettings):
    """Write search queries for chunks of documents with a causal language model."""

    chunks: str = Field(
        description="Chunks to write queries for: a folder that chunk wrote, rows with the columns id, "
        "title, text and document, or a corpus in BEIR's form. Consecutive chunks of the same document are "
        "neighbours.",
        json_schema_extra=BY_CONTENT,
    )
    column: str | None = Field(default=None, description="Column of --chunks that holds the texts.")
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ITEMS,
        description="Write queries for N chunks only, drawn at random from all of them by --seed. A larger N "
        "adds chunks to those of a smaller N.",
    )
    model: str = Field(
        default="embedded:smollm2-135m-instruct",
        description="Causal language model: a folder, a Hub id, a GGUF file or "
        "embedded:smollm2-135m-instruct.",
        json_schema_extra=BY_CONTENT,
    )
    examples: str | None = Field(
        default=None,
        description="Queries of your own as examples for the model: a text file, or rows with the column "
        "query and, optionally, positive, the text that the query should find.",
        json_schema_extra=BY_CONTENT,
    )
    shown: int = Field(default=4, ge=1, le=32, description="Show the model the first N of --examples.")
    queries: int = Field(default=3, ge=1, le=100, description="Number of queries for each chunk.")
    kinds: Annotated[list[QueryKind], Listed] = Field(
        default=["question", "keywords", "statement"],
        min_length=1,
        description="Kinds of query; the queries of a chunk alternate between them.",
    )
    against: Annotated[list[AgainstName], Listed] = Field(
        default=["neighbours", "title"],
        description="Counter-prompts: a query must not fit the neighbours of its chunk, or its title alone, "
        "better than the chunk.",
    )
    decay: float = Field(
        default=100.0,
        ge=0,
        allow_inf_nan=False,
        description="Strength of self-debiasing, which avoids tokens that are likelier after a "
        "counter-prompt; 0 turns it off.",
    )
    tries: int = Field(default=3, ge=1, le=100, description="Maximum number of tries for each query.")
    top_k: int = Field(default=5, ge=0, description="Draw from the K likeliest tokens; 0: from all.")
    top_p: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Of these tokens, draw from the likeliest that together hold this share of their "
        "probability.",
    )
    max_tokens: int = Field(default=32, ge=2, description="Longest query in tokens.")
    max_length: int = Field(
        default=400,
        ge=16,
        description="Longest text of a chunk or example that the model reads, in tokens; the rest is cut "
        "off.",
    )
    chat: bool = Field(
        default=False,
        description="Use the model's chat template, with the instruction as the user's message.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the sampling, also that of --limit.")
    reuse: str | None = Field(
        default=None,
        description="A finished folder of queries that were written with the same settings and model. A "
        "chunk keeps its queries if its text, title and neighbours are unchanged; queries are only "
        "written for the other chunks.",
        json_schema_extra=NO_EFFECT,
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    shard_bounds: ClassVar[ShardBounds] = ShardBounds(least=25, most=25)
    shard_size: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Number of chunks that are processed and saved together. A GPU is faster with more. "
        f"{shard_bounds.unset}",
    )

    @field_validator("kinds", "against")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError(f"{', '.join(names)}: give each once")
        return names

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if not self.examples:
            refuse(self, ("shown",), "without examples")
        if not self.decay:
            refuse(self, ("against",), "with a decay of 0")
        return self

    @property
    def options(self) -> QueryOptions:
        """The settings that belong to the method itself."""
        return options_of(QueryOptions, self, kinds=tuple(self.kinds), against=tuple(self.against))


class FilterQueriesSettings(WorkerSettings):
    """Keep queries that lead back to their own chunk, without near-copies and queries of an evaluation."""

    queries: str = Field(
        description="Queries with the texts that they were written for: a folder that queries or ask wrote, "
        "or rows with the columns query, positive and, optionally, chunk, the id of the positive. If "
        "there are several splits, train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    corpus: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="All chunks, among which each query has to find its own chunk: a folder that chunk "
        "wrote, or texts in another format. A column title is read before the text.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str = Field(
        description="Sentence encoder for queries and chunks: a folder or Hub id, "
        "embedded:all-minilm-l6-v2, or pairsmith:tiny.",
        json_schema_extra=BY_CONTENT,
    )
    corpus_column: str | None = Field(
        default=None, description="Column of --corpus that holds the texts. Unset: text, or a usual name."
    )
    within: int = Field(
        default=3,
        ge=1,
        description="Keep a query if its own chunk is among the N chunks of the corpus that are nearest to "
        "the query.",
    )
    duplicates: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Drop a query whose cosine with an earlier kept query is at least this. Copies, which "
        "differ only in case, spaces and punctuation, are always dropped; 1 drops only copies.",
    )
    evaluation: Annotated[list[str], Listed] = Field(
        default=[],
        description="Queries that a model will be evaluated on, so that it may not be trained on them: a "
        "BEIR folder or its queries.jsonl, or another file with a column of queries.",
        json_schema_extra=BY_CONTENT,
    )
    evaluation_column: str | None = Field(
        default=None,
        description="Column of --evaluation that holds the queries. Unset: query, question, anchor, input, "
        "text or sentence.",
    )
    contaminated: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Drop a query whose cosine with a query of --evaluation, or with one that is held back, "
        "is at least this. Copies are always dropped; 1 drops only copies.",
    )
    judge: str | None = Field(
        default=None,
        description="A second model, which scores how well each query fits its own chunk. Only queries that "
        "lead back to their chunk are scored. It needs --threshold or --share.",
        json_schema_extra=BY_CONTENT,
    )
    judge_kind: JudgeOfQueries = Field(default="cross-encoder")
    threshold: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Keep a query if the judge's score of it and its chunk is at least this: an unnormalised "
        "score, nats or a cosine, according to --judge-kind.",
    )
    share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Keep only this share of the queries that are judged, those with the highest scores.",
    )
    held_back: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of the chunks whose queries are held back for evaluation: they become the split "
        "test and are no training data.",
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: EncodedLength = None
    batch_tokens: BatchTokens = None
    vectors: VectorFolder = None
    shard_size: int = Field(
        default=2_000, ge=1, le=100_000, description="Number of texts that are encoded and saved together."
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.judge is None:
            refuse(self, ("judge_kind", "share"), "without a judge")
            if self.threshold is not None:  # 0 is one, too
                raise NoEffectError("threshold", "without a judge")
        elif self.threshold is self.share is None:
            raise ValueError("a judge needs a limit: give --threshold or --share")
        if not self.evaluation:
            refuse(self, ("evaluation_column",), "without evaluation")
            if not self.held_back:
                refuse(self, ("contaminated",), "without evaluation or held_back")
        return self

    def encoding(self) -> EncodingOptions:
        """How queries and texts are encoded."""
        return options_of(EncodingOptions, self)

    def judging(self) -> JudgeOptions:
        """How the judge, if there is one, scores texts for queries; it reads up to its own limit."""
        return options_of(JudgeOptions, self, judge=self.judge_kind, model=self.judge, max_length=None)
