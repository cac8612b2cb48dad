"""Settings of the training steps: their data, in addition to the options of the methods' trainings."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import (
    Device,
    Dtype,
    InputColumn,
    LabelColumn,
    OutputColumn,
    Pooling,
    TextColumn,
    TextLength,
)
from pairsmith.core.model_names import MINILM
from pairsmith.core.settings import BY_CONTENT, MOST_ITEMS, Listed, refuse
from pairsmith.methods.dino.options import ClassifierOptions, EncoderOptions
from pairsmith.methods.mining.options import (
    BiencoderOptions,
    CrossencoderOptions,
    ReaderOptions,
    SummarizerOptions,
    WindowWords,
    scored_without,
)
from pairsmith.methods.quip.tagger_options import SentenceLength, TaggerOptions, TypeQuestions
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions, StudentOptions, TeacherOptions
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.training.options import Attention, FitOptions, Layers, TrainingDevice

LeastScore = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="For kind pairs with the columns sentence1, sentence2 and score or label: pairs with "
        "this score or a higher one are positives; other pairs are left out.",
    ),
]
Extra = Annotated[
    int | None,
    Field(
        ge=0,
        le=MOST_ITEMS,
        description="Use only the first N examples of --added; filter writes the best first. Unset: all.",
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


class FitSettings(FitOptions):
    """Settings that all trainings except ``train-encoder`` and ``train-classifier`` share."""

    validation: str | None = Field(
        default=None,
        description="Validation examples in the format of the training examples; they choose the best step "
        "and learning rate. Unset: the last step is kept.",
        json_schema_extra=BY_CONTENT,
    )

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.validation is None:
            refuse(
                self,
                ("keep_base",),
                "without validation, whose examples compare the base with the trained model",
            )
        return self


class TrainEncoderSettings(EncoderOptions):
    """A sentence encoder, trained on pairs with similarity scores (D10)."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, or of any "
        "transformers encoder or causal language model; a GGUF file; embedded:smollm2-135m-instruct; "
        "embedded:all-minilm-l6-v2; or pairsmith:tiny."
    )
    data: str = Field(
        description="Scored pairs: a dataset folder, as postprocess writes it, or any file, folder or Hub "
        "data set with the columns sentence1, sentence2, score. If a folder has a split validation, its "
        "rows choose the best step.",
        json_schema_extra=BY_CONTENT,
    )
    layers: Layers = None
    attention: Attention = "base"
    pooling: Pooling = "default"
    max_length: TextLength = None
    device: TrainingDevice = "auto"


class TrainBiencoderSettings(BiencoderOptions, FitSettings):
    """A bi-encoder that gives the input and the output of a pair similar vectors (M2)."""

    seeds: str = Field(
        description="The labelled pairs. pairs: a file or dataset folder with the columns input and output, "
        "or sentence1 and sentence2, see --least-score; reading: a SQuAD file, or the columns question, "
        "context and answers; summaries: the columns document and summary.",
        json_schema_extra=BY_CONTENT,
    )
    inputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="For kind reading: corpus of questions. The style classifier learns to distinguish the "
        "questions of the seeds from these.",
        json_schema_extra=BY_CONTENT,
    )
    outputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="Corpus of outputs, from which negatives are drawn; for kind summaries, the style "
        "classifier learns from it too.",
        json_schema_extra=BY_CONTENT,
    )
    input_column: InputColumn = None
    output_column: OutputColumn = None
    sample: int = Field(
        default=2_000,
        ge=1,
        description="Number of texts sampled from each corpus, for negatives and for the style classifier.",
    )
    least_score: LeastScore = 0.7

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.kind == "pairs":
            refuse(self, ("inputs", "input_column"), "with --kind pairs; it is for --kind reading")
        if self.kind == "summaries":
            refuse(
                self,
                ("inputs", "input_column"),
                "with --kind summaries, whose style classifier learns from --outputs",
            )
        if self.kind != "pairs":
            refuse(self, ("least_score",), f"with --kind {self.kind}; it is for --kind pairs")
        if self.kind != "reading" and not self.outputs:
            refuse(self, ("negatives",), "without outputs, the corpus from which negatives are drawn")
        only_in_batch = not self.negatives or (self.kind != "reading" and not self.outputs)
        if self.batch_size == 1 and only_in_batch:
            raise ValueError("batch_size 1 leaves a pair without negatives; give 2 or more")
        return self


class TrainCrossencoderSettings(CrossencoderOptions, FitSettings):
    """A cross-encoder that distinguishes the pairs of the seeds from hard negatives (M6).

    With kind ``scored``, it learns the scores that people gave to pairs.
    """

    seeds: str = Field(
        description="The labelled pairs, in the formats that train-biencoder reads.",
        json_schema_extra=BY_CONTENT,
    )
    mined: str | None = Field(
        default=None,
        description="Folder that mine wrote. The outputs in it that are nearest to a seed's input become "
        "hard negatives.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str | None = Field(
        default=None,
        description="The encoder with which mine wrote --mined; required with it.",
        json_schema_extra=BY_CONTENT,
    )
    retrieved: int = Field(
        default=20,
        ge=1,
        description="Number of nearest outputs of each seed's input from which hard negatives are drawn.",
    )
    window: WindowWords = 150
    least_score: LeastScore = 0.7

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.mined is None) != (self.encoder is None):
            raise ValueError(
                "mined and --encoder have to be given together: mined pairs, and the encoder that mine used"
            )
        if self.mined is None and self.kind == "summaries":
            raise ValueError(
                "mined is missing; with kind summaries, negatives are retrieved from its outputs"
            )
        if self.kind == "scored" and self.mined:
            raise ValueError(scored_without("mined"))
        if self.kind != "reading":
            refuse(self, ("window",), f"with --kind {self.kind}; it is for --kind reading")
        if self.kind != "pairs":
            refuse(self, ("least_score",), f"with --kind {self.kind}; it is for --kind pairs")
        if self.mined is None:
            refuse(self, ("retrieved",), "without mined, from whose outputs negatives are retrieved")
        return self


def extra_of_added(settings: "TrainReaderSettings | TrainSummarizerSettings") -> Any:
    """Raise a ``ValueError`` for a limit of added rows without added rows."""
    if settings.extra and not settings.added:
        raise ValueError("extra limits the rows of --added, which is missing; give it")
    return settings


class TrainReaderSettings(ReaderOptions, FitSettings):
    """A reader that predicts the answer to a question in a text, trained on seeds and mined rows (M9)."""

    seeds: str = Field(
        description="Questions with answers: a SQuAD file, or rows with the columns question, context and "
        "answers.",
        json_schema_extra=BY_CONTENT,
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Questions to add to the seeds, such as a folder that mine or filter wrote. Those that "
        "repeat a seed or a validation question, with its passage, are left out.",
        json_schema_extra=BY_CONTENT,
    )
    extra: Extra = None

    _extra = model_validator(mode="after")(extra_of_added)


class TrainSummarizerSettings(SummarizerOptions, FitSettings):
    """A model that writes summaries, trained on seeds and on mined pairs with a marker (M9)."""

    seeds: str = Field(
        description="Training examples: rows with the columns document and summary, or for kind reading "
        "questions with context and answers.",
        json_schema_extra=BY_CONTENT,
    )
    added: Annotated[list[str], Listed] = Field(
        default=[],
        description="Examples to add to the seeds, in the same format, such as a folder that mine or filter "
        "wrote. Those of a document that is used already, also for validation, are left out, and so are "
        "documents that are blank or have no summary.",
        json_schema_extra=BY_CONTENT,
    )
    extra: Extra = None

    _extra = model_validator(mode="after")(extra_of_added)


class TrainQuestionGeneratorSettings(QuestionGeneratorOptions, FitSettings):
    """A question generator: a model that reads a passage, and writes an answer and its question (Q2)."""

    data: QuestionSources


class TrainTeacherSettings(TeacherOptions, FitSettings):
    """A teacher: a reader whose span distributions a student learns to predict (Q3)."""

    data: QuestionSources
    labels: Literal["answers", "hard"] = Field(
        default="answers",
        description="Training targets. answers: the first answer of each question; hard: the likeliest start "
        "and, separately, the likeliest end according to an earlier teacher, as relabel writes them.",
    )


class InfuseSettings(StudentOptions, FitSettings):
    """A student: a bi-encoder whose token vectors predict a teacher's answers to questions (Q4, Q5)."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Questions on passages with a teacher's span distributions, as relabel writes them; with "
        "--labels answers, any questions with answers.",
        json_schema_extra=BY_CONTENT,
    )


class TrainRetrieverSettings(RetrieverOptions, FitSettings):
    """A sentence encoder that gives queries and the documents that answer them similar vectors."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Rows with the columns query (or question, anchor, input) and positive (or context, "
        "passage, document, output). Optional: title, the title of the positive; negative, negative_1, "
        "negative_2, … or a list negatives, each negative with its title on a line before it.",
        json_schema_extra=BY_CONTENT,
    )
    validation: str | None = Field(
        default=None,
        description="Validation rows in the format of the data; they choose the best step and learning rate "
        "by the nDCG@10 of their queries among all their documents. Unset: the last step is kept.",
        json_schema_extra=BY_CONTENT,
    )

    @model_validator(mode="after")
    def _one_rate_without_validation(self) -> Self:
        if len(self.learning_rate) > 1 and not self.validation:
            raise ValueError(
                "validation rows choose among several learning rates; give --validation, or one learning rate"
            )
        return self


class TrainClassifierSettings(ClassifierOptions):
    """A text classifier: a logistic regression on the vectors of a sentence encoder (D14)."""

    base: str = Field(
        default=MINILM,
        description="Sentence encoder whose vectors are classified; it is not trained. A folder or Hub id of "
        "a sentence-transformers or transformers model, embedded:all-minilm-l6-v2, or pairsmith:tiny.",
    )
    data: str = Field(
        description="Labelled texts: a folder that generate or postprocess wrote, a file with the columns "
        "text and label (.jsonl, .csv, .tsv, .parquet), or a Hub data set.",
        json_schema_extra=BY_CONTENT,
    )
    validation: str | None = Field(
        default=None,
        description="Labelled texts that choose the best of several --c. Unset: the split validation of "
        "--data; without this split, several --c are compared by five-fold cross-validation.",
        json_schema_extra=BY_CONTENT,
    )
    text_column: TextColumn = None
    label_column: LabelColumn = None
    pooling: Pooling = "default"
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"


class TrainTaggerSettings(TaggerOptions):
    """A tagger that finds named entities: an encoder with a linear layer on its token vectors (Q10)."""

    base: str = Field(
        description="Encoder to start from: a folder that infuse wrote, or a folder or Hub id of any encoder "
        "of transformers."
    )
    data: str = Field(
        description="Tagged sentences: a file in CoNLL's format, a file NAME.words beside NAME.ner, or rows "
        "with the columns tokens and ner_tags (a file, a dataset folder or a Hub data set).",
        json_schema_extra=BY_CONTENT,
    )
    start: Literal["questions", "random"] | None = Field(
        default=None,
        description="How the layer that predicts tags is initialised: with the vectors of questions, or at "
        "random. Unset: from questions if infuse wrote the base.",
    )
    questions: TypeQuestions = None
    max_length: SentenceLength = None
    seed: int = Field(
        default=1,
        ge=0,
        lt=2**32,
        description="Seed of the order of the sentences, of dropout, and of a random initialisation.",
    )
    device: Device = "auto"

    @model_validator(mode="after")
    def _questions_that_are_used(self) -> Self:
        if self.start == "random":
            refuse(self, ("questions",), "with start random")
        return self


TrainingSettings = FitSettings | TrainEncoderSettings | TrainTaggerSettings
"""Settings of a ``TrainingStep``."""
