"""Training options of a retriever."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import Pooling
from pairsmith.core.settings import refuse
from pairsmith.training.options import Attention, EpochOptions, Layers, Positive, Several


class RetrieverOptions(EpochOptions):
    """How a sentence encoder learns to put queries close to the documents that answer them."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, or of any "
        "transformers encoder or causal language model; embedded:all-minilm-l6-v2, "
        "embedded:smollm2-135m-instruct or pairsmith:tiny."
    )
    objective: Literal["ranking", "margin-mse", "kl"] = Field(
        default="ranking",
        description="What is learned. ranking: each query's positive is told apart from its negatives and "
        "from all documents of the other rows in a batch. margin-mse, kl: a judge's scores of the positive "
        "and the negatives, which are in the columns score and scores; margin-mse learns the differences "
        "of the scores, kl their softmax.",
    )
    negatives: int | None = Field(
        default=None,
        ge=0,
        description="Number of negatives that are used of each row, drawn anew in each pass over the rows. "
        "Unset: all.",
    )
    scale: Positive = Field(default=20.0, description="Factor that multiplies the cosines.")
    temperature: Positive = Field(
        default=1.0,
        description="Number by which the judge's scores are divided, for the objectives margin-mse and kl.",
    )
    query_prompt: str | None = Field(
        default=None,
        description='Text put before each query, such as "query: ", and saved with the model. Unset: the '
        "base's own, if any.",
    )
    document_prompt: str | None = Field(
        default=None,
        description='Text put before each document, such as "passage: ", and saved with the model. Unset: '
        "the base's own, if any.",
    )
    matryoshka: Annotated[list[Annotated[int, Field(ge=1)]], Several] = Field(
        default=[],
        description="Also train the first N numbers of the vectors to serve alone, so that shorter vectors "
        "can be stored.",
    )
    layers: Layers = None
    attention: Attention = "base"
    pooling: Pooling = "default"
    epochs: Positive = Field(default=1.0, description="Number of passes over the rows.")
    learning_rate: Annotated[list[float], Several] = Field(
        default=[2e-5],
        min_length=1,
        description="Highest learning rate, reached after the warm-up. If several are given, the one that "
        "does best on the validation rows is kept.",
    )
    eval_steps: int = Field(
        default=100, ge=1, description="Steps between two evaluations on the validation rows."
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if len(set(self.matryoshka)) < len(self.matryoshka):
            raise ValueError(f"matryoshka holds a number twice: {', '.join(map(str, self.matryoshka))}")
        if self.objective == "ranking":
            refuse(self, ("temperature",), "with the objective ranking, which uses no scores")
        elif self.negatives == 0:
            raise ValueError(f"negatives 0 leaves the objective {self.objective} nothing to learn")
        return self
