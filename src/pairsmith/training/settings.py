"""Settings of the training of sentence encoders, and of the few-shot trainings."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pairsmith.fields import TrainingDtype
from pairsmith.modelnames import PoolingName
from pairsmith.settings import Listed, Settings, refuse

Several = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])
"""A single number may be given in place of a list."""

TrainingDevice = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda)$")]


class TrainEncoderSettings(Settings):
    """A sentence encoder, trained on pairs with similarity scores (D10)."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, of any "
        "transformers encoder or causal language model; a GGUF file; embedded:smollm2-135m-instruct; "
        "embedded:all-minilm-l6-v2; pairsmith:tiny."
    )
    data: str = Field(description="Dataset folder of scored pairs, as postprocess writes it.")
    objective: Literal["cosine", "cosent", "angle", "contrastive", "simcse"] = Field(
        default="cosine",
        description="cosine: the cosine is regressed on the score, as in the paper. cosent, angle: pairs are "
        "ranked by score. contrastive: a text of the highest score is told from one of a low score and "
        "from the texts of other rows. simcse: a text from other texts, by dropout alone, without scores.",
    )
    scale: float = Field(
        default=20.0,
        gt=0,
        allow_inf_nan=False,
        description="Factor of the cosines in all objectives but cosine.",
    )
    hard_negatives: float = Field(
        default=0.2,
        allow_inf_nan=False,
        description="Of contrastive: the highest score of a text that counts as a hard negative. Texts "
        "between this and the highest score are not used.",
    )
    layers: int | None = Field(
        default=None,
        ge=1,
        description="Keep the base's first so many layers only. Of a language model the middle ones say most "
        "about a text, and an encoder of a third of the layers takes a third of the time.",
    )
    attention: Literal["base", "bidirectional"] = Field(
        default="base",
        description="bidirectional: the tokens of a causal language model see those behind them too.",
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the attention weights that is dropped in training; unset: the base's own. "
        "simcse learns from nothing else where the base has no dropout.",
    )
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
    tensorboard: bool = Field(
        default=False,
        description="Write TensorBoard logs into logs/ of the output folder, which changes nothing else; "
        "needs the extra tensorboard.",
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
    dtype: TrainingDtype = "auto"


class FitSettings(Settings):
    """Settings that all trainings on examples share."""

    base: str = Field(description="Model to start from: a folder or Hub id, or embedded:all-minilm-l6-v2.")
    validation: str | None = Field(
        default=None,
        description="Examples in the form of those to train on, by which the step and the learning rate are "
        "chosen; without them the last step is kept.",
    )
    batch_size: int = Field(default=32, ge=1, description="Examples a step.")
    learning_rate: Annotated[list[float], Several] = Field(
        default=[3e-5],
        min_length=1,
        description="Highest learning rate, after the warm-up; of several the one that does best on the "
        "validation examples is kept.",
    )
    warmup: float = Field(
        default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises from 0."
    )
    weight_decay: float = Field(
        default=0.01, ge=0, allow_inf_nan=False, description="Weight decay, not on biases and layer norms."
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the attention weights that is dropped in training; unset: the base's own. With "
        "0 a training on a processor takes about a third less time.",
    )
    eval_steps: int = Field(
        default=20, ge=1, description="Steps between two looks at the validation examples."
    )
    checkpoint_steps: int = Field(
        default=100, ge=1, description="Steps between two checkpoints, from which a stopped training goes on."
    )
    tensorboard: bool = Field(
        default=False,
        description="Write TensorBoard logs into logs/ of the output folder, which changes nothing else; "
        "needs the extra tensorboard.",
    )
    max_length: int | None = Field(
        default=None, ge=8, description="Longest input in tokens; the rest is cut off. Unset: the base's own."
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of examples and of dropout.")
    device: TrainingDevice = Field(
        default="auto", description="auto, cpu, cuda, mps. One device; CUDA_VISIBLE_DEVICES says which."
    )
    dtype: TrainingDtype = "float32"

    @field_validator("learning_rate")
    @classmethod
    def _above_0(cls, rates: list[float]) -> list[float]:
        if any(not 0 < rate < 1 for rate in rates):
            raise ValueError("learning rates lie between 0 and 1")
        if len(set(rates)) < len(rates):
            raise ValueError(f"{', '.join(f'{rate:g}' for rate in rates)}: give each learning rate once")
        return rates

    def steps_of(self, examples: int) -> int:
        """The number of steps with this number of examples."""
        raise NotImplementedError

    def cut_to(self, steps: int) -> Self:
        """A copy with this number of steps."""
        raise NotImplementedError


class FewShotSettings(FitSettings):
    """A training for a fixed number of steps, as on a hundred examples."""

    steps: int = Field(default=200, ge=1, description="Steps of the training.")

    def steps_of(self, examples: int) -> int:  # noqa: ARG002 - the signature of FitSettings
        """The number of steps with this number of examples."""
        return self.steps

    def cut_to(self, steps: int) -> Self:
        """A copy with this number of steps."""
        return self.model_copy(update={"steps": steps})


class TrainBiencoderSettings(FewShotSettings):
    """A bi-encoder that puts the inputs and outputs of the seeds close together (M2)."""

    seeds: str = Field(
        description="The labelled pairs. pairs: a file or dataset folder with the columns input and output; "
        "reading: question, context, answers, or a SQuAD file; summaries: document, summary."
    )
    kind: Literal["pairs", "reading", "summaries"] = Field(
        default="pairs", description="What belongs together; as for mine."
    )
    inputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="Corpus of questions, from which the style classifier learns what those of the seeds are "
        "not.",
    )
    outputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="Corpus of outputs, from which wrong outputs are drawn; of kind summaries the style "
        "classifier learns from it too.",
    )
    input_column: str | None = Field(default=None, description="Column of --inputs that holds the texts.")
    output_column: str | None = Field(default=None, description="Column of --outputs that holds the texts.")
    sample: int = Field(
        default=2_000, ge=1, description="Texts drawn from each corpus to choose wrong ones from."
    )
    negatives: int = Field(
        default=1,
        ge=0,
        description="Wrong outputs of each sort for each pair beside those of the batch: a wrong answer of "
        "the right passage and the right answer in a wrong passage (reading), a sentence of the corpus "
        "(summaries).",
    )
    scale: float = Field(
        default=20.0, gt=0, allow_inf_nan=False, description="Factor of the cosines in the loss."
    )
    style_weight: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="Weight of the style classifier's loss."
    )
    towers: Literal["one", "two"] = Field(
        default="one", description="One encoder of inputs and outputs, or one for each."
    )
    answers: str = Field(default="rule", description="What finds wrong answers in passages; as for mine.")
    window: int = Field(default=150, ge=1, description="Words of a passage at most; as for mine.")
    pooling: PoolingName = Field(
        default="default",
        description="default: as the base was saved, the mean of its token vectors where nothing was saved; "
        "mean or cls: the bare transformer's last layer.",
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.kind == "pairs":
            refuse(self, ("inputs", "input_column", "style_weight"), "of kind pairs, which has no style")
        if self.kind == "summaries":
            refuse(self, ("inputs", "input_column"), "of kind summaries; the style is that of outputs")
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"of kind {self.kind}; it is for passages")
            if not self.outputs:
                refuse(self, ("negatives",), "without outputs, the corpus that wrong ones are drawn from")
        alone = not self.negatives or (self.kind != "reading" and not self.outputs)
        if self.batch_size == 1 and alone:
            raise ValueError("batch_size 1 leaves no wrong output to tell a pair from; give 2 or more")
        return self


class TrainCrossencoderSettings(FewShotSettings):
    """A cross-encoder that tells the pairs of the seeds from hard negatives (M6).

    With kind ``scored`` it learns the scores that people gave to pairs.
    """

    seeds: str = Field(description="The labelled pairs; as for train-biencoder.")
    kind: Literal["pairs", "reading", "summaries", "scored"] = Field(
        default="pairs",
        description="What belongs together; as for mine. scored: pairs with the columns sentence1, sentence2 "
        "and score, from 0 to 1; the scores are learned.",
    )
    mined: str | None = Field(
        default=None,
        description="Folder written by mine: of its outputs those nearest to each seed's input are the "
        "wrong ones to tell from the right one.",
    )
    encoder: str | None = Field(
        default=None, description="The encoder that was mined with; where --mined is given."
    )
    retrieved: int = Field(
        default=20, ge=1, description="Nearest outputs of each seed's input to draw wrong ones from."
    )
    negatives: int = Field(default=3, ge=1, description="Wrong outputs for each right one in a step.")
    loss: Literal["auto", "binary", "listwise"] = Field(
        default="auto",
        description="binary: each pair is right or wrong; listwise: the right one against the wrong ones of "
        "its input. auto: listwise for summaries, binary for the others.",
    )
    batch_size: int = Field(default=8, ge=1, description="Seeds a step, each with its wrong outputs.")
    steps: int = Field(default=1_000, ge=1, description="Steps of the training.")
    answers: str = Field(default="rule", description="What finds wrong answers in passages; as for mine.")
    window: int = Field(default=150, ge=1, description="Words of a passage at most; as for mine.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.mined is None) != (self.encoder is None):
            raise ValueError("mined and encoder go together: the pairs, and what they were mined with")
        if self.mined is None and self.kind == "summaries":
            raise ValueError("mined is missing; of kind summaries wrong outputs are those that search finds")
        if self.kind == "scored" and (self.mined or self.loss == "listwise"):
            given = "mined" if self.mined else "loss listwise"
            raise ValueError(f"{given} is for right and wrong pairs; of kind scored each has its own score")
        if self.kind == "scored":
            refuse(self, ("negatives",), "of kind scored, which has no wrong pairs")
        if self.kind != "reading":
            refuse(self, ("answers", "window"), f"of kind {self.kind}; it is for passages")
        if self.mined is None:
            refuse(self, ("retrieved",), "without mined, in whose outputs it searches")
        return self


S = TypeVar("S", bound=Settings)


def _with_added(settings: S, extra: int | None, added: list[str]) -> S:
    if extra and not added:
        raise ValueError("extra counts rows of added, which is missing; name what to add")
    return settings


class TrainReaderSettings(FewShotSettings):
    """A reader that marks the answer to a question in a text, trained on seeds and mined rows (M9)."""

    seeds: str = Field(
        description="Questions with answers: a SQuAD file, or rows with the columns question, context and "
        "answers."
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Questions that are added to the seeds, such as a folder that mine or filter wrote.",
    )
    extra: int | None = Field(
        default=None,
        ge=0,
        description="Add only so many, the first in their order, which after filter is that of their scores.",
    )
    max_length: int | None = Field(
        default=384,
        ge=16,
        description="Longest input in tokens, question and text together; longer texts are cut into windows, "
        "and those that hold the answer are learned from.",
    )

    @model_validator(mode="after")
    def _extra_of_added(self) -> Self:
        return _with_added(self, self.extra, self.added)


class TrainSummarizerSettings(FewShotSettings):
    """A model that writes summaries, trained on seeds and on mined pairs marked as such (M9)."""

    kind: Literal["summaries", "reading"] = Field(
        default="summaries",
        description="What is written. summaries: a document's summary; reading: a question that an answer in "
        "a passage answers.",
    )
    seeds: str = Field(
        description="Documents with summaries: rows with the columns document and summary; of kind reading "
        "questions with context and answers."
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Examples in the form of the seeds that are added to them, such as a folder that mine or "
        "filter wrote.",
    )
    extra: int | None = Field(
        default=None,
        ge=0,
        description="Add only so many, the first in their order, which after filter is that of their scores.",
    )
    marker: str = Field(
        default="<mined>",
        description="Special token put before the documents, or answers, of added examples, whose style may "
        "be another; empty: none.",
    )
    max_length: int | None = Field(
        default=512,
        ge=8,
        description="Longest document in tokens; the rest is cut off. Never more than the base reads.",
    )
    summary_tokens: int = Field(
        default=62, ge=4, description="Longest summary in tokens, both read and written; the rest is cut off."
    )
    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of each token's probability that is spread over all tokens in the loss.",
    )
    beams: int = Field(
        default=6, ge=1, description="Beams with which summaries of validation documents are written."
    )

    @model_validator(mode="after")
    def _extra_of_added(self) -> Self:
        return _with_added(self, self.extra, self.added)
