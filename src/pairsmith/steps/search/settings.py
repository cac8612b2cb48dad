"""Settings of ``search``: their defaults, bounds and help texts."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pairsmith.core.fields import Device, Dtype, Pooling, TextLength, TextsAtOnce, VectorFolder
from pairsmith.core.settings import Listed, Settings, refuse
from pairsmith.steps.evaluate.retrieval_settings import (
    CorpusColumn,
    Dimensions,
    DocumentPrompt,
    LanguageOfWords,
    QueryPrompt,
    refuse_without_effect,
)


class SearchSettings(Settings):
    """Print the documents that a model ranks highest for a query."""

    model: str = Field(
        description="Encoder: a folder that train-retriever wrote, a folder or Hub id of a "
        "sentence-transformers or transformers model, embedded:all-minilm-l6-v2, or pairsmith:tiny; or bm25, "
        "which compares words (extra eval)."
    )
    corpus: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Documents to search: a folder that chunk wrote, rows with the columns id, title and "
        "text, or a folder in BEIR's layout, with corpus.jsonl.",
    )
    corpus_column: CorpusColumn = None
    queries: str | None = Field(
        default=None,
        description="File with queries: one per line, or rows with the column query; - for standard input.",
    )
    best: int = Field(default=10, ge=1, description="Number of documents shown for each query.")
    keep_vectors: bool = Field(
        default=True,
        description="Keep the documents' vectors for the next search of the same documents with the same "
        "model: in --vectors, or else in the folder search of $PAIRSMITH_CACHE, which is ~/.cache/pairsmith "
        "if unset. These files may be deleted at any time.",
    )
    vectors: VectorFolder = None
    query_prompt: QueryPrompt = None
    document_prompt: DocumentPrompt = None
    dimensions: Dimensions = None
    language: LanguageOfWords = "english"
    pooling: Pooling = "default"
    batch_size: TextsAtOnce = 1_024
    max_length: TextLength = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        refuse_without_effect(self, self.model)
        if not self.keep_vectors:
            refuse(self, ("vectors",), "without keep_vectors")
        return self
