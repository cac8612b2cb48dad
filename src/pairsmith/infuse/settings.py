"""Settings of ``ask`` and ``relabel``: their defaults, bounds and help texts."""

from dataclasses import fields
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pairsmith.fields import BatchTokens, Device, Dtype, Executor, RayAddress, Workers
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.settings import Listed, Settings
from pairsmith.texts.instructed import INSTRUCTION


class AskSettings(Settings):
    """Generate questions on passages, each with an answer (Q1, Q2)."""

    inputs: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Texts: plain text (one a line), JSON Lines, CSV, TSV, Parquet, a dataset folder or a "
        "Hub data set; long ones are cut into passages of whole sentences.",
    )
    column: str | None = Field(default=None, description="Column that holds the texts.")
    model: str = Field(
        description="Asker: a folder that train-asker wrote, a Hub id of a model with an encoder and a "
        "decoder that writes an answer, a separator and a question, or a causal language model, which is "
        "told what to do. cloze: no model, but sentences from which names and numbers are taken out."
    )
    instruction: str = Field(
        default=INSTRUCTION,
        description="What a causal language model is told; {passage} stands for the passage. It goes on with "
        "an answer and a question, each in quotation marks.",
    )
    chat: bool = Field(
        default=False, description="Tell it as a user's message, as models made for chats are told things."
    )
    answers: str = Field(
        default="rule",
        description="With --model cloze: what finds names and numbers in passages: rule, or spacy:MODEL.",
    )
    separator: str = Field(default="<sep>", min_length=1, description="Token between answer and question.")
    questions: int = Field(default=10, ge=1, le=1_000, description="Distinct questions of each passage.")
    tries: int = Field(
        default=3, ge=1, description="Times that what is missing is drawn anew, before fewer questions do."
    )
    decoding: Literal["nucleus", "beams"] = Field(
        default="nucleus",
        description="nucleus: answers and questions are drawn. beams: the likeliest answers are searched, "
        "those that differ most are kept, and the likeliest question is searched for each.",
    )
    top_p: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Share of the probability that the tokens hold from which is drawn.",
    )
    beams: int = Field(default=20, ge=1, description="Answers that are searched, with --decoding beams.")
    max_length: int | None = Field(
        default=456,
        ge=16,
        description="Longest passage in tokens, special ones not counted; with --model cloze in words and "
        "marks. Never more than the model has room for.",
    )
    batch_size: int = Field(default=16, ge=1, description="Passages at once, each with all its questions.")
    seed: int = Field(default=1, ge=0, lt=2**64, description="Seed of what is drawn.")
    device: Device = "auto"
    dtype: Dtype = "float32"
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    shard_size: int = Field(
        default=200, ge=1, le=100_000, description="Texts that are asked about and saved together."
    )

    @property
    def options(self) -> GenerationOptions:
        """The settings that belong to the method itself."""
        return GenerationOptions(
            **{each.name: getattr(self, each.name) for each in fields(GenerationOptions)}
        )

    @field_validator("instruction")
    @classmethod
    def _with_passage(cls, instruction: str) -> str:
        if "{passage}" not in instruction:
            raise ValueError("has no {passage}, which stands for the passage")
        return instruction

    @model_validator(mode="after")
    def _beams_for_all(self) -> Self:
        if self.decoding == "beams" and self.beams < self.questions:
            raise ValueError(f"{self.beams} beams find no {self.questions} answers; give more beams")
        return self


class RelabelSettings(Settings):
    """Have a teacher answer questions, as distributions over starts and ends of answers (Q3)."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Questions on passages: a folder that ask wrote, a SQuAD file, or rows with the columns "
        "question and context. Of several splits of a folder train is taken; FOLDER:SPLIT names another.",
    )
    model: str = Field(
        description="Teacher: a folder that train-teacher wrote, or a Hub id of a model for question "
        "answering."
    )
    top: int = Field(
        default=8, ge=1, description="Likeliest starts and ends that are kept; others count as impossible."
    )
    max_answer_tokens: int = Field(default=17, ge=1, description="Longest answer of the teacher in tokens.")
    max_length: int | None = Field(
        default=None,
        ge=16,
        description="Longest input in tokens, question and text together; longer texts are read in windows. "
        "Unset: the model's own.",
    )
    batch_tokens: BatchTokens = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    shard_size: int = Field(
        default=2_000, ge=1, le=100_000, description="Questions that are answered and saved together."
    )
