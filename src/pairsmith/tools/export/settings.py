"""Settings of ``export`` and their help texts."""

from typing import Literal

from pydantic import Field

from pairsmith.core.settings import BY_CONTENT, Settings

FormName = Literal["jsonl", "squad", "beir", "sentence-transformers", "croissant"]


class ExportSettings(Settings):
    """Write a data set in the format of another tool."""

    data: str = Field(
        description="Rows to export: a dataset folder, a file or a Hub id.", json_schema_extra=BY_CONTENT
    )
    form: FormName = Field(
        description="Output format. jsonl: one row per line; squad: questions as in SQuAD 1.1; beir: a "
        "corpus, queries, and which of them belong together; sentence-transformers: the columns that its "
        "losses expect; croissant: the Parquet files of a dataset folder with a description in Croissant "
        "1.1."
    )
