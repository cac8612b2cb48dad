"""Settings of ``mine``, ``filter`` and ``rewrite``: their defaults, bounds and help texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import (
    BatchTokens,
    Device,
    Dtype,
    IndexRecall,
    IndexRows,
    InputColumn,
    OnePer,
    OutputColumn,
    VectorDtype,
    WorkerSettings,
)
from pairsmith.core.settings import BY_CONTENT, MOST_BEAMS, NO_EFFECT, Listed, refuse
from pairsmith.methods.mining.options import MiningKind
from pairsmith.search.names import MarginName, RetrievalName
from pairsmith.steps.corpora.options import EncodingOptions, JudgeName, JudgeOptions, UnitOptions, options_of


class MineSettings(WorkerSettings):
    """Find pairs of an input and an output in two corpora by the margin score of their vectors (M3)."""

    kind: MiningKind = Field(
        default="pairs",
        description="What a pair consists of. pairs: any two texts; reading: a question and an answer in a "
        "passage; summaries: a document and a sentence of another document.",
    )

    inputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Corpus of inputs: a text, JSONL, TSV, CSV or Parquet file, a dataset folder, or a Hub "
        "data set.",
        json_schema_extra=BY_CONTENT,
    )
    outputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Corpus of outputs, in one of the same formats.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str = Field(
        description="Sentence encoder for both corpora: a folder or Hub id, embedded:all-minilm-l6-v2, or "
        "pairsmith:tiny.",
        json_schema_extra=BY_CONTENT,
    )
    input_column: InputColumn = None
    output_column: OutputColumn = None
    group_column: str | None = Field(
        default=None,
        description="Column of both corpora, such as a date; texts are paired only if they agree in it. If "
        "dates have a time, only the day counts.",
    )
    keep_input_column: Annotated[list[str], Listed] = Field(
        default=[],
        description="Column of --inputs, such as url, to keep in the pairs: as text, with input_ before its "
        "name. If several records have the same text, the first one's value is kept.",
    )
    keep_output_column: Annotated[list[str], Listed] = Field(
        default=[],
        description="Column of --outputs to keep in the pairs in the same way, with output_ before its name.",
    )
    answers: str = Field(
        default="rule",
        description="How candidate answers are found in passages: rule (names, numbers and dates, by their "
        "form) or spacy:MODEL (the entities that an installed spaCy model finds).",
    )
    window: int = Field(
        default=150, ge=1, description="Longest passage in words; longer ones are cut between sentences."
    )
    min_sentences: int = Field(
        default=4, ge=1, description="For kind summaries: leave out documents with fewer sentences than this."
    )
    style: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Drop questions (for kind summaries: sentences) whose probability of being in the style "
        "of the seeds is lower than this; 0 keeps all. This needs the style classifier of an encoder that "
        "train-biencoder wrote; with other encoders, all are kept.",
    )
    k: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="Number of nearest neighbours of each text, in each direction, that are its candidates "
        "and enter its margin; neighbours that --verbatim drops do not count. More neighbours take more time "
        "and memory, but less than in proportion.",
    )
    margin: MarginName = Field(
        default="ratio",
        description="How a pair is scored. ratio: its cosine divided by the mean cosine of both texts with "
        "their nearest neighbours; distance: its cosine minus that mean; absolute: its cosine.",
    )
    retrieval: RetrievalName = Field(
        default="max",
        description="Which pairs are chosen. candidates: all candidates, --k for every input and for every "
        "output, which filter then ranks again; max: the best pairs, each text used once; intersection: "
        "pairs of texts that are each other's best match; forward: the best output of each input; backward: "
        "the best input of each output.",
    )
    threshold: float | None = Field(
        default=None, allow_inf_nan=False, description="Drop pairs whose margin is below this."
    )
    best: int | None = Field(
        default=None,
        ge=1,
        description="Keep only this many pairs, those with the largest margins; with --retrieval candidates, "
        "only this many candidates, so that filter has fewer to judge.",
    )
    verbatim: Literal["drop", "keep"] = Field(
        default="drop",
        description="What to do with pairs in which one text contains the other word for word; for kind "
        "reading, with pairs whose question contains the answer.",
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest text in tokens; the rest is cut off. Unset: the encoder's own limit.",
    )
    batch_tokens: BatchTokens = None
    vector_dtype: VectorDtype = "float32"
    memory: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="Memory in gigabytes for the similarities that the search holds at once. The vectors, "
        "about 200 bytes per text, and 30 bytes per neighbour come on top.",
        json_schema_extra=NO_EFFECT,
    )
    shard_size: int = Field(
        default=500, ge=1, le=100_000, description="Number of texts that are encoded and saved together."
    )
    index: str | None = Field(
        default=None,
        description="Search with a FAISS index such as IVF4096,Flat or IVF16384,PQ48x4fs, for corpora too "
        "large for an exact search (some millions of texts). The share of neighbours that it finds is "
        "measured and reported.",
    )
    index_rows: IndexRows = 1_000_000
    recall: IndexRecall = 0.95
    search_rows: int = Field(
        default=131_072,
        ge=1,
        description="Number of inputs that are searched and saved together, in the exact search.",
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.kind == "pairs":
            refuse(
                self,
                ("style",),
                "with --kind pairs, which has no style; --kind reading and summaries have one",
            )
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"with --kind {self.kind}; it is for --kind reading")
        if self.kind != "summaries":
            refuse(self, ("min_sentences",), f"with --kind {self.kind}; it is for --kind summaries")
        if self.index is None:
            refuse(self, ("index_rows", "recall"), "without index; the exact search misses nothing")
        return self

    def units(self) -> UnitOptions:
        """How the records of both corpora are cut into the texts to encode."""
        return options_of(UnitOptions, self)

    def encoding(self) -> EncodingOptions:
        """How both corpora are encoded."""
        return options_of(EncodingOptions, self, units=self.units())


_OF_MODELS = (
    "model", "beside", "device", "dtype", "max_length", "batch_tokens", "executor", "workers", "rank",
)  # fmt: skip
"""Settings of ``filter`` that apply only if a model judges."""


class FilterSettings(WorkerSettings):
    """Score pairs with a cross-encoder (M6), a sentence encoder or a language model, and keep the best."""

    pairs: str = Field(
        description="Dataset folder of pairs with the columns input and output, as mine writes it, or "
        "sentence1 and sentence2. If there are several splits, train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    model: str | None = Field(
        default=None,
        description="The judge's model. Cross-encoder: a folder that train-crossencoder wrote, or a Hub id. "
        "With --judge encoder or likeness: a sentence encoder, as for evaluate sts. With --judge likelihood: "
        "a causal language model. With --judge margin: none.",
        json_schema_extra=BY_CONTENT,
    )
    judge: Literal[JudgeName, "margin"] = Field(
        default="cross-encoder",
        description="What scores the pairs. cross-encoder: a model that reads both texts together. encoder: "
        "the cosine of the two texts' vectors. likelihood: how much likelier the second text is after the "
        "first than alone, or how well question, answer and passage fit, by a language model that is not "
        "trained. likeness: how much both texts are like those of --seeds, by a classifier on an encoder's "
        "vectors, which is trained in seconds to tell the seeds from the pairs. margin: the margin that mine "
        "gave the pairs, without a model. With encoder and likelihood, --by agreement compares the rank of "
        "the score, from 0 to 1 among all pairs, with the score that the pair was written for.",
    )
    seeds: str | None = Field(
        default=None,
        description="With --judge likeness, the labelled pairs that the kept pairs should be like: of the "
        "same kind as the mined pairs, as for train-biencoder.",
        json_schema_extra=BY_CONTENT,
    )
    cue: str | None = Field(
        default=None,
        min_length=1,
        description="With --judge likelihood, the text between the two texts. Unset: TL;DR: for documents "
        "and summaries, else an empty line.",
    )
    beside: Annotated[list[str], Listed] = Field(
        default=[],
        description="Columns of numbers, such as margin, that are added to the judge's score, after the "
        "score and each column are standardised over all pairs. The sum ranks the pairs or, with --rank-by, "
        "chooses one pair of each input.",
    )
    rank_by: Annotated[list[str], Listed] = Field(
        default=[],
        description="Columns of numbers, such as the score of an earlier filter, whose sum ranks the pairs, "
        "each standardised over all pairs; the judge then only chooses one pair of each input. This is for "
        "cross-encoders that are trained to rank the outputs of one input, as for summaries: their scores "
        "cannot be compared between inputs.",
    )
    by: Literal["auto", "score", "agreement"] = Field(
        default="auto",
        description="How pairs are ranked. score: by the judge's score. agreement: by how close that "
        "score, mapped to 0 to 1, is to the score that the pair was written for; the same share of each "
        "label is kept. auto: agreement for pairs with the columns sentence1, sentence2 and score, else "
        "score.",
    )
    one_per: Literal["auto", OnePer] = Field(
        default="auto",
        description="Which pairs compete with each other before the best are kept. input: the pairs of an "
        "input, of which one is left; both: the same, and no output is used twice (with --rank-by, an input "
        "whose chosen output is in a better pair is left out); pair: none. auto: input with --rank-by and "
        "for pairs that mine wrote with --retrieval candidates, else pair.",
    )
    best: int | None = Field(
        default=None, ge=1, description="Keep only this many pairs, those that rank highest."
    )
    share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Keep only this share of the pairs that --one-per leaves, those that rank highest.",
    )
    threshold: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Keep only pairs whose score is at least this: the judge's score, with --by agreement "
        "the agreement from 0 to 1, and with --beside or --rank-by the sum that ranks the pairs.",
    )
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Longest pair in tokens; the rest is cut off. Unset: the model's own limit.",
    )
    batch_tokens: BatchTokens = None
    shard_size: int = Field(
        default=2_000, ge=1, le=100_000, description="Number of pairs that are scored and saved together."
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.judge == "margin":
            refuse(self, _OF_MODELS, "with judge margin, which takes the pairs' own margins")
        elif self.model is None:
            raise ValueError("model is missing: give the model that judges the pairs, or --judge margin")
        if self.judge != "likelihood":
            refuse(self, ("cue",), "without --judge likelihood")
        if self.judge != "likeness":
            refuse(self, ("seeds",), "without --judge likeness")
        elif self.seeds is None:
            raise ValueError("seeds is missing: give the labelled pairs that kept pairs should be like")
        elif self.by == "agreement":
            raise ValueError(
                "judge likeness gives no scores from 0 to 1 that could agree with others; leave out --by "
                "agreement"
            )
        if self.by == "agreement":
            only = "by agreement, which compares the judge's scores with the pairs' own"
            refuse(self, ("beside", "rank_by"), only)
        if self.one_per == "pair":
            refuse(self, ("rank_by",), "with one_per pair, because nothing is left for the judge to choose")
        return self

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if self.best is self.share is self.threshold is None:
            raise ValueError(
                "a filter keeps the best, so say how many: give --best or --share, or a --threshold; "
                "--share 1 ranks all pairs and keeps them"
            )
        return self

    def judging(self) -> JudgeOptions:
        """How the model judges the pairs; not for the judge ``margin``, which has no model."""
        return options_of(JudgeOptions, self)


class RewriteSettings(WorkerSettings):
    """Replace one side of pairs by generated texts: the questions or the summaries (the paper's Gen)."""

    kind: Literal["reading", "summaries"] = Field(
        description="What the model writes. reading: a question for each answer in its passage; summaries: a "
        "summary of each document."
    )
    pairs: str = Field(
        description="Dataset folder of pairs, as mine or filter writes it. If there are several splits, "
        "train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    model: str = Field(
        description="A folder that train-summarizer wrote for the same kind, or any model with an encoder "
        "and a decoder, or with a decoder only.",
        json_schema_extra=BY_CONTENT,
    )
    best: int | None = Field(default=None, ge=1, description="Use only the first N pairs.")
    beams: int = Field(
        default=6, ge=1, le=MOST_BEAMS, description="Number of beams in the search for each text."
    )
    tokens: int = Field(default=62, ge=4, description="Longest generated text in tokens.")
    device: Device = "auto"
    dtype: Dtype = "float32"
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Longest input text in tokens; the rest is cut off. Unset: the limit with which "
        "train-summarizer trained the model, else the model's own limit.",
    )
    batch_size: int = Field(
        default=8,
        ge=1,
        description="Number of texts that are generated at once, each with all its beams.",
        json_schema_extra=NO_EFFECT,
    )
    shard_size: int = Field(
        default=200, ge=1, le=100_000, description="Number of texts that are generated and saved together."
    )
