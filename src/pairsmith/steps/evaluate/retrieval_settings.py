"""Settings of ``evaluate retrieval``."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pairsmith.core.errors import ModelError
from pairsmith.core.fields import Device, Dtype, Pooling, TextLength, TextsAtOnce, VectorFolder
from pairsmith.core.model_names import check_name
from pairsmith.core.paths import is_folder, place
from pairsmith.core.settings import BY_CONTENT, Listed, Settings, refuse
from pairsmith.steps.evaluate.settings import ComparedSettings

BM25 = "bm25"

Language = Literal[
    "none",
    "danish",
    "dutch",
    "english",
    "french",
    "german",
    "italian",
    "norwegian",
    "portuguese",
    "russian",
    "spanish",
    "swedish",
    "turkish",
]
"""Languages that have a stemmer and stop words; ``none`` for neither."""

QueryPrompt = Annotated[
    str | None,
    Field(
        description='Text put before each query, such as "query: ". Unset: the prompt query that was saved '
        "with the model, if any."
    ),
]
DocumentPrompt = Annotated[
    str | None,
    Field(
        description='Text put before each document, such as "passage: ". Unset: the prompt document that was '
        "saved with the model, if any."
    ),
]
CorpusColumn = Annotated[
    str | None,
    Field(
        description="Column of --corpus that holds the texts. Unset: text, or a usual name.",
        json_schema_extra=BY_CONTENT,
    ),
]
Dimensions = Annotated[
    int | None,
    Field(
        ge=1,
        description="Use only the first N components of each vector, for a model trained with --matryoshka. "
        "Unset: all.",
    ),
]
LanguageOfWords = Annotated[
    Language,
    Field(
        description="With --model bm25: the language of the stemmer and the stop words. none: words are "
        "compared unchanged, and none is left out."
    ),
]


def refuse_without_effect(settings: Settings, model: str) -> None:
    """Refuse settings that have no effect: those of encoders with bm25, and those of bm25 with an encoder."""
    if model == BM25:
        names = ("query_prompt", "document_prompt", "dimensions", "pooling", "max_length", "vectors")
        refuse(settings, names, "with bm25, which has no vectors")
    else:
        refuse(settings, ("language",), "without bm25; only bm25 compares words")


class EvaluateRetrievalSettings(ComparedSettings):
    """How many of the documents that are relevant to a query are retrieved, and at which ranks."""

    model: str = Field(
        description="Encoder: a folder or Hub id of a sentence-transformers or transformers model, "
        "embedded:all-minilm-l6-v2, or pairsmith:tiny; or bm25 for BM25, the usual baseline, which compares "
        "words (extra eval).",
        json_schema_extra=BY_CONTENT,
    )
    data: str = Field(
        description="Folder in BEIR's layout, with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, such as "
        "export --form beir writes, or a Hub data set in the layout of BEIR or mteb; with --corpus, rows of "
        "queries.",
        json_schema_extra=BY_CONTENT,
    )
    corpus: Annotated[list[str], Listed] = Field(
        default=[],
        description="Documents to search: a folder that chunk wrote, or rows with the columns id, title and "
        "text. The rows of --data then have the columns query and chunk, the id of the document that answers "
        "the query, or query and positive, the text of this document.",
        json_schema_extra=BY_CONTENT,
    )
    corpus_column: CorpusColumn = None
    split: str | None = Field(
        default=None,
        description="Split whose queries are used. Unset: test, or the only split of a folder.",
        json_schema_extra=BY_CONTENT,
    )
    query_prompt: QueryPrompt = None
    document_prompt: DocumentPrompt = None
    against: str | None = Field(
        default=None,
        description="Folder of an earlier evaluate retrieval on the same queries and documents. The results "
        "then also show how much each figure differs from the earlier one, with a 95 % interval over the "
        "queries, and whether it is better, worse or within noise.",
        json_schema_extra=BY_CONTENT,
    )
    depth: int = Field(
        default=1000,
        ge=100,
        description="Number of documents retrieved for each query; the mean average precision (map) depends "
        "on it.",
    )
    exclude_own: bool = Field(
        default=False,
        description="Do not retrieve the document with the query's own id, as BEIR does; for data sets whose "
        "queries are also documents, such as ArguAna and Quora.",
    )
    keep: int = Field(
        default=10,
        ge=0,
        description="Number of retrieved documents that are written to predictions.jsonl for each query.",
    )
    dimensions: Dimensions = None
    language: LanguageOfWords = "english"
    pooling: Pooling = "default"
    batch_size: TextsAtOnce = 1_024
    max_length: TextLength = None
    vectors: VectorFolder = None
    device: Device = "auto"
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        refuse_without_effect(self, self.model)
        if self.corpus:
            refuse(self, ("split",), "with corpus; FOLDER:SPLIT as data names a split of rows")
            refuse(self, ("exclude_own",), "with corpus, where queries have no ids of documents")
        else:
            refuse(self, ("corpus_column",), "without corpus")
        return self


def check_retriever_name(model: str) -> None:
    """Check that ``model`` can rank documents, as far as its name shows."""
    if model != BM25:
        if model.casefold() == BM25 and not is_folder(place(model)):
            raise ModelError(f"model {model}: there is no such folder; did you mean {BM25}?")
        check_name(model)
