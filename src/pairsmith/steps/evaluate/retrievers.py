"""Ranks documents for queries, by the vectors of an encoder or by BM25."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import file_of, resolve_model
from pairsmith.core.paths import Place
from pairsmith.core.progress import Progress
from pairsmith.metrics.ranking import Grades
from pairsmith.models.encode import Side, encode_texts, not_finite
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs.work import Advance
from pairsmith.search.bm25 import WordIndex, language_warning
from pairsmith.search.exact import Neighbours, merged, nearest
from pairsmith.steps.evaluate.retrieval_settings import BM25, EvaluateRetrievalSettings, Language
from pairsmith.steps.kept_vectors import BLOCK, KeptVectors, VectorOptions
from pairsmith.steps.search.settings import SearchSettings
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Places = NDArray[np.int64]
"""Positions in ``ranking_order``."""

DOCUMENTS_AT_ONCE = 10 * BLOCK
"""Number of documents whose vectors are in memory at a time."""
QUERIES_AT_ONCE = 2_048
"""Number of queries whose nearest documents are searched for in one step."""
_OTHER_KINDS = ("ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification")
"""Endings of the class names of models that are no encoders."""


@dataclass(frozen=True, slots=True)
class Rankings:
    """The documents retrieved for each of n queries, the best first.

    Attributes:
        documents: the ids of all documents, in ``ranking_order``.
        places: ``(n, depth)``, the position of each retrieved document in ``documents``; -1 if fewer
            documents were retrieved.
        scores: ``(n, depth)`` float32, the score of each retrieved document; -inf if fewer were retrieved.
    """

    documents: Sequence[str]
    places: Places
    scores: Float32s

    def best(self, query: int, count: int) -> Iterator[tuple[str, float]]:
        """The ids and scores of the first ``count`` documents retrieved for a query; there may be fewer."""
        for place, score in zip(self.places[query, :count], self.scores[query, :count], strict=True):
            if place >= 0:
                yield self.documents[place], float(score)


Search = Callable[[Mapping[str, str], Sequence[str], int], Rankings]
"""Ranks documents for queries: a function of the documents by id, the queries, and the depth."""


def ranking_order(ids: Collection[str]) -> tuple[list[str], Places]:
    """The ids in the order in which documents with equal scores rank, and the position of each id there.

    It is the descending order of their bytes, as in trec_eval. The positions are in the order of ``ids``.
    """
    ordered = sorted(ids, reverse=True)
    positions = {name: position for position, name in enumerate(ordered)}
    return ordered, np.array([positions[name] for name in ids], np.int64)


def retrieve(
    settings: EvaluateRetrievalSettings,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    progress: Progress,
    vectors: KeptVectors | None = None,
) -> Rankings:
    """The ``depth`` documents with the highest scores for each query, by the model of ``settings``.

    Blank documents are not retrieved, nor, with ``exclude_own``, the document with the query's own id. The
    vectors of documents that ``vectors`` has saved are read instead of computed.
    """
    documents = {document: text for document, text in documents.items() if text}
    depth = min(settings.depth + settings.exclude_own, len(documents))
    rankings = searcher(settings, progress, vectors)(documents, list(queries.values()), depth)
    return _without_own(rankings, list(queries), settings.depth) if settings.exclude_own else rankings


def searcher(
    settings: EvaluateRetrievalSettings, progress: Progress, vectors: KeptVectors | None = None
) -> Search:
    """Load the model of ``settings``, and return a function that ranks documents with it."""
    if settings.model == BM25:
        return partial(by_bm25, language=settings.language, progress=progress)
    encoder = retrieval_encoder(settings)
    batch_size = settings.batch_size
    return partial(by_vectors, encoder, batch_size=batch_size, progress=progress, vectors=vectors)


def _without_own(rankings: Rankings, queries: Sequence[str], depth: int) -> Rankings:
    """The first ``depth`` documents of each ranking without the document that has the query's id."""
    numbers = {document: number for number, document in enumerate(rankings.documents)}
    own = np.array([numbers.get(query, len(numbers)) for query in queries])
    # A stable sort moves empty places (1) and the own document (2) to the end.
    last = np.where(rankings.places == own[:, None], 2, rankings.places < 0)
    order = last.argsort(axis=1, kind="stable")[:, :depth]
    removed = np.take_along_axis(last, order, axis=1) > 0
    places = np.where(removed, -1, np.take_along_axis(rankings.places, order, axis=1))
    scores = np.where(removed, -np.inf, np.take_along_axis(rankings.scores, order, axis=1))
    return Rankings(rankings.documents, places, scores.astype(np.float32))


def ranked_grades(rankings: Rankings, relevance: Sequence[Mapping[str, int]]) -> list[Grades]:
    """For each query, the grades of the retrieved documents by rank, ``(depth,)``; 0 if not judged."""
    numbers = {document: number for number, document in enumerate(rankings.documents)}
    by_query = []
    for places, judged in zip(rankings.places, relevance, strict=True):
        grades: Grades = np.zeros(len(places), np.int64)
        for document, grade in judged.items():
            if document in numbers:
                grades[places == numbers[document]] = grade
        by_query.append(grades)
    return by_query


# By vectors


EncoderSettings = EvaluateRetrievalSettings | SearchSettings
"""Settings that name an encoder, and that say how it is loaded."""


def kept_vectors(settings: EncoderSettings, folder: Place, revision: str) -> KeptVectors:
    """The document vectors in ``folder`` by ``retrieval_encoder``; ``revision`` is that of the encoder."""
    options = VectorOptions(
        batch_size=settings.batch_size,
        pooling=settings.pooling,
        prompt=settings.document_prompt,
        dimensions=settings.dimensions,
        **load_options(settings),
    )
    return KeptVectors.of(folder, revision, options)


def retrieval_encoder(settings: EncoderSettings) -> "SentenceTransformer":
    """Load the encoder of ``settings``, with their prompts and number of dimensions."""
    _refuse_other_kinds(settings.model)
    encoder = load_sentence_encoder(settings.model, pooling=settings.pooling, **load_options(settings))
    if encoder.similarity_fn_name not in ("cosine", "dot"):
        raise ModelError(
            f"model {settings.model}: its vectors are compared by {encoder.similarity_fn_name}; give an "
            "encoder whose vectors are compared by cosine or dot product"
        )
    for name, prompt in (("query", settings.query_prompt), ("document", settings.document_prompt)):
        if prompt is not None:
            encoder.prompts[name] = prompt
    if settings.dimensions is not None:
        width = encoder.get_embedding_dimension()
        if settings.dimensions > width:
            raise SettingsError(
                f"--dimensions {settings.dimensions}: the model's vectors have only {width}; give fewer"
            )
        encoder.truncate_dim = settings.dimensions
    return encoder


def _refuse_other_kinds(model: str) -> None:
    """Refuse a cross-encoder, a reader or a tagger, which loads as an encoder but has useless vectors."""
    folder = resolve_model(model)
    architectures = _json_in(folder, "config.json").get("architectures") or [""]
    config = _json_in(folder, "config_sentence_transformers.json")
    is_encoder = config and config.get("model_type") != "CrossEncoder"
    if not is_encoder and all(str(name).endswith(_OTHER_KINDS) for name in architectures):
        raise ModelError(
            f"model {model}: is a {architectures[0]}, which predicts scores or answers instead of vectors of "
            "texts; give a sentence encoder, such as train-retriever trains"
        )


def _json_in(folder: str, name: str) -> dict[str, Any]:
    """The JSON object in a file of a resolved model; empty if there is none, which loading reports."""
    file = file_of(folder, name)
    try:
        content = json.loads(file.read_bytes()) if file else {}
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def by_vectors(
    encoder: "SentenceTransformer",
    documents: Mapping[str, str],
    queries: Sequence[str],
    depth: int,
    *,
    batch_size: int,
    progress: Progress,
    vectors: KeptVectors | None = None,
) -> Rankings:
    """The ``depth`` documents most similar to each query, by the encoder's similarity: cosine or dot product.

    For ``vectors``, see ``document_vectors``.
    """
    best: list[Neighbours] = []
    encode = partial(encode_texts, encoder, batch_size=batch_size)
    if vectors:
        vectors.has_all(in_batches(list(documents.values()), BLOCK), progress.say)
    with progress.task("encode", len(queries) + len(documents), "texts") as bar:
        query_vectors = encode(queries, side="query", advance=bar.advance)
        x = torch.split(comparison_vectors(encoder, queries, "query", query_vectors), QUERIES_AT_ONCE)
        for numbers, y in document_vectors(encoder, documents, encode, bar.advance, vectors):
            best = [
                nearest_with(queries_x, y, numbers, previous, depth)
                for queries_x, previous in zip_longest(x, best)
            ]
    return Rankings(
        ranking_order(documents)[0],
        torch.cat([neighbours.ids for neighbours in best]).numpy(),
        torch.cat([neighbours.similarities for neighbours in best]).numpy(),
    )


def nearest_with(
    x: torch.Tensor, y: torch.Tensor, numbers: torch.Tensor, previous: Neighbours | None, depth: int
) -> Neighbours:
    """The ``depth`` nearest neighbours of each x among its ``previous`` neighbours and y.

    ``x`` is ``(n, d)`` and ``y`` ``(m, d)``, float32; ``numbers``, ``(m,)`` int64, are the ids of y,
    ascending. There are fewer neighbours if there are fewer than ``depth`` candidates.
    """
    neighbours = nearest(x, y, depth)
    neighbours = Neighbours(numbers[neighbours.ids], neighbours.similarities)
    return merged([previous, neighbours], depth) if previous else neighbours


def document_vectors(
    encoder: "SentenceTransformer",
    documents: Mapping[str, str],
    encode: Callable[..., Float32s],
    advance: Advance,
    kept: KeptVectors | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields the vectors of documents in parts of ``DOCUMENTS_AT_ONCE`` documents.

    Each part has the positions of its m documents in ``ranking_order``, ascending, ``(m,)`` int64, and their
    ``comparison_vectors``, ``(m, d)``. Documents are encoded in the order of ``documents``, so that ``kept``
    can have the blocks that another step encoded.

    Args:
        encoder: the encoder.
        documents: the texts by id.
        encode: ``encode_texts`` with this encoder.
        advance: called with the number of documents that have been encoded.
        kept: saved vectors; None to encode all documents.
    """
    texts, places = list(documents.values()), torch.from_numpy(ranking_order(documents)[1])
    encode = partial(encode, side="document")
    for start in range(0, len(texts), DOCUMENTS_AT_ONCE):
        part = slice(start, start + DOCUMENTS_AT_ONCE)
        blocks = [
            kept.vectors(block, encode, advance) if kept else encode(block, advance=advance)
            for block in in_batches(texts[part], BLOCK)
        ]
        numbers, order = places[part].sort()
        yield numbers, comparison_vectors(encoder, texts[part], "document", np.concatenate(blocks))[order]


def comparison_vectors(
    encoder: "SentenceTransformer", texts: Sequence[str], side: Side, vectors: Float32s
) -> torch.Tensor:
    """The encoder's ``vectors`` of texts, ``(n, d)`` float32, prepared for comparison by dot product.

    They have length 1 for queries, and for documents if the encoder's similarity is the cosine. Equal texts
    get exactly the same vector, so that their scores are equal.
    """
    if not np.isfinite(vectors).all():
        raise not_finite("the model gives vectors")
    compared = torch.from_numpy(vectors)
    # The length of a query's vector has no effect on the order of the documents.
    if side == "query" or encoder.similarity_fn_name == "cosine":
        compared = torch.nn.functional.normalize(compared, dim=1)
    first: dict[str, int] = {}
    return compared[[first.setdefault(text, place) for place, text in enumerate(texts)]]


# By BM25


def by_bm25(
    documents: Mapping[str, str],
    queries: Sequence[str],
    depth: int,
    *,
    language: Language,
    progress: Progress,
) -> Rankings:
    """The ``depth`` documents with the highest BM25 scores for each query, see ``WordIndex``.

    Only documents that share a word with the query are retrieved.
    """
    ids, _ = ranking_order(documents)
    with progress.task("search", len(queries), "queries") as bar:
        texts = [documents[name] for name in ids]
        if warning := language_warning(texts, language):
            progress.say(warning)
        index = WordIndex(texts, language)
        return Rankings(ids, *index.best(queries, depth, bar.advance))
