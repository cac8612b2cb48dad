"""Settings of the step ``audit``."""

from pydantic import Field, field_validator

from pairsmith.settings import Settings


class AuditSettings(Settings):
    """Have people label rows without seeing the labels that these have (D13)."""

    data: str = Field(
        description="Folder with the rows: pairs, labelled texts, questions on passages, documents with "
        "summaries."
    )
    annotator: str = Field(
        default="me", description="Who labels. Each has an order of rows of their own.", max_length=60
    )
    rows: int = Field(
        default=100, ge=1, le=10_000, description="Rows drawn from the data, for all annotators."
    )
    labels: list[str] = Field(
        default=[],
        description="What a row may be labelled, in the order of the keys 1, 2, 3 …; none given: the labels "
        "that the rows have. Rows without any want some, e.g. right and wrong.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the rows and of their order.")
    port: int = Field(default=0, ge=0, le=65_535, description="Port on this machine; 0: any that is free.")
    finish: bool = Field(
        default=False, description="Do not ask for labels; write the results of those that are there."
    )

    @field_validator("annotator")
    @classmethod
    def _has_a_name(cls, name: str) -> str:
        if not name.strip() or not name.isprintable():
            raise ValueError("an annotator has a name of letters that can be seen")
        return name.strip()

    @field_validator("labels")
    @classmethod
    def _differ(cls, labels: list[str]) -> list[str]:
        if len(set(labels)) != len(labels) or len(labels) > 9 or not all(label.strip() for label in labels):
            raise ValueError("up to nine labels, each once and none of them blank")
        return labels
