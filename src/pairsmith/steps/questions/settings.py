"""Settings of ``ask``, ``relabel`` and ``answer``: their defaults, bounds and help texts."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from pairsmith.core.fields import (
    AnswerTokens,
    BatchTokens,
    Device,
    Dtype,
    ShardBounds,
    WindowLength,
    WindowsAtOnce,
    WorkerSettings,
)
from pairsmith.core.settings import BY_CONTENT, MOST_BEAMS, NO_EFFECT, Listed, refuse
from pairsmith.data.text.instructed import INSTRUCTION
from pairsmith.methods.quip.options import GenerationOptions, QuestionDecoding
from pairsmith.steps.corpora.options import options_of

_QUESTIONS_TOGETHER = ShardBounds(least=64, most=2_000)
QuestionsTogether = Annotated[
    int | None,
    Field(
        ge=1,
        le=100_000,
        description=f"Number of questions that are processed and saved together. {_QUESTIONS_TOGETHER.unset}",
    ),
]


class AskSettings(WorkerSettings):
    """Generate questions on passages, each with an answer (Q1, Q2)."""

    inputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Texts to ask about: a text file (one text per line), a JSON Lines, CSV, TSV or Parquet "
        "file, an official SQuAD file, a dataset folder, or a Hub data set. Long texts are cut into passages "
        "of whole sentences.",
        json_schema_extra=BY_CONTENT,
    )
    column: str | None = Field(default=None, description="Column that holds the texts.")
    keep_column: Annotated[list[str], Listed] = Field(
        default=[],
        description="Column of --inputs, such as url, to keep in the rows, as text. If several records have "
        "the same text, the first one's value is kept.",
    )
    sample: int | None = Field(
        default=None,
        ge=1,
        description="Number of passages to ask about from each of --inputs, drawn at random. Unset: all "
        "passages.",
    )
    model: str = Field(
        description="Question generator: a folder that train-asker wrote; a Hub id of a model with an "
        "encoder and a decoder that writes an answer, a separator and a question; a causal language model, "
        "which follows --instruction; or cloze, which needs no model and takes names and numbers out of "
        "sentences.",
        json_schema_extra=BY_CONTENT,
    )
    instruction: str = Field(
        default=INSTRUCTION,
        description="Prompt for a causal language model; {passage} stands for the passage. The model "
        "continues with an answer and a question, each in quotation marks.",
    )
    chat: bool = Field(
        default=False,
        description="Use the chat template of a causal language model, with the instruction as the user's "
        "message.",
    )
    examples: str | None = Field(
        default=None,
        description="Questions with answers on short passages, such as a SQuAD file. The first --shots of "
        "them are shown to a causal language model before each passage.",
        json_schema_extra=BY_CONTENT,
    )
    shots: int = Field(default=3, ge=1, le=32, description="Number of --examples to show.")
    answers: str = Field(
        default="rule",
        description="With --model cloze, how names and numbers are found in passages: rule (by their form) "
        "or spacy:MODEL (by an installed spaCy model).",
    )
    separator: str = Field(
        default="<sep>",
        min_length=1,
        description="Token between answer and question, for models with an encoder and a decoder.",
    )
    questions: int = Field(
        default=10, ge=1, le=1_000, description="Number of distinct questions to generate for each passage."
    )
    tries: int = Field(
        default=3,
        ge=1,
        description="Maximum number of sampling rounds for a passage; each round draws the questions that "
        "are still missing.",
    )
    decoding: QuestionDecoding = Field(
        default="nucleus",
        description="How texts are generated. nucleus: answers and questions are sampled. beams: beam search "
        "finds the likeliest answers; those that differ most are kept, and beam search finds the likeliest "
        "question for each.",
    )
    top_p: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Sample from the likeliest tokens that together hold this probability; lower values give "
        "less varied questions.",
    )
    beams: int = Field(
        default=20,
        ge=1,
        le=MOST_BEAMS,
        description="Number of beams in the search for answers, with --decoding beams; at least --questions.",
    )
    max_length: int | None = Field(
        default=456,
        ge=16,
        description="Longest passage in tokens, without special tokens; with --model cloze, in words and "
        "punctuation marks. The model's own limit applies, too.",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Number of passages processed at once, each with all its questions. Unset: 16, with a "
        "causal language model 64.",
    )
    seed: int = Field(default=1, ge=0, lt=2**64, description="Seed of the sampling.")
    reuse: str | None = Field(
        default=None,
        description="A finished folder of questions that were generated with the same settings and model. "
        "Passages with questions in this folder keep them; questions are only generated on the others.",
        json_schema_extra=NO_EFFECT,
    )
    device: Device = "auto"
    dtype: Dtype = "float32"
    shard_bounds: ClassVar[ShardBounds] = ShardBounds(least=40, most=200)
    shard_size: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description=f"Number of texts that are processed and saved together. {shard_bounds.unset}",
    )

    @property
    def options(self) -> GenerationOptions:
        """The settings of the method itself, without the examples, which have to be read from a file."""
        return options_of(GenerationOptions, self, examples=())

    @field_validator("instruction")
    @classmethod
    def _with_passage(cls, instruction: str) -> str:
        if "{passage}" not in instruction:
            raise ValueError("has no {passage}, which is replaced by the passage; add it")
        return instruction

    @model_validator(mode="after")
    def _shots_of_examples(self) -> Self:
        if self.examples is None:
            refuse(self, ("shots",), "without examples")
        return self

    @model_validator(mode="after")
    def _beams_for_all(self) -> Self:
        if self.decoding == "beams" and self.beams < self.questions:
            raise ValueError(
                f"{self.beams} beams cannot find {self.questions} answers; give at least as many beams"
            )
        return self


class RelabelSettings(WorkerSettings):
    """Label questions with a teacher's distributions over the starts and ends of their answers (Q3)."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Questions on passages: a folder that ask wrote, a SQuAD file, or rows with the columns "
        "question and context. If a folder has several splits, train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    keep_column: Annotated[list[str], Listed] = Field(
        default=[],
        description="Column of --data, such as one that ask has kept, to keep in the rows, as text.",
    )
    model: str = Field(
        description="Teacher: a folder that train-teacher wrote, or a Hub id of a model for question "
        "answering.",
        json_schema_extra=BY_CONTENT,
    )
    top: int = Field(
        default=8,
        ge=1,
        description="Number of likeliest starts, and of likeliest ends, to keep for each question; all "
        "others count as impossible.",
    )
    max_answer_tokens: int = Field(
        default=17, ge=1, description="Longest answer that the teacher may give, in tokens."
    )
    least_confidence: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Keep only questions for whose best answer the teacher has at least this probability.",
    )
    agreement: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Keep only questions for which the teacher's answer has at least this word F1 with the "
        "generated answer: a round-trip filter.",
    )
    max_length: int | None = Field(
        default=None,
        ge=16,
        description="Longest input in tokens, question and text together; longer texts are cut into windows. "
        "Unset: the model's own limit.",
    )
    batch_tokens: BatchTokens = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    shard_bounds: ClassVar[ShardBounds] = _QUESTIONS_TOGETHER
    shard_size: QuestionsTogether = None


class AnswerSettings(WorkerSettings):
    """Answer questions, each by a span of its passage (Q7)."""

    model: str = Field(
        description="Folder that train-reader, train-teacher or infuse wrote, or a folder or Hub id of a "
        "model of transformers for question answering.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Questions on passages, with or without answers: a SQuAD file, rows with the columns "
        "question and context (.jsonl, .csv, .tsv, .parquet), a dataset folder, a Hub data set, or what "
        "search --json printed.",
        json_schema_extra=BY_CONTENT,
    )
    max_answer_tokens: AnswerTokens = 17
    max_length: WindowLength = None
    batch_size: WindowsAtOnce = 32
    device: Device = "auto"
    dtype: Dtype = "float32"
    shard_bounds: ClassVar[ShardBounds] = _QUESTIONS_TOGETHER
    shard_size: QuestionsTogether = None
