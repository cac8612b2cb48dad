"""Settings of the evaluation steps."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.fields import BatchTokens, Device, Dtype, TrainingDtype
from pairsmith.modelnames import MINILM, PoolingName
from pairsmith.settings import Listed, Settings, refuse


class EvaluateStsSettings(Settings):
    """Spearman's correlation between cosine similarity and human scores (D11)."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a sentence-transformers or transformers model, "
        "embedded:all-minilm-l6-v2, pairsmith:tiny, or glove:PATH for the average of GloVe vectors."
    )
    data: str = Field(
        description="Folder with stsb/, sick/, sts12/ … sts16/ or any of them, or one file of "
        "sentence1, sentence2, score (.tsv, .csv, .jsonl, .parquet)."
    )
    suites: list[str] = Field(
        default=[], description="Which suites: stsb, sick, sts12 … sts16. None named: all that are there."
    )
    pooling: PoolingName = Field(
        default="default",
        description="default: as the model was saved, the mean of its token vectors where nothing was saved; "
        "mean or cls: the bare transformer's last layer.",
    )
    layers: int | None = Field(
        default=None, ge=1, description="Keep the model's first so many layers only. Unset: all."
    )
    batch_size: int = Field(default=64, ge=1, description="Sentences encoded at once.")
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest sentence in tokens; the rest is cut off. Unset: the model's own.",
    )
    bootstrap: int = Field(
        default=1000, ge=0, le=1_000_000, description="Resamples behind the 95 % interval; 0 for no interval."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the resamples.")
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateLabelsSettings(Settings):
    """The mean cosine of the pairs of each label, which shows whether the generated texts differ by label."""

    model: str = Field(
        default=MINILM,
        description="Encoder that compares the texts, best one that had no part in writing them: a folder or "
        "Hub id of a sentence-transformers or transformers model, or embedded:all-minilm-l6-v2.",
    )
    data: str = Field(
        description="Scored or labelled pairs: a folder that generate or postprocess wrote, or a file."
    )
    batch_size: int = Field(default=64, ge=1, description="Sentences encoded at once.")
    bootstrap: int = Field(
        default=1000, ge=0, le=1_000_000, description="Resamples behind the 95 % interval; 0 for no interval."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the resamples.")
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateMtebSettings(Settings):
    """The main scores of tasks that the package mteb runs."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a sentence-transformers or transformers model, "
        "embedded:all-minilm-l6-v2, or pairsmith:tiny."
    )
    tasks: Annotated[list[str], Listed] = Field(
        default=[],
        description="Names of mteb's tasks, such as STSBenchmark; their data come from the Hugging Face Hub.",
    )
    benchmark: str | None = Field(
        default=None, description="All tasks of one of mteb's benchmarks, such as MTEB(eng, v2)."
    )
    data: str | None = Field(
        default=None,
        description="Graded pairs of your own, in the forms that evaluate sts reads: each set is a task of "
        "its own, and nothing is downloaded.",
    )
    pooling: PoolingName = Field(
        default="default",
        description="default: as the model was saved, the mean of its token vectors where nothing was saved; "
        "mean or cls: the bare transformer's last layer.",
    )
    batch_size: int = Field(default=64, ge=1, description="Texts encoded at once.")
    max_length: int | None = Field(
        default=None, ge=3, description="Longest text in tokens; the rest is cut off. Unset: the model's own."
    )
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.tasks and self.benchmark is None and self.data is None:
            raise ValueError("name some --tasks or a --benchmark of mteb, or give graded pairs as --data")
        return self


class EvaluateQaSettings(Settings):
    """Exact match and F1 of a reader's answers (M11, Q7)."""

    model: str = Field(
        description="Folder that train-reader, train-teacher or infuse wrote, or a Hub id of a model "
        "for question answering."
    )
    data: str = Field(
        description="Questions with answers: a SQuAD file, or rows with the columns question, context and "
        "answers."
    )
    max_answer_tokens: int = Field(default=17, ge=1, description="Longest answer in tokens.")
    batch_size: int = Field(
        default=32, ge=1, description="Windows of texts that are read at once; of a student no matter."
    )
    max_length: int | None = Field(
        default=None,
        ge=16,
        description="Longest input in tokens, question and text together, of a student the text alone; "
        "longer texts are cut into windows. Unset: the model's own.",
    )
    bootstrap: int = Field(
        default=1000,
        ge=0,
        le=1_000_000,
        description="Resamples behind the 95 % intervals; 0 for no intervals.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the resamples.")
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateSummariesSettings(Settings):
    """ROUGE of generated summaries, and how much of them is copied from the documents (M11)."""

    model: str = Field(
        description="Summariser: a folder that train-summarizer wrote, a Hub id of a model with an encoder "
        "and a decoder, or lead:N for the first N sentences of each document."
    )
    data: str = Field(description="Documents with summaries: rows with the columns document and summary.")
    limit: int | None = Field(default=None, ge=1, description="Only the first so many documents.")
    beams: int = Field(default=6, ge=1, description="Summaries that are followed at once in the search.")
    max_length: int | None = Field(
        default=512,
        ge=8,
        description="Longest document in tokens; the rest is cut off. Never more than the model reads.",
    )
    summary_tokens: int = Field(default=62, ge=4, description="Longest summary in tokens.")
    batch_size: int = Field(default=8, ge=1, description="Documents at once, each with all its beams.")
    bootstrap: int = Field(
        default=1000,
        ge=0,
        le=1_000_000,
        description="Resamples behind the 95 % intervals; 0 for no intervals.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the resamples.")
    device: Device = "auto"
    dtype: Dtype = "float32"


class EvaluateParaphraseSettings(Settings):
    """How well BERTScore ranks paraphrases above other pairs, and what a few labelled pairs add (Q8, Q9)."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a transformers model, or embedded:all-minilm-l6-v2."
    )
    data: str = Field(
        description="Pairs with the columns sentence1, sentence2 (or question1, question2) and label, MRPC's "
        "file, or a Hub id. Without labels all are paraphrases, and as many others are put together."
    )
    layer: int | None = Field(
        default=None,
        ge=0,
        description="Whose vectors are compared. Unset: the one that --judgements choose, or five sixths of "
        "the way up.",
    )
    judgements: str | None = Field(
        default=None,
        description="Pairs that people scored (sentence1, sentence2, score), such as WMT16's: the layer "
        "whose scores correlate best with theirs is taken.",
    )
    special_tokens: bool = Field(
        default=True,
        description="Count the tokens of a text's begin and end in the means, as QUIP's figures do.",
    )
    train: str | None = Field(
        default=None, description="Labelled pairs from which --shots of each class are drawn to learn from."
    )
    shots: int = Field(default=16, ge=2, description="Pairs of each class to learn from.")
    splits: list[Annotated[int, Field(ge=0)]] = Field(
        default=[13, 21, 42, 87, 100], min_length=1, description="Seeds, each of which draws other pairs."
    )
    tune: bool = Field(default=False, description="Train the encoder on these pairs, too.")
    max_length: int | None = Field(
        default=None, ge=3, description="Longest text in tokens; the rest is cut off. Unset: the model's own."
    )
    batch_tokens: BatchTokens = None
    bootstrap: int = Field(
        default=1000, ge=0, le=1_000_000, description="Resamples behind the 95 % interval; 0 for no interval."
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of the resamples, and of negatives that are sampled."
    )
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.train is None:
            refuse(self, ("tune", "shots", "splits"), "without train, the pairs to learn from")
        if self.layer is not None and self.judgements is not None:
            raise ValueError("layer and judgements both say which layer; give one of them")
        return self


class EvaluateSentimentSettings(Settings):
    """Zero-shot accuracy on positive and negative texts (Q11)."""

    model: str = Field(
        description="A folder that infuse wrote; with --method mask a masked language model such as RoBERTa."
    )
    data: str = Field(
        description="Texts with the column label (0, 1), such as SST-2's, or a folder with NAME.pos.txt and "
        "NAME.neg.txt, such as MR's and CR's."
    )
    method: Literal["questions", "mask"] = Field(
        default="questions",
        description="questions: which of two a text answers; mask: the baseline, whether great or terrible "
        'stands for the mask in "It was [MASK]."',
    )
    item: str = Field(default="movie", min_length=1, description="What the texts are about, e.g. product.")
    max_length: int | None = Field(
        default=None, ge=16, description="Longest text in tokens at once. Unset: the model's own."
    )
    batch_tokens: BatchTokens = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _item_of_questions(self) -> Self:
        if self.method == "mask" and self.item != type(self).model_fields["item"].default:
            raise ValueError("item does nothing with the method mask, which asks no questions; leave it out")
        return self


class EvaluateNerSettings(Settings):
    """Few-shot NER: entity F1 after training on a few tagged sentences (Q10)."""

    model: str = Field(
        description="A folder that infuse wrote; without questions in --start any encoder of transformers."
    )
    data: str = Field(
        description="Tagged sentences to test on: a file in CoNLL's form, or rows with the columns tokens "
        "and ner_tags (a file, a dataset folder or a Hub id). Without --train a folder with "
        "few_shot_SHOTS_N.words and .ner for each split, and test.words and .ner: a sentence a line, words "
        "and tags."
    )
    train: str | None = Field(
        default=None,
        description="Tagged sentences, from which --shots with a name of each type are drawn to learn from.",
    )
    shots: int = Field(
        default=5, ge=1, description="Sentences for each type to learn from; without --train, whose files."
    )
    splits: list[Annotated[int, Field(ge=0)]] = Field(
        default=[0, 1, 2, 3, 4],
        min_length=1,
        description="Numbers of the splits; with --train seeds, each of which draws other sentences.",
    )
    start: Annotated[list[Literal["random", "questions"]], Listed] = Field(
        default=["random", "questions"],
        min_length=1,
        description="How the layer that tells tags apart begins: at random, or as the vectors of questions.",
    )
    questions: str | None = Field(
        default=None,
        description="YAML file with a question for each type that is not known here.",
    )
    epochs: int = Field(default=200, ge=1, description="Times through the sentences.")
    learning_rate: float = Field(default=2e-5, gt=0, lt=1, description="Learning rate, the same throughout.")
    batch_size: int = Field(default=16, ge=1, description="Sentences a step.")
    max_length: int | None = Field(
        default=None, ge=8, description="Longest sentence in tokens; the rest is O. Unset: the model's own."
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the order of sentences and of dropout.")
    device: Device = "auto"
    dtype: TrainingDtype = "float32"
