"""Training options of the mining route: bi-encoder, cross-encoder, reader and summariser."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import Pooling
from pairsmith.core.settings import MOST_BEAMS, refuse
from pairsmith.training.options import FewShotOptions, LabelSmoothing, NotNegative, Positive, TrainingSteps

MiningKind = Literal["pairs", "reading", "summaries"]
AnswerCandidates = Annotated[
    str, Field(description="How candidates for wrong answers are found in passages; see --answers of mine.")
]
WindowWords = Annotated[int, Field(ge=1, description="Longest passage in words; see --window of mine.")]


class BiencoderOptions(FewShotOptions):
    """How a bi-encoder learns to put the inputs and outputs of pairs close together (M2)."""

    kind: MiningKind = Field(default="pairs", description="What a pair consists of; see --kind of mine.")
    negatives: int = Field(
        default=1,
        ge=0,
        description="Number of negatives of each sort for each pair, besides the in-batch negatives: wrong "
        "answers of the right passage, and the right answer in wrong passages (reading); or texts of "
        "--outputs (pairs, summaries).",
    )
    scale: Positive = Field(default=20.0, description="Factor that multiplies the cosines in the loss.")
    style_weight: NotNegative = Field(
        default=1.0, description="Weight of the style classifier's loss; 0 trains no style classifier."
    )
    towers: Literal["one", "two"] = Field(
        default="one", description="one: the same encoder for inputs and outputs; two: an encoder for each."
    )
    answers: AnswerCandidates = "rule"
    window: WindowWords = 150
    pooling: Pooling = "default"

    @model_validator(mode="after")
    def _nothing_foreign_to_the_kind(self) -> Self:
        if self.kind == "pairs":
            refuse(
                self, ("style_weight",), "with kind pairs, which has no style; reading and summaries have one"
            )
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"with kind {self.kind}; it is for kind reading")
        return self


class CrossencoderOptions(FewShotOptions):
    """How a cross-encoder learns to tell pairs from hard negatives, or human scores of pairs (M6)."""

    kind: Literal[MiningKind, "scored"] = Field(
        default="pairs",
        description="What a pair consists of; see --kind of mine. scored: pairs with the columns sentence1, "
        "sentence2 and score, from 0 to 1; the model learns the scores.",
    )
    negatives: int = Field(default=3, ge=1, description="Number of negatives for each positive in a step.")
    loss: Literal["auto", "binary", "listwise"] = Field(
        default="auto",
        description="binary: each pair is classified as right or wrong; listwise: the positive is ranked "
        "above the negatives of its input. auto: listwise for summaries, binary for the other kinds.",
    )
    batch_size: int = Field(
        default=8, ge=1, description="Number of seeds per training step, each with its negatives."
    )
    steps: TrainingSteps = 1_000
    answers: AnswerCandidates = "rule"

    @model_validator(mode="after")
    def _nothing_foreign_to_the_kind(self) -> Self:
        if self.kind == "scored":
            if self.loss == "listwise":
                raise ValueError(scored_without("loss listwise"))
            refuse(self, ("negatives",), "with kind scored, which has no negatives")
        if self.kind != "reading":
            refuse(self, ("answers",), f"with kind {self.kind}; it is for kind reading")
        return self


def scored_without(option: str) -> str:
    """The message that an option does not apply to pairs with scores."""
    return f"{option} is for positives and negatives; pairs of kind scored have scores instead"


class ReaderOptions(FewShotOptions):
    """How a reader learns to mark the answer to a question in a text (M9)."""

    max_length: int | None = Field(
        default=None,
        ge=16,
        description="Longest input in tokens, question and text together. Longer texts are cut into windows, "
        "of which those that contain the answer are used. Unset: the base's own limit.",
    )


class SummarizerOptions(FewShotOptions):
    """How a model learns to write summaries, or questions for answers (M9)."""

    kind: Literal["summaries", "reading"] = Field(
        default="summaries",
        description="What the model learns to write. summaries: the summary of a document; reading: a "
        "question for an answer in a passage.",
    )
    marker: str = Field(
        default="<mined>",
        description="Special token put before the documents, or answers, of added examples, whose style may "
        "differ from that of the seeds. Empty: none.",
    )
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Longest document in tokens; the rest is cut off. The base's own limit applies, too, in "
        "a decoder-only model to document and summary together. Unset: only the base's own limit.",
    )
    summary_tokens: int = Field(
        default=62,
        ge=4,
        description="Longest summary in tokens, both for training and for generation; the rest is cut off.",
    )
    label_smoothing: LabelSmoothing = 0.0
    beams: int = Field(
        default=6,
        ge=1,
        le=MOST_BEAMS,
        description="Number of beams when summaries of validation documents are generated.",
    )
