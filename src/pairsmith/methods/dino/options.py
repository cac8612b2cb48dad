"""Options: how generated rows become a training set, and how encoders and classifiers learn from it.

Nothing here imports the libraries that do the work.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from pairsmith.core.fields import TextsAtOnce
from pairsmith.core.settings import NO_EFFECT, Settings
from pairsmith.training.options import CheckpointSteps, MaxSteps, Positive, Several, TrainingOptions

NearCopies = Literal["task", "drop", "keep"]
Objective = Literal["cosine", "cosent", "angle", "contrastive", "simcse"]


@dataclass(frozen=True, slots=True)
class TrainingSetOptions:
    """How generated rows become a training set (D6-D9).

    Attributes:
        per_input: largest number of second texts of a first text and label, at least 1 (D6: 2).
        per_label: largest number of rows of a label, at least 1; None for no limit.
        min_words: smallest number of words of a generated text, at least 1.
        near_copies: ``drop`` or ``keep`` pairs whose texts differ only in case, spaces and punctuation, or do
            what the task says for each label. With ``keep``, sampled negatives may be near-copies, too.
        smoothing: epsilon of D7, from 0 to 1 (D7: 0.2).
        augment: number of sampled negatives of a first text, at least 0 (D8: 2).
        validation: share of each label's rows in the validation split, at least 0 and below 1 (D9: 0.1).
        seed: seed of the sampled negatives and of the split, from 0 to 2**63 - 1.
    """

    per_input: int
    per_label: int | None
    min_words: int
    near_copies: NearCopies
    smoothing: float
    augment: int
    validation: float
    seed: int


class EncoderOptions(TrainingOptions):
    """How a sentence encoder learns from pairs with similarity scores (D10)."""

    objective: Objective = Field(
        default="cosine",
        description="Training objective. cosine: each pair's cosine is fitted to its score, as in the paper. "
        "cosent, angle: pairs are ranked by score. contrastive: the second text with the highest score is "
        "distinguished from hard negatives and from the texts of other rows. simcse: each text, encoded "
        "twice with different dropout, is distinguished from the other texts of its batch; scores are not "
        "used.",
    )
    scale: Positive = Field(
        default=20.0, description="Factor that multiplies the cosines, in all objectives except cosine."
    )
    hard_negatives: float = Field(
        default=0.2,
        allow_inf_nan=False,
        description="With --objective contrastive: the highest score of a text that counts as a hard "
        "negative. Texts between this and the highest score are not used.",
    )
    centre: bool = Field(
        default=False,
        description="Subtract the mean vector of the training texts, in a layer that is trained and saved "
        "with the encoder. For language models as bases: their vectors all point in nearly the same "
        "direction, so that cosines are near 1, and --objective cosine would make the encoder worse.",
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the attention weights that is dropped in training. Unset: the base's own. "
        "simcse relies on dropout, so set it if the base has none.",
    )
    batch_size: int = Field(default=32, ge=1, description="Number of pairs per training step.")
    learning_rate: Positive = Field(
        default=2e-5, description="Highest learning rate, reached after the warm-up."
    )
    epochs: Positive = Field(default=1.0, description="Number of passes over the training pairs.")
    max_steps: MaxSteps = None
    eval_steps: int = Field(
        default=100,
        ge=1,
        description="Steps between two evaluations on the validation pairs; the best step is kept.",
    )
    checkpoint_steps: CheckpointSteps = 200
    eval_batch_size: int = Field(
        default=64,
        ge=1,
        description="Number of sentences encoded at once in evaluations.",
        json_schema_extra=NO_EFFECT,
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of pairs and of dropout.")

    def steps_are_chosen(self, steps: int) -> bool:
        """Whether the user has set this number of steps."""
        return self.max_steps == steps

    def steps_of(self, examples: int) -> int:
        """The number of steps with this number of pairs; a pass over them has a whole number of batches."""
        whole = max(1, math.ceil(self.epochs * math.ceil(examples / self.batch_size)))
        return min(whole, self.max_steps or whole)


class ClassifierOptions(Settings):
    """How a logistic regression on the vectors of a sentence encoder learns to classify texts (D14)."""

    c: Annotated[list[float], Several] = Field(
        default=[1.0],
        min_length=1,
        description="C of the logistic regression: a lower C keeps its weights smaller, so that it follows "
        "single texts less. If several are given, the one with the lowest log loss is kept. The C with the "
        "lowest loss on generated texts is too high for human-written texts, so give several only with "
        "human-written rows.",
    )
    balanced: bool = Field(
        default=True,
        description="Give all labels the same weight, however many texts each has: the number of generated "
        "texts of a label says nothing about how frequent the label is.",
    )
    batch_size: TextsAtOnce = 64
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the parts of the cross-validation.")

    @field_validator("c")
    @classmethod
    def _positive(cls, values: list[float]) -> list[float]:
        if any(not 0 < value < float("inf") for value in values):
            raise ValueError("every C must be above 0")
        if len(set(values)) < len(values):
            raise ValueError(f"{', '.join(f'{value:g}' for value in values)}: give each C once")
        return values
