"""Settings for training a sentence encoder on scored pairs."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.core.fields import TrainingDtype
from pairsmith.core.settings import ADDED, BY_CONTENT, NO_EFFECT, Settings
from pairsmith.training.settings import (
    CheckpointSteps,
    KeepBase,
    MaxSteps,
    Pooling,
    Positive,
    Tensorboard,
    TrainingDevice,
    Warmup,
    WeightDecay,
)

Layers = Annotated[
    int | None,
    Field(
        ge=1,
        description="Keep only the base's first N layers. The middle layers of a language model represent a "
        "text best, and an encoder with a third of the layers takes a third of the time.",
    ),
]
Attention = Annotated[
    Literal["base", "bidirectional"],
    Field(
        description="base: as in the base model. bidirectional: the tokens of a causal language model also "
        "attend to the tokens after them."
    ),
]


class TrainEncoderSettings(Settings):
    """A sentence encoder, trained on pairs with similarity scores (D10)."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, or of any "
        "transformers encoder or causal language model; a GGUF file; embedded:smollm2-135m-instruct; "
        "embedded:all-minilm-l6-v2; or pairsmith:tiny."
    )
    data: str = Field(
        description="Scored pairs: a dataset folder, as postprocess writes it, or any file, folder or Hub "
        "data set with the columns sentence1, sentence2, score. Rows of a folder's split validation choose "
        "the best step.",
        json_schema_extra=BY_CONTENT,
    )
    objective: Literal["cosine", "cosent", "angle", "contrastive", "simcse"] = Field(
        default="cosine",
        description="What is learned. cosine: each pair's cosine is fitted to its score, as in the paper. "
        "cosent, angle: pairs are ranked by score. contrastive: texts of the highest score are told apart "
        "from hard negatives and from the texts of other rows. simcse: each text is told apart from other "
        "texts, with dropout alone and without scores.",
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
    layers: Layers = None
    attention: Attention = "base"
    centre: bool = Field(
        default=False,
        description="Subtract the mean vector of the training texts, in a layer that is trained and saved "
        "with the encoder. For language models as bases: their vectors all point in nearly the same "
        "direction, so that cosines are near 1, and --objective cosine would make them worse.",
        json_schema_extra=ADDED,
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
    warmup: Warmup = 0.1
    weight_decay: WeightDecay = 0.01
    eval_steps: int = Field(
        default=100,
        ge=1,
        description="Steps between two evaluations on the validation pairs; the best step is kept.",
    )
    keep_base: KeepBase = False
    checkpoint_steps: CheckpointSteps = 200
    tensorboard: Tensorboard = False
    eval_batch_size: int = Field(
        default=64,
        ge=1,
        description="Number of sentences encoded at once in evaluations.",
        json_schema_extra=NO_EFFECT,
    )
    pooling: Pooling = "default"
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest sentence in tokens; the rest is cut off. Unset: the base's own limit.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of pairs and of dropout.")
    device: TrainingDevice = "auto"
    dtype: TrainingDtype = "auto"

    @property
    def steps_are_chosen(self) -> bool:
        """Whether the user has set a number of steps."""
        return self.max_steps is not None
