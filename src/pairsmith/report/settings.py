"""Settings of the step ``report``."""

from typing import Annotated

from pydantic import Field

from pairsmith.fields import Device, Dtype
from pairsmith.settings import Listed, Settings


class ReportSettings(Settings):
    """One page about a data set, a model, an evaluation, or a whole run."""

    data: str = Field(description="What to look at: a folder that a step or a recipe wrote.")
    against: Annotated[list[str], Listed] = Field(
        default=[],
        description="Evaluation data whose texts should not be among the rows: files, SQuAD's and MRQA's as "
        "well, dataset folders, Hub ids, or folders of similarity test sets.",
    )
    encoder: str | None = Field(
        default=None,
        description="Sentence encoder by which pairs are compared too: a folder or Hub id, "
        "embedded:all-minilm-l6-v2. Without one, by the words they share.",
    )
    traces: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Of what generate wrote, show for so many first texts what self-debiasing did to each "
        "token; wants --model.",
    )
    model: str | None = Field(
        default=None, description="The language model that wrote the rows, for --traces."
    )
    sample: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description="Rows of each data set that are looked at closely; lengths, labels, different texts and "
        "texts of evaluation data are counted in all.",
    )
    examples: int = Field(default=5, ge=0, le=100, description="Rows shown of each sort.")
    seed: int = Field(default=0, ge=0, description="Seed of the rows looked at closely.")
    device: Device = "auto"
    dtype: Dtype = "float32"
