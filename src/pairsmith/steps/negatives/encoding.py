"""Encoding of the queries, the corpus and the positives, each into a dataset folder of its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import Document
from pairsmith.data.readers import at_least_one
from pairsmith.data.schemas import rows_at
from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import products_with
from pairsmith.steps.corpora.corpus import Corpus, encode_corpus
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.negatives.pairs import NO_POSITIVE, QueryPairs, corpus_keys, places_in
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.shared import naming_texts
from pairsmith.steps.vectors import VectorFile


def _columns(settings: NegativesSettings, *more: str | None) -> str | None:
    """The names of the columns that the settings give, which decide the texts; None without any."""
    names = [settings.query_column, settings.positive_column, *more]
    return ", ".join(name or "" for name in names) if any(names) else None


def _documents(corpus: Sequence[str], settings: NegativesSettings) -> Iterator[Document]:
    """The texts of the corpus with their titles."""
    for source in corpus:
        passages = read_passages(source, settings.corpus_column, naming_texts("corpus_column"))
        for passage in at_least_one(passages, f"{source} holds no documents"):
            yield Document(passage.whole, passage.where)


def have_vector(folder: DatasetFolder, documents: Iterable[Document]) -> NDArray[np.bool_]:
    """Whether each of n distinct documents has a vector in the folder, ``(n,)`` bool.

    ``documents`` are all documents that were encoded; the folder leaves out documents with zero vectors.
    """
    ids = pa.chunked_array([pa.array([document.id for document in documents], pa.string())])
    encoded = [text_keys(table["id"]) for table in folder.shards("train", ["id"])]
    return np.isin(text_keys(ids), np.concatenate(encoded))


@dataclass(frozen=True)
class EncodedPositives:
    """The text and the vector of each row's positive.

    If the corpus contains the positive, both are taken from the corpus; else the positive itself is encoded.

    Attributes:
        pairs: the rows; a row whose positive has no vector has the fault ``NO_POSITIVE``.
        passages: the texts of the corpus.
        place: ``(rows,)`` int64, the number of the positive in the corpus; -1 if the corpus lacks it.
        other: ``(rows,)`` int64, the number of the positive in ``vectors``; -1 if it is not there.
        vectors: the vectors of the positives that the corpus lacks; None if it has all of them.
    """

    pairs: QueryPairs
    passages: CorpusTexts
    place: NDArray[np.int64]
    other: NDArray[np.int64]
    vectors: VectorFile | None

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """The texts of the positives of these rows."""
        in_corpus = self.place[rows] >= 0
        texts: list[str] = rows_at(self.pairs.table, rows)["positive"].to_pylist()
        passages = self.passages.rows(self.place[rows][in_corpus].tolist()) if in_corpus.any() else []
        for at, passage in zip(np.flatnonzero(in_corpus).tolist(), passages, strict=True):
            texts[at] = passage["text"]
        return texts

    def similarities(self, rows: NDArray[np.int64], queries: VectorFile, corpus: Encoded) -> Float32s:
        """The cosine of query and positive of these n rows, ``(n,)`` float32, rounded as in the search."""
        cosines = np.empty(len(rows), np.float32)
        in_corpus = self.place[rows] >= 0
        query_vectors = queries.tensor()
        sides = [(in_corpus, self.place, corpus.vectors.tensor())]
        if self.vectors:
            sides.append((~in_corpus, self.other, self.vectors.tensor()))
        for chosen, numbers, vectors in sides:
            if chosen.any():
                queries_of_rows = query_vectors[torch.from_numpy(self.pairs.query[rows[chosen]])]
                positives = torch.from_numpy(numbers[rows[chosen]])[:, None]
                cosines[chosen] = products_with(queries_of_rows, vectors, positives)[:, 0].numpy()
        return cosines


def encode_positives(
    pairs: QueryPairs,
    place: NDArray[np.int64],
    passages: CorpusTexts,
    settings: NegativesSettings,
    inputs: Mapping[str, str],
    revision: str,
    run: Run,
    file: Path,
) -> EncodedPositives:
    """Encode the positives that the corpus lacks into ``run.out``, and write their vectors to ``file``.

    ``place``, ``(rows,)`` int64, is the number of each row's positive in the corpus, or -1.
    """
    other = np.full(len(place), -1, np.int64)
    lacking = pairs.good[place[pairs.good] < 0]
    if not len(lacking):
        return EncodedPositives(pairs, passages, place, other, None)
    _, first, of_row = np.unique(pairs.positive[lacking], return_index=True, return_inverse=True)
    order = first.argsort()
    read = partial(pairs.positives, lacking[first[order]])
    column = _columns(settings, settings.corpus_column)
    texts = Corpus("outputs", "positives", read, [settings.pairs], column, inputs)
    folder = encode_corpus(texts, settings.encoding(), revision, run)
    has_vector = have_vector(folder, read())
    number = np.empty(len(first), np.int64)
    number[order] = np.where(has_vector, np.cumsum(has_vector) - 1, -1)
    other[lacking] = number[of_row]
    pairs = pairs.without(NO_POSITIVE, (place < 0) & (other < 0))
    return EncodedPositives(pairs, passages, place, other, VectorFile.write(folder, file))


@dataclass(frozen=True)
class EncodedTexts:
    """The queries, the corpus and the positives as vectors.

    Attributes:
        queries: the vectors of the distinct queries.
        corpus: the vectors of the distinct texts of the corpus.
        copies: the ``copy_keys`` of these texts, ``(texts, 2)`` uint64.
        positives: the pairs, the text and the vector of each pair's positive, and the texts of the corpus.
        fingerprints: the fingerprints of the folders ``queries`` and ``corpus``, by name.
    """

    queries: VectorFile
    corpus: Encoded
    copies: TextKeys
    positives: EncodedPositives
    fingerprints: Mapping[str, str]

    @property
    def pairs(self) -> QueryPairs:
        """The rows that were read; those without a vector have the fault ``NO_QUERY`` or ``NO_POSITIVE``."""
        return self.positives.pairs


def encode_all(
    pairs: QueryPairs,
    corpus: Sequence[str],
    inputs: tuple[Mapping[str, str], Mapping[str, str]],
    settings: NegativesSettings,
    revision: str,
    scratch: ScratchFiles,
    run: Run,
) -> EncodedTexts | None:
    """Encode the queries, the corpus and the positives; ``revision`` is that of the encoder.

    ``inputs`` are the hashes of the source of the pairs, and the hashes of the sources of the corpus. The
    result is None for a rank of an array job, as the next stages need the vectors of all ranks.
    """
    of_pairs, of_corpus = inputs
    read = partial(_documents, corpus, settings)
    sides = {
        "queries": Corpus("inputs", "queries", pairs.queries, [settings.pairs], _columns(settings), of_pairs),
        "corpus": Corpus("outputs", "the corpus", read, corpus, settings.corpus_column, of_corpus),
    }
    query_folder, corpus_folder = (
        encode_corpus(texts, settings.encoding(), revision, run.part(name)) for name, texts in sides.items()
    )
    if run.rank is not None:
        return None
    pairs = pairs.with_queries(have_vector(query_folder, pairs.queries()))
    queries = VectorFile.write(query_folder, scratch("queries"))
    texts = Encoded.of(corpus_folder, scratch("corpus"))
    passages = CorpusTexts(texts.texts(), scratch("texts"))
    copies = corpus_keys(texts, scratch("keys"))
    positives = encode_positives(
        pairs,
        places_in(copies, pairs),
        passages,
        settings,
        {**of_pairs, **of_corpus},
        revision,
        run.part("positives"),
        scratch("positives"),
    )
    fingerprints = {folder.path.name: folder.manifest.fingerprint for folder in (query_folder, corpus_folder)}
    return EncodedTexts(queries, texts, copies, positives, fingerprints)
