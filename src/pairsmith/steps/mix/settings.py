"""Settings of ``mix``: their defaults, bounds and help texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.errors import counted, times_in_words
from pairsmith.core.settings import Listed, Settings


class MixSettings(Settings):
    """Combine rows of several data sets in any proportion, without duplicates."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Data sets with the same kind of rows: files, dataset folders or Hub ids. A row that "
        "occurs in several data sets is taken from the first of them.",
    )
    weight: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default=[],
        description="Share of the rows to take from each of --data, in their order; shares need not add up "
        "to 1. Unset: in proportion to the sizes of the data sets.",
    )
    rows: int | None = Field(
        default=None, ge=1, description="Total number of rows. Unset: as many as the weights allow."
    )
    pick: Annotated[list[Literal["first", "random"]], Listed] = Field(
        default=["first"],
        min_length=1,
        description="Which rows to take if not all are needed: the first ones, which mine and filter rank "
        "highest, or random ones. Give one value for all, or one for each of --data.",
    )
    duplicates: Literal["drop", "keep"] = Field(
        default="drop",
        description="What to do with rows whose texts differ from those of an earlier row only in case, "
        "spaces and punctuation.",
    )
    pairs_as: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Turn pairs of inputs and outputs, as mine writes them, into scored pairs with this "
        "score, to mix them with generated pairs of other scores.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the random choice of rows.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.weight and len(self.weight) != len(self.data):
            raise ValueError(
                f"weight is given {times_in_words(len(self.weight))} for "
                f"{counted(len(self.data), 'sources')} of data; give it once for each, in their order"
            )
        if len(self.pick) not in (1, len(self.data)):
            raise ValueError(
                f"pick is given {times_in_words(len(self.pick))} for {len(self.data)} sources of data; give "
                "it once for all, or once for each, in their order"
            )
        if len(set(self.data)) != len(self.data):
            raise ValueError("data names a source twice; name it once, and give it a larger weight")
        return self
