"""The texts that ``filter-queries`` compares: chunks, queries of an evaluation, and the vectors of all texts.

Texts are looked up by their keys (``keys_of``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import Document
from pairsmith.data.query_columns import QUERIES_ALONE
from pairsmith.data.readers import column_text, with_names
from pairsmith.data.sources import open_source
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import TextKeys, text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.storage import mapped_table
from pairsmith.steps.retrieval.generated_queries import (
    WrittenQueries,
    are_first,
    distinct_documents,
    keys_of,
)
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.shared import naming_texts
from pairsmith.steps.vectors import VectorFile, some_rows

_AT_ONCE = 10_000
"""Number of chunks that are held in memory at once."""
_TEXT: pa.Schema = pa.schema([("text", pa.string())])


@dataclass(frozen=True, slots=True)
class ChunkTexts:
    """The n chunks of a corpus, by the keys of their ids and texts.

    Attributes:
        settings: the settings of ``filter-queries``, which name the corpus.
        ids: ``(n,)`` uint64, the key of each chunk's id.
        texts: ``(n,)`` uint64, the key of each chunk's text without its title.
        wholes: ``(n,)`` uint64, the key of each chunk's text with its title, which is encoded.
    """

    settings: FilterQueriesSettings
    ids: TextKeys
    texts: TextKeys
    wholes: TextKeys

    @classmethod
    def of(cls, settings: FilterQueriesSettings) -> Self:
        """Read the corpus once; 24 bytes of memory are held for each chunk."""
        columns: list[list[TextKeys]] = [[], [], []]
        rows = _chunks(settings)
        while batch := list(islice(rows, _AT_ONCE)):
            values = ([row.id for row in batch], [row.text for row in batch], [row.whole for row in batch])
            for keys, column in zip(columns, values, strict=True):
                keys.append(keys_of(column))
        if not columns[0]:
            raise InputError(f"{', '.join(settings.corpus)}: the corpus holds no texts")
        ids, texts, wholes = (np.concatenate(keys) for keys in columns)
        order = np.argsort(ids, kind="stable")
        conflicts = (np.diff(ids[order]) == 0) & (np.diff(wholes[order]) != 0)
        if conflicts.any():
            place = int(order[1:][conflicts][0])
            row = next(islice(_chunks(settings), place, None))
            raise InputError(
                f"{row.where}: another chunk of {', '.join(settings.corpus)} has the id {row.id!r}, too; "
                "give each chunk an id of its own"
            )
        return cls(settings, ids, texts, wholes)

    def documents(self) -> Iterator[Document]:
        """Yield the chunks with their titles."""
        for row in _chunks(self.settings):
            yield Document(row.whole, row.where)

    def of_chunks(self, written: WrittenQueries) -> TextKeys:
        """The key of the encoded text of each query's own chunk, ``(queries,)`` uint64.

        The chunk is looked up by its id or, if that is not in the corpus, by its text. The key is 0 if the
        corpus lacks the chunk.
        """
        at = places_of(keys_of(written.positives()), self.texts)
        if (chunks := written.chunks()) is not None:
            by_id = places_of(keys_of(chunks), self.ids)
            at = np.where(by_id >= 0, by_id, at)
        return np.where(at >= 0, self.wholes[at], np.uint64(0))


def _chunks(settings: FilterQueriesSettings) -> Iterator[Document]:
    return chain.from_iterable(
        read_passages(in_beir(source, "corpus.jsonl"), settings.corpus_column, naming_texts("corpus_column"))
        for source in settings.corpus
    )


@dataclass(frozen=True)
class EvaluationQueries:
    """The queries of an evaluation, read from ``sources``; they may be empty."""

    texts: Sequence[str]
    sources: Sequence[str]

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.texts)

    @cached_property
    def names(self) -> TextKeys:
        """A key of each query that ignores case, spaces and punctuation, as in ``WrittenQueries``."""
        return keys_of(map(folded, self.texts))

    def distinct(self) -> Iterator[Document]:
        """Yield the distinct queries."""
        return distinct_documents(lambda: self.texts, keys_of(self.texts), "the evaluation")


def read_evaluation(settings: FilterQueriesSettings) -> EvaluationQueries:
    """Read the queries of the evaluation, on which no model may be trained."""
    column = settings.evaluation_column
    sources = [in_beir(source, "queries.jsonl") for source in settings.evaluation]
    texts = []
    for source in sources:
        opened = open_source(source)
        rows = with_names(
            opened, [column] if column else QUERIES_ALONE, remedy=naming_texts("evaluation_column")
        )
        queries = [text for where, row, (name,) in rows if (text := column_text(row, name, where))]
        if not queries:
            raise InputError(f"{opened.name} holds no queries")
        texts += queries
    return EvaluationQueries(texts, sources)


@dataclass(frozen=True, slots=True)
class KeyedVectors:
    """The vectors of n distinct texts, numbered from 0.

    Attributes:
        keys: ``(n,)`` uint64, the key of each text.
        vectors: the vectors, in a file.
        distinct: ``(rows,)`` bool, whether a row of the folder is the first one with its text.
    """

    keys: TextKeys
    vectors: VectorFile
    distinct: NDArray[np.bool_]

    @classmethod
    def of(cls, folder: DatasetFolder, file: Path) -> Self:
        """Collect the vectors of a folder's distinct texts, and write them to ``file``."""
        keys_of_shards = (text_keys(table["id"]) for table in folder.shards("train", ["id"]))
        keys = np.concatenate([np.zeros(0, np.uint64), *keys_of_shards])
        first = are_first(keys)
        return cls(keys[first], VectorFile.write(folder, file, first), first)

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self.keys)

    def numbers(self, keys: TextKeys) -> NDArray[np.int64]:
        """The number of the text with each of k keys, ``(k,)`` int64; -1 if no text has this key."""
        return places_of(keys, self.keys)

    def texts(self, numbers: NDArray[np.int64], file: Path) -> pa.Table:
        """The texts with these ascending numbers, in a column ``text``, mapped from a new ``file``."""
        selected = np.zeros(len(self.distinct), bool)
        selected[np.flatnonzero(self.distinct)[numbers]] = True
        return mapped_table(
            (table for _, table in some_rows(self.vectors.folder, selected, ["text"])), _TEXT, file
        )


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """n rows of queries, with the vectors of the queries and of the chunks that they were written for.

    Attributes:
        written: the rows.
        sides: the vectors of the distinct ``queries``, of the distinct chunks of the ``corpus`` and, if there
            are any, of the queries of the ``evaluation``.
        query: ``(n,)`` int64, the number of each row's query among ``queries``; -1 if it has no vector.
        own: ``(n,)`` int64, the number of the row's own chunk in the ``corpus``; -1 if it has no vector.
        chunk: ``(n,)`` uint64, the key of the text of the row's own chunk.
    """

    written: WrittenQueries
    sides: Mapping[str, KeyedVectors]
    query: NDArray[np.int64]
    own: NDArray[np.int64]
    chunk: TextKeys

    @classmethod
    def of(cls, written: WrittenQueries, texts: ChunkTexts, sides: Mapping[str, KeyedVectors]) -> Self:
        """Look up the vectors; an ``InputError`` is raised if no row has its chunk in the corpus."""
        chunk = texts.of_chunks(written)
        own = sides["corpus"].numbers(chunk)
        if (own < 0).all():
            raise InputError(
                f"{texts.settings.queries}: none of the texts that its queries were written for is in "
                f"{', '.join(texts.settings.corpus)}; give the folder of the chunks that they were written "
                "for"
            )
        return cls(written, sides, sides["queries"].numbers(written.keys), own, chunk)

    def vectors(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """The vectors of the queries of these rows, ``(k, width)``; each of them has one."""
        return self.sides["queries"].vectors.tensor()[torch.from_numpy(self.query[rows])]

    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the folders of vectors, by side."""
        return {name: side.vectors.folder.manifest.fingerprint for name, side in self.sides.items()}


def places_of(keys: TextKeys, all_keys: TextKeys) -> NDArray[np.int64]:
    """The first position of each of k keys in ``all_keys``, ``(k,)`` int64; -1 if it is not there."""
    if not len(all_keys):
        return np.full(len(keys), -1, np.int64)
    distinct, first = np.unique(all_keys, return_index=True)
    at = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return np.where(distinct[at] == keys, first[at], -1).astype(np.int64)
