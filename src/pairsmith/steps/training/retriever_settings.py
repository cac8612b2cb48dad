"""Settings for training a retriever on queries and documents."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pairsmith.core.settings import BY_CONTENT, Listed
from pairsmith.methods.retrieval.retriever_options import RetrieverOptions
from pairsmith.steps.training.settings import FitSettings


class TrainRetrieverSettings(RetrieverOptions, FitSettings):
    """A sentence encoder that puts queries close to the documents that answer them."""

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
            raise ValueError("of several learning rates one is chosen by validation rows; give --validation")
        return self
