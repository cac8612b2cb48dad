"""Settings for training a text classifier."""

from typing import Annotated

from pydantic import Field

from pairsmith.core.fields import Device, Dtype
from pairsmith.core.model_names import MINILM
from pairsmith.core.settings import BY_CONTENT
from pairsmith.methods.dino.training_options import ClassifierOptions
from pairsmith.training.options import Pooling

TextColumn = Annotated[
    str | None,
    Field(description="Column that holds the texts. Unset: text, sentence, or another usual name."),
]
LabelColumn = Annotated[
    str | None,
    Field(description="Column that holds the labels. Unset: label, or another usual name."),
]


class TrainClassifierSettings(ClassifierOptions):
    """A classifier of texts: a logistic regression on the vectors of a sentence encoder (D14)."""

    base: str = Field(
        default=MINILM,
        description="Sentence encoder whose vectors are classified; it is not changed: a folder or Hub id of "
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
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest text in tokens; the rest is cut off. Unset: the base's own limit.",
    )
    device: Device = "auto"
    dtype: Dtype = "float32"
