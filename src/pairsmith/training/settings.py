"""Settings of the trainings on labelled examples; `encoder_settings` has those of sentence encoders."""

from abc import abstractmethod
from multiprocessing import get_all_start_methods
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pairsmith.core.fields import TrainingDtype
from pairsmith.core.model_names import PoolingName
from pairsmith.core.settings import ADDED, BY_CONTENT, MOST_ITEMS, NO_EFFECT, Listed, Settings, refuse

FEW_STEPS = 10
"""With fewer steps a training is said to be short."""

Several = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])
"""A single number may be given in place of a list."""

# Fields of several trainings; each training sets its own default.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MaxSteps = Annotated[int | None, Field(ge=1, description="Stop after this many steps, if that is sooner.")]
Warmup = Annotated[
    float,
    Field(ge=0, lt=1, description="Share of the steps during which the learning rate rises from 0."),
]
WeightDecay = Annotated[NotNegative, Field(description="Weight decay; biases and layer norms are left out.")]
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
Tensorboard = Annotated[
    bool,
    Field(
        description="Write TensorBoard logs to logs/ in the output folder; needs the extra tensorboard.",
        json_schema_extra=NO_EFFECT,
    ),
]
TrainingDevice = Annotated[
    str,
    Field(
        pattern=r"^(auto|cpu|mps|cuda)$",
        description="auto, cpu, cuda, mps. A process trains on one device: CUDA_VISIBLE_DEVICES selects the "
        "GPU, and torchrun starts a process for each of several.",
        json_schema_extra=NO_EFFECT,
    ),
]
Pooling = Annotated[
    PoolingName,
    Field(
        description="How token vectors become a sentence vector. default: as the base was saved, or their "
        "mean if nothing was saved; mean, cls: of the transformer's last layer, whatever was saved.",
    ),
]
LoaderWorkers = Annotated[
    int,
    Field(
        ge=0,
        description="Number of processes that prepare batches while the model computes; 1 or 2 if a GPU has "
        "to wait for batches. Training on a CPU gains nothing by them.",
        json_schema_extra=NO_EFFECT,
    ),
]
KeepBase = Annotated[
    bool,
    Field(
        description="Keep the base as it is if no step has a higher validation figure.",
        json_schema_extra=ADDED,
    ),
]
LeastScore = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="For kind pairs with the columns sentence1, sentence2 and score or label: pairs with "
        "this score or more are positives; the others are left out.",
    ),
]
Answers = Annotated[
    str,
    Field(description="How candidates for wrong answers are found in passages; see --answers of mine."),
]
Window = Annotated[int, Field(ge=1, description="Longest passage in words; see --window of mine.")]
Extra = Annotated[
    int | None,
    Field(
        ge=0,
        le=MOST_ITEMS,
        description="Add only the first N examples; filter writes them from best to worst. Unset: all.",
    ),
]
QuestionSources = Annotated[
    list[str],
    Listed,
    Field(
        min_length=1,
        description="Questions with answers: SQuAD files, or rows with the columns question, context and "
        "answers.",
        json_schema_extra=BY_CONTENT,
    ),
]


class FitSettings(Settings):
    """Settings that all trainings on examples share."""

    base: str = Field(
        description="Model to start from: a folder or Hub id, embedded:all-minilm-l6-v2 or "
        "embedded:smollm2-135m-instruct."
    )
    validation: str | None = Field(
        default=None,
        description="Validation examples in the format of the training examples; they choose the best step "
        "and learning rate. Unset: the last step is kept.",
        json_schema_extra=BY_CONTENT,
    )
    batch_size: int = Field(default=32, ge=1, description="Number of examples per training step.")
    learning_rate: Annotated[list[float], Several] = Field(
        default=[3e-5],
        min_length=1,
        description="Highest learning rate, reached after the warm-up. If several are given, the one that "
        "does best on the validation examples is kept.",
    )
    warmup: Warmup = 0.1
    weight_decay: WeightDecay = 0.01
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
    keep_base: KeepBase = False
    checkpoint_steps: CheckpointSteps = 100
    tensorboard: Tensorboard = False
    max_length: int | None = Field(
        default=None,
        ge=8,
        description="Longest input in tokens; the rest is cut off. Unset: the base's own limit.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of examples and of dropout.")
    device: TrainingDevice = "auto"
    dtype: TrainingDtype = "auto"
    loader_workers: LoaderWorkers = 0

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

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.validation is None:
            refuse(self, ("keep_base",), "without validation, on whose examples the base would be measured")
        return self

    @property
    @abstractmethod
    def steps_are_chosen(self) -> bool:
        """Whether the user has set a number of steps, rather than leaving it to follow from the examples."""

    @abstractmethod
    def steps_of(self, examples: int) -> int:
        """The number of steps with this number of examples."""

    @abstractmethod
    def cut_to(self, steps: int) -> Self:
        """A copy with this number of steps."""


class FewShotSettings(FitSettings):
    """A training for a fixed number of steps, as on a hundred examples."""

    steps: int = Field(default=200, ge=1, description="Number of training steps.")

    @property
    def steps_are_chosen(self) -> bool:
        """Always: ``steps`` is a number of steps."""
        return True

    def steps_of(self, examples: int) -> int:  # noqa: ARG002 - the signature of FitSettings
        """The number of steps with this number of examples."""
        return self.steps

    def cut_to(self, steps: int) -> Self:
        """A copy with this number of steps."""
        return self.model_copy(update={"steps": steps})


class TrainBiencoderSettings(FewShotSettings):
    """A bi-encoder that puts the inputs and outputs of the seeds close together (M2)."""

    seeds: str = Field(
        description="The labelled pairs. pairs: a file or dataset folder with the columns input and output, "
        "or sentence1 and sentence2, see --least-score; reading: a SQuAD file, or the columns question, "
        "context and answers; summaries: the columns document and summary.",
        json_schema_extra=BY_CONTENT,
    )
    kind: Literal["pairs", "reading", "summaries"] = Field(
        default="pairs", description="What a pair consists of; see --kind of mine."
    )
    inputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="For kind reading: corpus of questions, which the style classifier learns to tell from "
        "those of the seeds.",
        json_schema_extra=BY_CONTENT,
    )
    outputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="Corpus of outputs, from which negatives are drawn; for kind summaries, the style "
        "classifier learns from it too.",
        json_schema_extra=BY_CONTENT,
    )
    input_column: str | None = Field(default=None, description="Column of --inputs that holds the texts.")
    output_column: str | None = Field(default=None, description="Column of --outputs that holds the texts.")
    sample: int = Field(
        default=2_000,
        ge=1,
        description="Number of texts sampled from each corpus, for negatives and for the style classifier.",
    )
    negatives: int = Field(
        default=1,
        ge=0,
        description="Number of negatives of each sort for each pair, besides the in-batch negatives: wrong "
        "answers of the right passage and the right answer in wrong passages (reading), or texts of "
        "--outputs (pairs, summaries).",
    )
    scale: Positive = Field(default=20.0, description="Factor that multiplies the cosines in the loss.")
    style_weight: NotNegative = Field(
        default=1.0, description="Weight of the style classifier's loss; 0 trains no style classifier."
    )
    towers: Literal["one", "two"] = Field(
        default="one", description="one: the same encoder for inputs and outputs; two: an encoder for each."
    )
    answers: Answers = "rule"
    window: Window = 150
    pooling: Pooling = "default"
    least_score: LeastScore = 0.7

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.kind == "pairs":
            refuse(self, ("inputs", "input_column", "style_weight"), "with --kind pairs, which has no style")
        if self.kind == "summaries":
            refuse(
                self, ("inputs", "input_column"), "with --kind summaries, whose style is that of --outputs"
            )
        if self.kind != "pairs":
            refuse(self, ("least_score",), f"with --kind {self.kind}; it is for pairs")
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"with --kind {self.kind}; it is for passages")
            if not self.outputs:
                refuse(self, ("negatives",), "without outputs, the corpus that negatives are drawn from")
        alone = not self.negatives or (self.kind != "reading" and not self.outputs)
        if self.batch_size == 1 and alone:
            raise ValueError("batch_size 1 leaves a pair without negatives; give 2 or more")
        return self


class TrainCrossencoderSettings(FewShotSettings):
    """A cross-encoder that tells the pairs of the seeds from hard negatives (M6).

    With kind ``scored`` it learns the scores that people gave to pairs.
    """

    seeds: str = Field(
        description="The labelled pairs, in the formats that train-biencoder reads.",
        json_schema_extra=BY_CONTENT,
    )
    kind: Literal["pairs", "reading", "summaries", "scored"] = Field(
        default="pairs",
        description="What a pair consists of; see --kind of mine. scored: pairs with the columns sentence1, "
        "sentence2 and score, from 0 to 1, whose scores are learned.",
    )
    mined: str | None = Field(
        default=None,
        description="Folder that mine wrote; those of its outputs that are nearest to a seed's input become "
        "hard negatives.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str | None = Field(
        default=None,
        description="Encoder that mine used; required with --mined.",
        json_schema_extra=BY_CONTENT,
    )
    retrieved: int = Field(
        default=20,
        ge=1,
        description="Number of nearest outputs of each seed's input from which hard negatives are drawn.",
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
    steps: int = Field(default=1_000, ge=1, description="Number of training steps.")
    answers: Answers = "rule"
    window: Window = 150
    least_score: LeastScore = 0.7

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.mined is None) != (self.encoder is None):
            raise ValueError(
                "give mined and encoder together: the mined pairs, and the encoder that found them"
            )
        if self.mined is None and self.kind == "summaries":
            raise ValueError(
                "mined is missing; with kind summaries, negatives are searched for in its outputs"
            )
        if self.kind == "scored" and (self.mined or self.loss == "listwise"):
            given = "mined" if self.mined else "loss listwise"
            raise ValueError(
                f"{given} is for positives and negatives; pairs of kind scored have scores instead"
            )
        if self.kind == "scored":
            refuse(self, ("negatives",), "with --kind scored, which has no negatives")
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"with --kind {self.kind}; it is for passages")
        if self.kind != "pairs":
            refuse(self, ("least_score",), f"with --kind {self.kind}; it is for pairs")
        if self.mined is None:
            refuse(self, ("retrieved",), "without mined, in whose outputs it searches")
        return self


def extra_of_added(settings: "TrainReaderSettings | TrainSummarizerSettings") -> Any:
    """Refuse a limit of added rows without added rows."""
    if settings.extra and not settings.added:
        raise ValueError("extra limits the rows of added, which is missing; give added")
    return settings


class TrainReaderSettings(FewShotSettings):
    """A reader that marks the answer to a question in a text, trained on seeds and mined rows (M9)."""

    seeds: str = Field(
        description="Questions with answers: a SQuAD file, or rows with the columns question, context and "
        "answers.",
        json_schema_extra=BY_CONTENT,
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Questions to add to the seeds, such as a folder that mine or filter wrote.",
        json_schema_extra=BY_CONTENT,
    )
    extra: Extra = None
    max_length: int | None = Field(
        default=384,
        ge=16,
        description="Longest input in tokens, question and text together. Longer texts are cut into windows, "
        "of which those that contain the answer are used.",
    )

    _extra = model_validator(mode="after")(extra_of_added)


class TrainSummarizerSettings(FewShotSettings):
    """A model that writes summaries, trained on seeds and on mined pairs marked as such (M9)."""

    kind: Literal["summaries", "reading"] = Field(
        default="summaries",
        description="What the model learns to write. summaries: the summary of a document; reading: a "
        "question for an answer in a passage.",
    )
    seeds: str = Field(
        description="Training examples: rows with the columns document and summary, or for kind reading "
        "questions with context and answers.",
        json_schema_extra=BY_CONTENT,
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Examples to add to the seeds, in the same format, such as a folder that mine or filter "
        "wrote.",
        json_schema_extra=BY_CONTENT,
    )
    extra: Extra = None
    marker: str = Field(
        default="<mined>",
        description="Special token put before the documents, or answers, of added examples, whose style may "
        "differ from that of the seeds. Empty: none.",
    )
    max_length: int | None = Field(
        default=512,
        ge=8,
        description="Longest document in tokens; the rest is cut off. It is never more than the base can "
        "read, beside the summary if the base is a decoder-only model.",
    )
    summary_tokens: int = Field(
        default=62,
        ge=4,
        description="Longest summary in tokens, both for training and for generation; the rest is cut off.",
    )
    label_smoothing: LabelSmoothing = 0.0
    beams: int = Field(
        default=6, ge=1, description="Number of beams when summaries of validation documents are generated."
    )

    _extra = model_validator(mode="after")(extra_of_added)
