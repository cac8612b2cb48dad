"""Settings of ``generate`` and ``postprocess``: their defaults, bounds and help texts."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from pairsmith.core.bundled import TINY
from pairsmith.core.fields import Device, Dtype, ShardBounds, WorkerSettings
from pairsmith.core.settings import (
    BY_CONTENT,
    MOST_ITEMS,
    MOST_ROWS_AT_ONCE,
    MOST_TEXTS,
    NO_EFFECT,
    Listed,
    Settings,
)
from pairsmith.data.tasks import Decoding, TaskSpec, label_text, load_task
from pairsmith.data.tasks.spec import RuleName, parse_label
from pairsmith.methods.dino.options import NearCopies, TrainingSetOptions
from pairsmith.steps.corpora.options import options_of


def _of_task(name: str) -> Any:
    """A field with the bounds and help text of a decoding setting; unset, it has the task's value."""
    field = Decoding.model_fields[name]
    bounds = {
        key: getattr(bound, key)
        for bound in field.metadata
        for key in ("ge", "gt", "le", "allow_inf_nan")
        if hasattr(bound, key)
    }
    return Field(description=f"{field.description} [default: the task's]", **bounds)


class GenerateSettings(WorkerSettings):
    """Write labelled texts or pairs from a task's instructions with a causal language model."""

    task: str = Field(
        default="sts", description="A built-in task (see `pairsmith tasks`), or the path of a task file."
    )
    model: str = Field(
        default=TINY,
        description="The language model: a folder, a Hub id, a server (http://HOST:PORT/v1#NAME), or "
        "pairsmith:tiny, which only shows how the step works.",
    )
    inputs: Annotated[list[str], Listed] = Field(
        default=[],
        description="First texts of a pair task: a text, JSONL, TSV, CSV or Parquet file, a dataset folder, "
        "or a Hub data set.",
    )
    column: Annotated[list[str], Listed] = Field(
        default=[],
        description="Column of --inputs that holds the texts. With several columns, all texts of a row are "
        "used, in the order of the columns.",
    )
    limit: int | None = Field(default=None, ge=1, le=MOST_ITEMS, description="Use only the first N inputs.")
    until: int | None = Field(
        default=None,
        ge=1,
        le=MOST_TEXTS,
        description="Continue until each label has this many rows: with more inputs or, in a text task, more "
        "texts; at most five times as many as would suffice if all texts were accepted. --limit bounds the "
        "inputs. A label may get a few more rows; `postprocess --per-label` keeps equally many of each.",
        json_schema_extra={**NO_EFFECT, "in_command": True},
    )
    labels: Annotated[list[str], Listed] = Field(
        default=[],
        description="Write texts only for these of the task's labels, e.g. those with too few texts so far. "
        "The task's other labels still serve as counter-labels.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of every random draw.")
    decay: Annotated[float | None, _of_task("decay")] = None
    floor: Annotated[float | None, _of_task("floor")] = None
    rule: Annotated[RuleName | None, _of_task("rule")] = None
    scale: Annotated[float | None, _of_task("scale")] = None
    strength: Annotated[float | None, _of_task("strength")] = None
    plausible: Annotated[float | None, _of_task("plausible")] = None
    top_k: Annotated[int | None, _of_task("top_k")] = None
    top_p: Annotated[float | None, _of_task("top_p")] = None
    max_tokens: Annotated[int | None, _of_task("max_tokens")] = None
    per_input: Annotated[int | None, _of_task("per_input")] = None
    tries: Annotated[int | None, _of_task("tries")] = None
    preview: int = Field(
        default=0,
        ge=0,
        le=MOST_ITEMS,
        description="Show this many examples, with the effect of self-debiasing on each token, and write "
        "nothing.",
    )
    device: Device = "auto"
    dtype: Dtype = "float32"
    rows: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ROWS_AT_ONCE,
        description="Number of sequences that the model processes at once; lower it if memory runs out. "
        "Unset: as many as fit in memory, at most 256 (4,096 on a GPU). In bfloat16 another number gives "
        "other texts.",
    )
    steering: Literal["certified", "reranked"] = Field(
        default="certified",
        description="How a model behind a server is steered. certified: self-debiasing with the server's "
        "lists of likeliest tokens; reranked: the server samples texts, and a text is kept if it is less "
        "likely after every counter-label's prompt than after its own.",
    )
    top_logprobs: int = Field(
        default=20,
        ge=1,
        description="With a server and --steering certified: number of likeliest tokens to request for each "
        "prompt, at least --top-k.",
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        le=64,
        description="With a server: number of texts that are requested at the same time.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Number of worker processes, or Ray actors, each of which loads the model. The rows do "
        "not depend on it.",
    )
    # With 8 inputs in a shard instead of 40, SmolLM2 takes nearly twice as long on a CPU.
    shard_bounds: ClassVar[ShardBounds] = ShardBounds(least=40, most=200)
    shard_size: int | None = Field(
        default=None,
        ge=1,
        description="Number of inputs (in a text task, of texts) that are processed and saved together. "
        f"{shard_bounds.unset}",
    )

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_as_text(cls, labels: Any) -> Any:
        """Labels as texts: YAML reads the labels ``[1, 0]`` of a recipe as numbers."""
        if isinstance(labels, str):
            return labels
        values = labels if isinstance(labels, list | tuple) else [labels]
        return [label if isinstance(label, str) else label_text(parse_label(label)) for label in values]

    def resolved_task(self) -> TaskSpec:
        """The task, limited to ``labels``; decoding settings that are not None replace those of the task."""
        task, names = load_task(self.task).writing(self.labels), Decoding.model_fields
        overrides = {name: value for name in names if (value := getattr(self, name)) is not None}
        return task.model_copy(update={"decoding": task.decoding.model_copy(update=overrides)})


class PostprocessSettings(Settings):
    """Clean generated rows, smooth their scores, add sampled negatives, and split."""

    data: str = Field(
        description="Folder that `generate` wrote, or any file, folder or Hub data set with its columns: "
        "sentence1, sentence2, score; sentence1, sentence2, label; or text, label. If there are several "
        "splits, train is used; FOLDER:SPLIT selects another.",
        json_schema_extra=BY_CONTENT,
    )
    smoothing: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Move each score by this fraction towards the mean of the labels; 0 leaves scores as "
        "they are.",
    )
    augment: int = Field(
        default=2,
        ge=0,
        le=MOST_ITEMS,
        description="Number of sampled negatives per first text: second texts of other first texts, with "
        "score 0.",
    )
    validation: float = Field(
        default=0.1, ge=0, lt=1, description="Share of each label's rows that goes into the validation split."
    )
    per_input: int = Field(
        default=2, ge=1, description="Maximum number of second texts to keep for each first text and label."
    )
    per_label: int | None = Field(
        default=None,
        ge=1,
        description="Keep only the first N clean rows of each label. generate --until N writes a few more.",
    )
    min_words: int = Field(default=1, ge=1, description="Drop generated texts with fewer words than this.")
    near_copies: NearCopies = Field(
        default="task",
        description="What to do with pairs whose texts differ only in case, spaces and punctuation. task: "
        "what the task says for each label. With keep, as in the paper, the negatives of --augment may be "
        "near-copies too.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the sampled negatives and the split.")

    @property
    def options(self) -> TrainingSetOptions:
        """The options of ``make_training_set``."""
        return options_of(TrainingSetOptions, self)
