"""Queries, corpus and positives, encoded as ``mine`` does it, each into a dataset folder of its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.query_columns import PASSAGES
from pairsmith.data.schemas import rows_at
from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import products_with
from pairsmith.steps.corpora.corpus import ReadCorpus, encode_corpus
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.negatives.pairs import NO_POSITIVE, QueryPairs, corpus_keys, places_in
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.shared import naming_texts
from pairsmith.steps.vectors import VectorFile


def _columns(settings: NegativesSettings, *more: str | None) -> str | None:
    """The columns that are named, on which the texts depend; None where none is."""
    named = [settings.query_column, settings.positive_column, *more]
    return ", ".join(name or "" for name in named) if any(named) else None


def encode_queries(
    pairs: QueryPairs, settings: NegativesSettings, inputs: Mapping[str, str], revision: str, run: Run
) -> DatasetFolder:
    """Encode the distinct queries into ``run.out``."""
    sources, columns = [settings.pairs], _columns(settings)
    queries = ReadCorpus("inputs", sources, columns, None, inputs, title="queries", read=pairs.queries)
    return encode_corpus(queries, settings.encoding(), revision, run)


def encode_texts_of(
    corpus: Sequence[str], settings: NegativesSettings, inputs: Mapping[str, str], revision: str, run: Run
) -> DatasetFolder:
    """Encode the texts of the corpus, with their titles, into ``run.out``."""
    column = settings.corpus_column

    def read() -> Iterator[Document]:
        remedy = naming_texts("corpus_column")
        return chain.from_iterable(
            read_documents(source, column=column, prefer=PASSAGES, titles=True, remedy=remedy)
            for source in corpus
        )

    texts = ReadCorpus("outputs", corpus, column, None, inputs, title="the corpus", read=read)
    return encode_corpus(texts, settings.encoding(), revision, run)


def have_vector(folder: DatasetFolder, documents: Iterable[Document]) -> NDArray[np.bool_]:
    """Which of the distinct documents that were encoded have a vector in the folder, in their order."""
    ids = pa.chunked_array([pa.array([document.id for document in documents], pa.string())])
    held = [text_keys(table["id"]) for table in folder.shards("train", ["id"])]
    return np.isin(text_keys(ids), np.concatenate(held))


@dataclass(frozen=True)
class EncodedPositives:
    """The text and the vector of each row's positive: the corpus's where it is there, else its own.

    Attributes:
        pairs: the rows; those whose positive has no vector have that fault.
        passages: the texts of the corpus.
        place: ``(rows,)`` int64, the number of the positive in the corpus, or -1.
        other: ``(rows,)`` int64, the number of its own vector in ``vectors``, or -1.
        vectors: the vectors of positives that are not in the corpus; None where all are.
    """

    pairs: QueryPairs
    passages: CorpusTexts
    place: NDArray[np.int64]
    other: NDArray[np.int64]
    vectors: VectorFile | None

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """The positives of some rows."""
        in_corpus = self.place[rows] >= 0
        texts: list[str] = rows_at(self.pairs.table, rows)["positive"].to_pylist()
        held = self.passages.rows(self.place[rows][in_corpus].tolist()) if in_corpus.any() else []
        for at, passage in zip(np.flatnonzero(in_corpus).tolist(), held, strict=True):
            texts[at] = passage["text"]
        return texts

    def similarities(self, rows: NDArray[np.int64], queries: VectorFile, corpus: Encoded) -> Float32s:
        """The cosine of query and positive of some rows, as the search computes them, ``(len(rows),)``."""
        cosines = np.empty(len(rows), np.float32)
        in_corpus = self.place[rows] >= 0
        query_vectors = queries.every()
        sides = [(in_corpus, self.place, corpus.vectors.every())]
        if self.vectors:
            sides.append((~in_corpus, self.other, self.vectors.every()))
        for chosen, numbers, vectors in sides:
            if chosen.any():
                asking = query_vectors[torch.from_numpy(self.pairs.query[rows[chosen]])]
                of_rows = torch.from_numpy(numbers[rows[chosen]])[:, None]
                cosines[chosen] = products_with(asking, vectors, of_rows)[:, 0].numpy()
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
    """Encode the positives that are not in the corpus into ``run.out``, their vectors into ``file``."""
    other = np.full(len(place), -1, np.int64)
    lacking = pairs.good[place[pairs.good] < 0]
    if not len(lacking):
        return EncodedPositives(pairs, passages, place, other, None)
    _, first, of_row = np.unique(pairs.positive[lacking], return_index=True, return_inverse=True)
    order = first.argsort()
    read = partial(pairs.positives, lacking[first[order]])
    column = _columns(settings, settings.corpus_column)
    texts = ReadCorpus("outputs", [settings.pairs], column, None, inputs, title="positives", read=read)
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
        corpus: the vectors of the corpus's distinct texts, ``passages`` the texts.
        copies: their ``copy_keys``, ``(texts, 2)``.
        positives: the pairs, and the text and the vector of each one's positive.
        fingerprints: of the folders of queries and corpus, by name.
    """

    queries: VectorFile
    corpus: Encoded
    passages: CorpusTexts
    copies: TextKeys
    positives: EncodedPositives
    fingerprints: Mapping[str, str]

    @property
    def pairs(self) -> QueryPairs:
        """The rows that were read, with the faults that encoding found."""
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
    """Encode the queries, the corpus and the positives, with this revision of the encoder.

    ``inputs`` are the hashes of the pairs' source and of the corpus's. None for a rank of an array job, as
    what follows needs the vectors of all ranks.
    """
    of_pairs, of_corpus = inputs
    query_folder = encode_queries(pairs, settings, of_pairs, revision, run.part("queries"))
    corpus_folder = encode_texts_of(corpus, settings, of_corpus, revision, run.part("corpus"))
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
    return EncodedTexts(queries, texts, passages, copies, positives, fingerprints)
