"""Settings of the tools, with their defaults and help texts."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pairsmith.core.fields import Device, Dtype
from pairsmith.core.settings import BY_CONTENT, NO_EFFECT, Listed, Settings

FormName = Literal[
    "jsonl", "squad", "beir", "sentence-transformers", "triplets", "scored-tuples", "tevatron",
    "flag-embedding", "croissant", "csv", "conll", "label-studio", "argilla",
]  # fmt: skip

_NO_BRANCH = re.compile(
    r"""(?x)
    \A(\Z|[-/.]|(@|HEAD)\Z) | [/.]\Z | /[/.] | \.\. | \.lock(/|\Z) | @\{ | [\x00-\x20\x7f~^:?*\[\\]
    """
)
"""What ``git check-ref-format --branch`` refuses in the name of a branch, and ``@``, which means HEAD."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class ReportSettings(Settings):
    """One page about a data set, a model, an evaluation, or a whole run."""

    data: str = Field(
        description="Folder to report on, which a step or a recipe wrote.", json_schema_extra=BY_CONTENT
    )
    against: Annotated[list[str], Listed] = Field(
        default=[],
        description="Evaluation data whose texts should not occur in the rows: files (also in the formats of "
        "SQuAD and MRQA), dataset folders, Hub ids, or folders of similarity test sets.",
        json_schema_extra=BY_CONTENT,
    )
    encoder: str | None = Field(
        default=None,
        description="Sentence encoder for comparing the texts of pairs: a folder or Hub id, or "
        "embedded:all-minilm-l6-v2. Unset: texts are compared only by the words they share.",
    )
    traces: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Show the effect of self-debiasing on each token for this many first texts of a folder "
        "that generate wrote; needs --model.",
    )
    model: str | None = Field(
        default=None,
        description="The language model that wrote the rows, for --traces.",
        json_schema_extra=BY_CONTENT,
    )
    sample: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description="Number of rows of each data set that are examined closely; lengths, labels, distinct "
        "texts and texts of evaluation data are counted in all rows.",
    )
    examples: int = Field(default=5, ge=0, le=100, description="Number of example rows to show of each sort.")
    seed: int = Field(default=0, ge=0, description="Seed of the sample of rows.")
    device: Device = "auto"
    dtype: Dtype = "float32"


class AuditSettings(Settings):
    """Have people label rows whose own labels they do not see (D13)."""

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
        default=100, ge=1, le=10_000, description="Number of rows to label, the same rows for all annotators."
    )
    labels: list[str] = Field(
        default=[],
        description="Labels to choose from, in the order of the keys 1, 2, 3 …; needed for rows without "
        "labels, e.g. right and wrong. Unset: the labels in the data.",
    )
    question: str = Field(
        default="",
        max_length=500,
        description="What the annotators are asked above each row. Unset: a question that suits the rows, "
        "such as how similar in meaning the two sentences of a pair are.",
        json_schema_extra=NO_EFFECT,
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
        description="Do not ask for labels; write the results of the labels given so far.",
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


class ExportSettings(Settings):
    """Write a data set in the format of another tool."""

    data: str = Field(
        description="Rows to export: a dataset folder, a file or a Hub id.", json_schema_extra=BY_CONTENT
    )
    form: FormName = Field(
        description="Output format. jsonl: one row per line, with all its columns; csv: all columns of rows "
        "of any kind, lists as JSON; conll: words and their tags, as tag writes them, one of each per line; "
        "squad: questions as in SQuAD 1.1; beir: a corpus, queries, and the relevant texts of each query; "
        "sentence-transformers: the columns that its losses expect, with labels as numbers; triplets, "
        "scored-tuples, tevatron, flag-embedding: queries with negatives, for sentence-transformers (a row "
        "for each negative, or all with their scores), Tevatron and FlagEmbedding; croissant: the Parquet "
        "files of a dataset folder with a description in Croissant 1.1; label-studio, argilla: for people to "
        "label in these tools, with the rows' own labels as suggestions."
    )

    @field_validator("form", mode="before")
    @classmethod
    def _no_parquet(cls, form: object) -> object:
        if form == "parquet":
            raise ValueError(
                "a dataset folder needs no export as Parquet: the files in its data/ are Parquet, and "
                "datasets.load_dataset(FOLDER) opens them"
            )
        return form


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
        "repository is refused.",
    )
    revision: str | None = Field(
        default=None, description="Branch to upload to, created if it does not exist. Unset: main."
    )
    dry_run: bool = Field(
        default=False,
        description="Upload nothing, and write to --out exactly what would be uploaded.",
        json_schema_extra=NO_EFFECT,
    )

    @field_validator("revision")
    @classmethod
    def _is_branch(cls, revision: str | None) -> str | None:
        if revision is not None and _COMMIT.fullmatch(revision):
            raise ValueError(f"{revision} is a commit, which cannot be added to; give the name of a branch")
        if revision is not None and _NO_BRANCH.search(revision):
            raise ValueError(
                f"git allows no branch {revision!r}; give a name of letters, digits and hyphens, such as v2"
            )
        return revision


class RemoveSettings(Settings):
    """Write a data set without the rows that have certain texts or ids."""

    data: str = Field(
        description="Dataset folder whose rows are kept, in all splits, except those that are removed.",
        json_schema_extra=BY_CONTENT,
    )
    texts: str | None = Field(
        default=None,
        description="Texts whose rows are removed: a file with one text per line, or another source of "
        "texts. A row is removed if one of its columns contains such a text as whole words; case, spaces and "
        "punctuation are ignored.",
        json_schema_extra=BY_CONTENT,
    )
    ids: str | None = Field(
        default=None,
        description="Ids of the rows to remove: a file with one id per line, or with a column id.",
        json_schema_extra=BY_CONTENT,
    )

    @model_validator(mode="after")
    def _names_rows(self) -> Self:
        if not self.texts and not self.ids:
            raise ValueError("give texts or ids, which say what rows to remove")
        return self
