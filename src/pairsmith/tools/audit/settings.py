"""Settings of the step ``audit``."""

from pydantic import Field, field_validator

from pairsmith.core.settings import BY_CONTENT, NO_EFFECT, Settings


class AuditSettings(Settings):
    """Have people label rows without seeing the labels that these have (D13)."""

    data: str = Field(
        description="Folder with the rows to label: pairs, labelled texts, questions on passages, or "
        "documents with summaries.",
        json_schema_extra=BY_CONTENT,
    )
    annotator: str = Field(
        default="me",
        description="Name of the person who labels. Each annotator sees the rows in an order of their own.",
        max_length=60,
        json_schema_extra=NO_EFFECT,
    )
    rows: int = Field(
        default=100, ge=1, le=10_000, description="Number of rows to label; all annotators get the same ones."
    )
    labels: list[str] = Field(
        default=[],
        description="Labels to choose from, in the order of the keys 1, 2, 3 …; needed for rows without "
        "labels, e.g. right and wrong. Unset: the labels in the data.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the sample of rows and of their order.")
    port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="Port on this machine for the labelling page; 0: any free port.",
        json_schema_extra=NO_EFFECT,
    )
    finish: bool = Field(
        default=False,
        description="Do not ask for labels; write the results of those given so far.",
        json_schema_extra=NO_EFFECT,
    )

    @field_validator("annotator")
    @classmethod
    def _has_a_name(cls, name: str) -> str:
        if not name.strip() or not name.isprintable():
            raise ValueError("give the annotator a name of printable characters")
        return name.strip()

    @field_validator("labels")
    @classmethod
    def _differ(cls, labels: list[str]) -> list[str]:
        if len(set(labels)) != len(labels) or len(labels) > 9 or not all(label.strip() for label in labels):
            raise ValueError("give up to nine labels, each once and none of them blank")
        return labels
