"""Settings of ``negatives``: their defaults, bounds and help texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import (
    BatchTokens,
    Device,
    Dtype,
    EncodedLength,
    IndexRecall,
    IndexRows,
    JudgeOfQueries,
    VectorDtype,
    VectorFolder,
    WorkerSettings,
)
from pairsmith.core.settings import BY_CONTENT, NO_EFFECT, Listed, refuse
from pairsmith.steps.corpora.options import EncodingOptions, JudgeOptions, options_of


class NegativesSettings(WorkerSettings):
    """Find hard negatives for pairs of a query and a positive: texts near the query that do not answer it."""

    pairs: str = Field(
        description="Pairs of a query and a text that answers it: a JSONL, TSV, CSV or Parquet file, a "
        "dataset folder, or a Hub data set. A query with several positives has several rows, or a list. If "
        "there are several splits, train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    corpus: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Texts from which negatives are taken: files (text, JSONL, TSV, CSV, Parquet), dataset "
        "folders, Hub data sets, or folders of BEIR. A column title is read before the text.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str = Field(
        description="Sentence encoder for queries and texts: a folder or Hub id, embedded:all-minilm-l6-v2, "
        "or pairsmith:tiny.",
        json_schema_extra=BY_CONTENT,
    )
    query_column: str | None = Field(
        default=None,
        description="Column of --pairs with the queries. Unset: query, question, anchor, input or sentence1.",
    )
    positive_column: str | None = Field(
        default=None,
        description="Column of --pairs with the positives. Unset: positive, pos, context, passage, document, "
        "output, sentence2 or answer.",
    )
    corpus_column: str | None = Field(default=None, description="Column of --corpus that holds the texts.")
    negatives: int = Field(default=5, ge=1, le=1024, description="Number of negatives of each pair.")
    first_rank: int = Field(
        default=1,
        ge=1,
        description="First rank, counted from 1, of the texts nearest to a query that may become its "
        "negatives. The query's positives, copies of them and the query itself are not ranked.",
    )
    last_rank: int = Field(
        default=50, ge=1, le=4096, description="Last rank of the texts that may become negatives."
    )
    positive_share: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Highest score of a negative, as a share of the positive's score; 0: no such limit. "
        "Texts that score nearly as high as the positive are often unlabelled positives.",
    )
    margin: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Smallest difference by which the positive's score has to exceed a negative's score. "
        "Unset: no such limit.",
    )
    highest: float | None = Field(
        default=None, allow_inf_nan=False, description="Highest score of a negative. Unset: no such limit."
    )
    lowest: float | None = Field(
        default=None, allow_inf_nan=False, description="Lowest score of a negative. Unset: no such limit."
    )
    compare: Literal["lowest", "own"] = Field(
        default="lowest",
        description="Which positive's score --positive-share and --margin use if a query has several "
        "positives. lowest: the lowest score of its positives; own: the score of the pair's own positive.",
    )
    pick: Literal["top", "random"] = Field(
        default="top",
        description="Which of the allowed texts become negatives. top: those with the highest scores; "
        "random: a random sample.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the random sample of --pick random.")
    fewer: Literal["keep", "reject"] = Field(
        default="keep",
        description="What to do with pairs that get fewer negatives than --negatives. Pairs without any "
        "negatives are always rejects.",
    )
    judge: str | None = Field(
        default=None,
        description="Model that scores each query with the texts from --first-rank to --last-rank and with "
        "its positives. Its scores replace the cosines in all limits and in the rows. With --pick random and "
        "no limits it scores only the negatives and the positives.",
        json_schema_extra=BY_CONTENT,
    )
    judge_kind: JudgeOfQueries = "cross-encoder"
    labelled: str | None = Field(
        default=None,
        description="Pairs with the columns of --pairs that list all positives of some of the queries, to "
        "measure false negatives: the share of these queries' negatives that are labelled as positives is "
        "reported. No row changes.",
        json_schema_extra=BY_CONTENT,
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: EncodedLength = None
    batch_tokens: BatchTokens = None
    vector_dtype: VectorDtype = "float32"
    vectors: VectorFolder = None
    memory: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="Memory in gigabytes for the similarities that the search holds at once.",
        json_schema_extra=NO_EFFECT,
    )
    shard_size: int = Field(
        default=2_000,
        ge=1,
        le=100_000,
        description="Number of texts that are encoded and saved together, and of queries whose texts are "
        "judged and saved together.",
    )
    index: str | None = Field(
        default=None,
        description="Search with a FAISS index such as IVF4096,Flat, for corpora too large for an exact "
        "search. The share of neighbours that it finds is measured and reported.",
    )
    index_rows: IndexRows = 1_000_000
    recall: IndexRecall = 0.95
    search_rows: int = Field(
        default=8_192,
        ge=1,
        description="Number of queries that are searched and saved together, in the exact search.",
    )

    @model_validator(mode="after")
    def _are_possible(self) -> Self:
        places = self.last_rank - self.first_rank + 1
        if places < self.negatives:
            raise ValueError(
                f"ranks {self.first_rank} to {self.last_rank} leave {max(0, places)} candidates, too few for "
                f"{self.negatives} negatives; give a larger last_rank"
            )
        if self.lowest is not None and self.highest is not None and self.lowest > self.highest:
            raise ValueError(
                f"lowest {self.lowest:g} is above highest {self.highest:g}; nothing lies between"
            )
        return self

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.judge is None:
            refuse(self, ("judge_kind",), "without a judge")
        if self.index is None:
            refuse(self, ("index_rows", "recall"), "without index; the exact search misses nothing")
        return self

    @property
    def drawn_before_scores(self) -> bool:
        """Whether negatives are drawn whatever their scores, so that a judge need not score the others."""
        limits = (self.margin, self.highest, self.lowest)
        return self.pick == "random" and not self.positive_share and all(limit is None for limit in limits)

    def encoding(self) -> EncodingOptions:
        """How queries and texts are encoded."""
        return options_of(EncodingOptions, self)

    def judging(self) -> JudgeOptions:
        """How the judge, if there is one, scores texts for queries; it reads up to its own limit."""
        return options_of(JudgeOptions, self, judge=self.judge_kind, model=self.judge, max_length=None)
