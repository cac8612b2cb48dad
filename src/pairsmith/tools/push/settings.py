"""Settings of ``push``: their defaults and help texts."""

from pydantic import Field

from pairsmith.core.settings import BY_CONTENT, NO_EFFECT, Settings


class PushSettings(Settings):
    """Upload a dataset folder or a model folder to the Hugging Face Hub in one commit."""

    data: str = Field(
        description="What to upload: a finished dataset folder, or a model folder.",
        json_schema_extra=BY_CONTENT,
    )
    repo: str = Field(
        pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$",
        description="OWNER/NAME on the Hub. It is created if it does not exist.",
    )
    private: bool = Field(
        default=False,
        description="Create the repository as private, so that only its owner sees it. An existing public "
        "one is refused.",
    )
    revision: str | None = Field(
        default=None, description="Branch to upload to, created if it does not exist. Unset: main."
    )
    dry_run: bool = Field(
        default=False,
        description="Upload nothing, and write to --out exactly what would be uploaded.",
        json_schema_extra=NO_EFFECT,
    )
