"""Settings of ``push``: their defaults and help texts."""

from pydantic import Field

from pairsmith.settings import Settings


class PushSettings(Settings):
    """Upload a dataset folder or a model folder to the Hugging Face Hub in one commit."""

    data: str = Field(description="What to send: a finished dataset folder, or a model folder.")
    repo: str = Field(
        pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$",
        description="OWNER/NAME on the Hub. It is made if it is not there.",
    )
    private: bool = Field(
        default=False,
        description="Only its owner sees it. What is there already and public is refused then.",
    )
    revision: str | None = Field(
        default=None, description="Branch to send to, made if it is not there; unset: main."
    )
    dry_run: bool = Field(
        default=False, description="Send nothing, and write to --out exactly what would be sent."
    )
