"""The chunks and the queries of an evaluation that ``filter-queries`` reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Self

import numpy as np

from pairsmith.core.errors import InputError
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import Document
from pairsmith.data.query_columns import QUERIES_ALONE
from pairsmith.data.readers import column_text, with_names
from pairsmith.data.sources import open_source
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import TextKeys
from pairsmith.steps.retrieval.generated_queries import WrittenQueries, distinct_documents, keys_of
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.vectors import places_of
from pairsmith.steps.shared import naming_texts

_AT_ONCE = 10_000
"""Number of chunks that are held in memory at once."""


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
