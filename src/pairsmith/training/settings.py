"""What can be set when a sentence encoder is trained."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.modelnames import PoolingName
from pairsmith.settings import Settings

TrainingDevice = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda)$")]


class TrainEncoderSettings(Settings):
    """A sentence encoder whose cosine similarity is regressed on the pairs' scores (D10)."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, of any "
        "transformers encoder or causal language model; pairsmith:tiny; embedded:all-minilm-l6-v2."
    )
    data: str = Field(description="Dataset folder of scored pairs, as postprocess writes it.")
    batch_size: int = Field(default=32, ge=1, description="Pairs a step.")
    learning_rate: float = Field(
        default=2e-5, gt=0, allow_inf_nan=False, description="Highest learning rate, after the warm-up."
    )
    epochs: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Times through the training pairs."
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="Stop after so many steps, if that is sooner."
    )
    warmup: float = Field(
        default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises from 0."
    )
    weight_decay: float = Field(
        default=0.01, ge=0, allow_inf_nan=False, description="Weight decay, not on biases and layer norms."
    )
    eval_steps: int = Field(
        default=100,
        ge=1,
        description="Steps between two looks at the validation pairs; the best step is kept.",
    )
    checkpoint_steps: int = Field(
        default=200, ge=1, description="Steps between two checkpoints, from which a stopped training goes on."
    )
    eval_batch_size: int = Field(default=64, ge=1, description="Sentences encoded at once in validation.")
    pooling: PoolingName = Field(
        default="default",
        description="default: as the base was saved, the mean of its token vectors where nothing was saved; "
        "mean or cls: the bare transformer's last layer.",
    )
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest sentence in tokens; the rest is cut off. Unset: the base's own.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of pairs and of dropout.")
    device: TrainingDevice = Field(
        default="auto", description="auto, cpu, cuda, mps. One device; CUDA_VISIBLE_DEVICES says which."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Number format of the sums; weights are trained and kept in float32."
    )
