"""Training options of question generators, teachers and students."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.settings import NO_EFFECT, refuse
from pairsmith.training.options import EpochOptions, LabelSmoothing, Several

StudentLabels = Literal["teacher", "hard", "answers"]
"""The targets that a student learns for a question (Q5, Q6)."""


class QuestionGeneratorOptions(EpochOptions):
    """How a model learns to read a passage, and to write an answer and its question (Q2)."""

    base: str = Field(
        description="Model to start from, a folder or Hub id: a model with an encoder and a decoder; an "
        "encoder, which gets a decoder with its weights; or a causal language model such as pairsmith:tiny, "
        "which learns to follow the instruction of ask."
    )
    max_length: int | None = Field(
        default=456,
        ge=16,
        description="Longest passage in tokens, without special tokens; longer texts are cut into passages. "
        "The model's own limit applies, too.",
    )
    label_smoothing: LabelSmoothing = 0.0
    questions: int = Field(
        default=1,
        ge=1,
        description="For a causal language model: maximum number of questions on the same passage that are "
        "learned together. The model reads the passage once for all of them, which takes several times less "
        "time than once for each question, but a step then has fewer passages.",
    )


class TeacherOptions(EpochOptions):
    """How a reader learns to answer questions, so that students can learn from it (Q3)."""

    max_length: int | None = Field(
        default=512,
        ge=16,
        description="Longest input in tokens, question and text together; longer texts are cut into windows. "
        "Unset: the base's own limit.",
    )


class StudentOptions(EpochOptions):
    """How a bi-encoder learns from a teacher that its token vectors answer questions (Q4, Q5)."""

    labels: StudentLabels = Field(
        default="teacher",
        description="What the student learns. teacher: the teacher's span distributions; hard: the teacher's "
        "likeliest start and end; answers: the span of the question's own answer, or the first token if the "
        "passage does not contain it.",
    )
    negatives: Literal["passage", "batch"] = Field(
        default="passage",
        description="Tokens among which the student learns to find the answer: those of the question's "
        "passage, or those of several passages of the step, see --together.",
    )
    together: int = Field(
        default=9,
        ge=2,
        description="With --negatives batch: number of passages of a step whose tokens are joined; the paper "
        "joins the nine that each of its GPUs had.",
    )
    questions: int = Field(
        default=10,
        ge=1,
        description="Maximum number of questions per passage in a step. If a passage has more, later passes "
        "over the passages use the next ones in turn.",
    )
    batch_size: int = Field(
        default=8, ge=1, description="Number of passages per training step, each with its questions."
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of tokens of passages, or of questions, in a model call; a step makes as "
        "many calls as it needs. Lower it if memory runs out; a single passage, or its questions, may have "
        "more. Unset: what suits the device, or with --negatives batch all that are joined.",
        json_schema_extra=NO_EFFECT,
    )
    learning_rate: Annotated[list[float], Several] = Field(
        default=[1e-5],
        min_length=1,
        description="Highest learning rate, reached after the warm-up. If several are given, the one that "
        "does best on the validation questions is kept.",
    )
    max_length: int | None = Field(
        default=458,
        ge=16,
        description="Longest passage in tokens, including special tokens; the rest is cut off. BERT and "
        "RoBERTa have two special tokens, so 458 leaves 456 for the text. Unset: the base's own limit.",
    )

    @model_validator(mode="after")
    def _together_in_batches(self) -> Self:
        if self.negatives == "passage":
            refuse(self, ("together",), "with negatives passage, which joins no passages")
        return self
