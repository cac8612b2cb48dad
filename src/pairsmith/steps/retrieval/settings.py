"""Settings of the steps from documents to the training data of a retriever."""

from dataclasses import fields
from typing import Annotated

from pydantic import Field, field_validator

from pairsmith.core.fields import Device, Dtype, Executor, Rank, RayAddress, Workers, WorldSize
from pairsmith.core.settings import BY_CONTENT, Listed, Settings
from pairsmith.methods.retrieval.queries import AgainstName, KindName, QueryOptions


class QueriesSettings(Settings):
    """Write search queries for chunks of documents with a causal language model."""

    chunks: str = Field(
        description="Chunks to write queries for: a folder that chunk wrote, rows with the columns id, "
        "title, text and document, or a corpus in BEIR's form. Chunks of the same document that stand beside "
        "each other are neighbours.",
        json_schema_extra=BY_CONTENT,
    )
    column: str | None = Field(default=None, description="Column of --chunks that holds the texts.")
    model: str = Field(
        default="embedded:smollm2-135m-instruct",
        description="Causal language model: a folder, a Hub id, a GGUF file or "
        "embedded:smollm2-135m-instruct.",
        json_schema_extra=BY_CONTENT,
    )
    examples: str | None = Field(
        default=None,
        description="Queries of your own as examples: a text file, or rows with the columns query and, if "
        "there is one, positive, the text that it should find.",
        json_schema_extra=BY_CONTENT,
    )
    shown: int = Field(default=4, ge=1, le=32, description="Use the first N of --examples.")
    queries: int = Field(default=3, ge=1, le=100, description="Number of queries for each chunk.")
    kinds: Annotated[list[KindName], Listed] = Field(
        default=["question", "keywords", "statement"],
        min_length=1,
        description="Kinds of query, which take turns.",
    )
    against: Annotated[list[AgainstName], Listed] = Field(
        default=["neighbours", "title"],
        description="Counter-prompts: a query must not fit the neighbours of its chunk, or its title alone, "
        "better than the chunk.",
    )
    decay: float = Field(
        default=100.0,
        ge=0,
        allow_inf_nan=False,
        description="How strongly tokens that a counter-prompt makes likelier are avoided; 0 turns it off.",
    )
    tries: int = Field(default=3, ge=1, le=100, description="Maximum number of tries for each query.")
    top_k: int = Field(default=5, ge=0, description="Draw from the K likeliest tokens; 0: from all.")
    top_p: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Of these, draw from the likeliest that together hold this share.",
    )
    max_tokens: int = Field(default=32, ge=2, description="Longest query in tokens.")
    max_length: int = Field(
        default=400,
        ge=16,
        description="Longest text in tokens that is shown to the model; the rest is cut off.",
    )
    chat: bool = Field(
        default=False,
        description="Use the model's chat template, with the instruction as the user's message.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the sampling.")
    device: Device = "auto"
    dtype: Dtype = "auto"
    executor: Executor = "local"
    workers: Workers = 1
    ray_address: RayAddress = None
    rank: Rank = None
    world_size: WorldSize = None
    shard_size: int = Field(
        default=100, ge=1, le=100_000, description="Number of chunks that are processed and saved together."
    )

    @field_validator("kinds", "against")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError(f"{', '.join(names)}: give each once")
        return names

    @property
    def options(self) -> QueryOptions:
        """The settings that belong to the method itself."""
        given = {each.name: getattr(self, each.name) for each in fields(QueryOptions)}
        return QueryOptions(**given | {"kinds": tuple(self.kinds), "against": tuple(self.against)})
