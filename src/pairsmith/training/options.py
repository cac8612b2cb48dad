"""Options of the trainings: how a model learns. The methods' own options build on these."""

import math
from abc import abstractmethod
from multiprocessing import get_all_start_methods
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from pairsmith.core.fields import TrainingDtype
from pairsmith.core.settings import NO_EFFECT, Settings

FEW_STEPS = 10
"""A training with fewer steps than this warns that it is short."""


def _as_list(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's numbers and arrays
    return value if isinstance(value, list | tuple) else [value]


Several = BeforeValidator(_as_list)
"""A single number, or an array of NumPy or pandas, may be given in place of a list."""

# Fields of several trainings; each training sets its own default.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MaxSteps = Annotated[int | None, Field(ge=1, description="Stop after this many steps, if that is sooner.")]
TrainingSteps = Annotated[int, Field(ge=1, description="Number of training steps.")]
LabelSmoothing = Annotated[
    float,
    Field(
        ge=0,
        lt=1,
        description="Share of each target token's probability that is spread over all tokens in the loss.",
    ),
]
CheckpointSteps = Annotated[
    int,
    Field(
        ge=1,
        description="Steps between two checkpoints, from which a stopped training continues. A training in "
        "one process also saves one every ten minutes.",
        json_schema_extra=NO_EFFECT,
    ),
]
TrainingDevice = Annotated[
    str,
    Field(
        pattern=r"^(auto|cpu|mps|cuda)$",
        description="auto, cpu, cuda, mps. A process trains on one device: CUDA_VISIBLE_DEVICES selects the "
        "GPU, and torchrun starts a process for each of several GPUs.",
        json_schema_extra=NO_EFFECT,
    ),
]
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


class TrainingOptions(Settings):
    """Options of every training that keeps its best step."""

    batch_size: int = Field(default=32, ge=1, description="Number of examples per training step.")
    warmup: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the steps during which the learning rate rises from 0.",
    )
    weight_decay: NotNegative = Field(
        default=0.01, description="Weight decay; biases and layer norms are left out."
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the attention weights that is dropped in training; with 0, training on a CPU "
        "takes about a third less time. Unset: the base's own.",
    )
    eval_steps: int = Field(
        default=20, ge=1, description="Steps between two evaluations on the validation examples."
    )
    keep_base: bool = Field(
        default=False,
        description="Keep the base as it is if no step has a higher validation figure.",
    )
    checkpoint_steps: CheckpointSteps = 100
    tensorboard: bool = Field(
        default=False,
        description="Write TensorBoard logs to logs/ in the output folder; needs the extra tensorboard.",
        json_schema_extra=NO_EFFECT,
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of examples and of dropout.")
    dtype: TrainingDtype = "auto"

    @abstractmethod
    def steps_are_chosen(self, steps: int) -> bool:
        """Whether the user has set this number of steps; else it follows from the examples."""

    @abstractmethod
    def steps_of(self, examples: int) -> int:
        """The number of steps with this number of examples."""


class FitOptions(TrainingOptions):
    """How a base is trained on examples, at one learning rate or at several."""

    base: str = Field(
        description="Model to start from: a folder or Hub id, embedded:all-minilm-l6-v2 or "
        "embedded:smollm2-135m-instruct."
    )
    learning_rate: Annotated[list[float], Several] = Field(
        default=[3e-5],
        min_length=1,
        description="Highest learning rate, reached after the warm-up. If several are given, the one that "
        "does best on the validation examples is kept.",
    )
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Longest input in tokens; the rest is cut off. Unset: the base's own limit.",
    )
    device: TrainingDevice = "auto"
    loader_workers: int = Field(
        default=0,
        ge=0,
        description="Number of processes that prepare batches while the model computes; 1 or 2 if a GPU has "
        "to wait for batches. Training on a CPU gains nothing by them.",
        json_schema_extra=NO_EFFECT,
    )

    @field_validator("learning_rate")
    @classmethod
    def _above_0(cls, rates: list[float]) -> list[float]:
        if any(not 0 < rate < 1 for rate in rates):
            raise ValueError("learning rates must lie between 0 and 1")
        if len(set(rates)) < len(rates):
            raise ValueError(f"{', '.join(f'{rate:g}' for rate in rates)}: give each learning rate once")
        return rates

    @field_validator("loader_workers")
    @classmethod
    def _can_fork(cls, workers: int) -> int:
        if workers and "fork" not in get_all_start_methods():
            raise ValueError("this system cannot fork processes, as these workers are; give 0")
        return workers


class FewShotOptions(FitOptions):
    """A training for a fixed number of steps, as on a hundred examples."""

    steps: TrainingSteps = 200

    def steps_are_chosen(self, steps: int) -> bool:  # noqa: ARG002 - the signature of FitOptions
        """Always: ``steps`` is a number of steps."""
        return True

    def steps_of(self, examples: int) -> int:  # noqa: ARG002 - the signature of FitOptions
        """The number of steps with this number of examples."""
        return self.steps


class EpochOptions(FitOptions):
    """A training for a number of epochs."""

    epochs: Positive = Field(default=2.0, description="Number of passes over the examples.")
    max_steps: MaxSteps = None

    def steps_are_chosen(self, steps: int) -> bool:
        """Whether the user has set this number of steps."""
        return self.max_steps == steps

    def steps_of(self, examples: int) -> int:
        """The number of steps with this number of examples."""
        whole = max(1, math.ceil(self.epochs * examples / self.batch_size))
        return min(whole, self.max_steps or whole)
