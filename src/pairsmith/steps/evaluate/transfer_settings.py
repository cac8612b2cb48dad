"""Settings of the few-shot and zero-shot evaluations of encoders: paraphrases, sentiment and NER."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pairsmith.core.fields import BatchTokens, Device, Dtype, TextLength
from pairsmith.core.settings import BY_CONTENT, Listed, NoEffectError, refuse
from pairsmith.methods.quip.tagger_options import SentenceLength, TaggerOptions, TypeQuestions
from pairsmith.steps.evaluate.settings import ComparedSettings


def _distinct(splits: list[int]) -> list[int]:
    if repeated := sorted({split for split in splits if splits.count(split) > 1}):
        raise ValueError(
            f"split {repeated[0]} is given twice, and would count twice in the mean; give it once"
        )
    return splits


Splits = Annotated[list[Annotated[int, Field(ge=0)]], AfterValidator(_distinct)]
"""Distinct numbers of splits, 0 or more."""


class EvaluateParaphraseSettings(ComparedSettings):
    """How well BERTScore ranks paraphrases above other pairs, without or with few-shot training (Q8, Q9)."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a transformers model, or embedded:all-minilm-l6-v2.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Pairs with the columns sentence1, sentence2 (or question1, question2) and label, MRPC's "
        "file, or a Hub id. Without labels, all pairs count as paraphrases, and as many negatives are "
        "sampled.",
        json_schema_extra=BY_CONTENT,
    )
    layer: int | None = Field(
        default=None,
        ge=0,
        description="Layer whose token vectors are compared; 0 is the embedding layer. Unset: the layer that "
        "--judgements selects, or else the layer at five sixths of all layers.",
    )
    judgements: str | None = Field(
        default=None,
        description="Pairs with human scores, such as WMT16's: sentence1, sentence2, score and, if there are "
        "several, the language pair. They select the layer whose BERTScore correlates best with the human "
        "scores, on average over the language pairs.",
        json_schema_extra=BY_CONTENT,
    )
    special_tokens: bool = Field(
        default=True,
        description="Include the special tokens at the start and end of a text in BERTScore's means, as for "
        "the figures in the paper on QUIP.",
    )
    train: str | None = Field(
        default=None,
        description="Labelled pairs for few-shot training, of which --shots are drawn for each class; or a "
        "folder with a file SHOTS-N/train.tsv for each split N, such as 16-13/train.tsv.",
        json_schema_extra=BY_CONTENT,
    )
    ids: str | None = Field(
        default=None,
        description="Folder with a file SHOTS-N/train_ids.tsv for each split N, as published for PAWS: the "
        "ids of the rows of --train to train on, one on each line.",
        json_schema_extra=BY_CONTENT,
    )
    shots: int = Field(default=16, ge=2, description="Number of training pairs per class.")
    splits: Splits = Field(
        default=[13, 21, 42, 87, 100],
        min_length=1,
        description="Numbers of the splits, which are random seeds if the pairs are drawn; the training is "
        "repeated for each of them, with other training pairs.",
    )
    tune: bool = Field(default=False, description="Also fine-tune the encoder on the training pairs.")
    max_length: TextLength = None
    batch_tokens: BatchTokens = None
    seed: int = Field(
        default=0, ge=0, description="Seed of the bootstrap resamples and of sampled negatives."
    )
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.train is None:
            refuse(self, ("tune", "shots", "splits", "ids"), "without train, the pairs to learn from")
        if self.layer is not None and self.judgements is not None:
            raise ValueError("layer and judgements both choose the layer; give only one of them")
        return self


class EvaluateSentimentSettings(ComparedSettings):
    """Zero-shot accuracy on positive and negative texts (Q11)."""

    model: str = Field(
        description="A folder that infuse wrote; with --method reader one that train-reader or train-teacher "
        "wrote; with --method mask a masked language model such as RoBERTa.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Texts with the column label (0 or 1), as in SST-2, or a folder with NAME.pos.txt and "
        "NAME.neg.txt, as for MR and CR.",
        json_schema_extra=BY_CONTENT,
    )
    method: Literal["questions", "reader", "mask"] = Field(
        default="questions",
        description="What decides the class. questions: which of two questions the text answers better; "
        "reader: the same, with a model that reads question and text together; "
        'mask: the baseline, whether great or terrible is likelier as the mask in "It was [MASK]."',
    )
    item: str = Field(
        default="movie",
        min_length=1,
        description="What the texts are about, such as product; the word is used in the questions.",
    )
    max_length: int | None = Field(
        default=None,
        ge=16,
        description="Largest number of tokens of a text that the model processes at once. Unset: the model's "
        "own limit.",
    )
    batch_tokens: BatchTokens = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _item_of_questions(self) -> Self:
        if self.method == "mask" and self.item != type(self).model_fields["item"].default:
            raise NoEffectError("item", "with --method mask, which uses no questions")
        return self


class EvaluateNerSettings(TaggerOptions, ComparedSettings):
    """Few-shot NER: entity F1 after training on a few tagged sentences (Q10)."""

    model: str = Field(
        description="A folder that infuse wrote, or with --start random any encoder of transformers.",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Tagged test sentences: a file in CoNLL's format, or rows with the columns tokens and "
        "ner_tags (a file, a dataset folder or a Hub id). Without --train: a folder with test.words and "
        "test.ner, and for each split few_shot_SHOTS_N.words and .ner, with the words and the tags of one "
        "sentence per line.",
        json_schema_extra=BY_CONTENT,
    )
    train: str | None = Field(
        default=None,
        description="Tagged sentences from which the training sentences are drawn, --shots for each entity "
        "type.",
        json_schema_extra=BY_CONTENT,
    )
    whole: bool = Field(
        default=False,
        description="Train on all sentences of --train instead of --shots for each entity type; 3 epochs are "
        "usual then.",
    )
    shots: int = Field(
        default=5,
        ge=1,
        description="Number of training sentences per entity type; without --train, it selects the files in "
        "--data.",
    )
    splits: Splits = Field(
        default=[0, 1, 2, 3, 4],
        min_length=1,
        description="Numbers of the splits in --data; with --train, the random seeds that draw the training "
        "sentences. They are also the random seeds of the order of the sentences, of dropout, and of a "
        "random initialisation.",
    )
    start: Annotated[list[Literal["random", "questions"]], Listed] = Field(
        default=["random", "questions"],
        min_length=1,
        description="How the layer that predicts tags is initialised: at random, or with the vectors of "
        "questions.",
    )
    questions: TypeQuestions = None
    max_length: SentenceLength = None
    device: Device = "auto"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.train is None:
            refuse(self, ("whole",), "without train, the sentences to learn from")
        if self.whole:
            refuse(self, ("shots",), "with whole, which learns from all sentences")
        return self
