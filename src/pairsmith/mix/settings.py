"""Settings of ``mix``: their defaults, bounds and help texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.settings import Listed, Settings


class MixSettings(Settings):
    """Combine rows of several data sets in any proportion, without duplicates."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Rows of one shape: files, dataset folders or Hub ids. Of rows that stand in several, "
        "that of the first is kept.",
    )
    weight: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default=[],
        description="Of each of --data, in their order, the share of the rows that are its; they need not "
        "add up to 1. None given: all rows of each.",
    )
    rows: int | None = Field(
        default=None, ge=1, description="Rows in all; unset: as many as the weights allow."
    )
    pick: Annotated[list[Literal["first", "random"]], Listed] = Field(
        default=["first"],
        min_length=1,
        description="Which rows of a source are taken where not all are: the first, as in what mine and "
        "filter rank, or some by chance. One for all, or of each of --data.",
    )
    duplicates: Literal["drop", "keep"] = Field(
        default="drop",
        description="Rows whose texts differ from another row's in case, spaces and punctuation alone.",
    )
    pairs_as: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Take pairs of inputs and outputs, as mine writes them, for scored pairs of this score; "
        "those of other scores may then be written by generate.",
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the rows picked by chance.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.weight and len(self.weight) != len(self.data):
            raise ValueError(f"{len(self.weight)} weights for {len(self.data)} sources; give one for each")
        if len(self.pick) not in (1, len(self.data)):
            raise ValueError(f"{len(self.pick)} times pick for {len(self.data)} sources; give one for each")
        if len(set(self.data)) != len(self.data):
            raise ValueError("a source is named twice; name each once and give it a weight")
        return self
