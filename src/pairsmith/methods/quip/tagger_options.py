"""Options of taggers of named entities."""

from typing import Annotated

from pydantic import Field

from pairsmith.core.fields import TrainingDtype
from pairsmith.core.settings import BY_CONTENT, Settings

SentenceLength = Annotated[
    int | None,
    Field(
        ge=8,
        description="Largest number of tokens of a sentence; words beyond it are tagged O. Unset: the "
        "model's own limit.",
    ),
]
TypeQuestions = Annotated[
    str | None,
    Field(
        description="YAML file with a question for each entity type that has no built-in question.",
        json_schema_extra=BY_CONTENT,
    ),
]


class TaggerOptions(Settings):
    """How a tagger is trained (Q10)."""

    epochs: int = Field(default=200, ge=1, description="Number of passes over the training sentences.")
    learning_rate: float = Field(
        default=2e-5,
        gt=0,
        lt=1,
        description="Learning rate of the first step; it falls linearly to 0 at the end of the training.",
    )
    batch_size: int = Field(default=8, ge=1, description="Number of sentences per training step.")
    dtype: TrainingDtype = "float32"
