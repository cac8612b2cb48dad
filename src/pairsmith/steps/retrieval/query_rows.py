"""What ``filter-queries`` reads besides queries: the chunks that they are searched in, and an evaluation."""

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
"""Chunks that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class ChunkTexts:
    """The chunks of a corpus as they are encoded, with their titles.

    ``ids`` are the keys of their ids, ``texts`` those of their texts without titles, and ``wholes`` those of
    what is encoded, each ``(n,)``.
    """

    settings: FilterQueriesSettings
    ids: TextKeys
    texts: TextKeys
    wholes: TextKeys

    @classmethod
    def of(cls, settings: FilterQueriesSettings) -> Self:
        """Read the corpus once; 24 bytes are held for each chunk."""
        columns: list[list[TextKeys]] = [[], [], []]
        rows = _chunks(settings)
        while some := list(islice(rows, _AT_ONCE)):
            sides = ([row.id for row in some], [row.text for row in some], [row.whole for row in some])
            for keys, side in zip(columns, sides, strict=True):
                keys.append(keys_of(side))
        if not columns[0]:
            raise InputError(f"{', '.join(settings.corpus)}: the corpus holds no texts")
        ids, texts, wholes = (np.concatenate(keys) for keys in columns)
        order = np.argsort(ids, kind="stable")
        again = (np.diff(ids[order]) == 0) & (np.diff(wholes[order]) != 0)
        if again.any():
            place = int(order[1:][again][0])
            row = next(islice(_chunks(settings), place, None))
            raise InputError(
                f"{row.where}: another chunk of {', '.join(settings.corpus)} has the id {row.id!r}, too; "
                "each has to have an id of its own"
            )
        return cls(settings, ids, texts, wholes)

    def documents(self) -> Iterator[Document]:
        """The chunks with their titles, one at a time."""
        for row in _chunks(self.settings):
            yield Document(row.whole, row.where)

    def of_chunks(self, written: WrittenQueries) -> TextKeys:
        """The key of what is encoded of each query's own chunk, ``(n,)``; 0 where that is not in the corpus.

        It is looked up by its id, if there is one, and else by its text.
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
class Evaluation:
    """The queries of an evaluation, from ``sources``; there may be none."""

    texts: Sequence[str]
    sources: Sequence[str]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.texts)

    @cached_property
    def names(self) -> TextKeys:
        """A number for each that is the same for copies, as of ``WrittenQueries``."""
        return keys_of(map(folded, self.texts))

    def distinct(self) -> Iterator[Document]:
        """Each query once."""
        return distinct_documents(lambda: self.texts, keys_of(self.texts), "the evaluation")


def read_evaluation(settings: FilterQueriesSettings) -> Evaluation:
    """Read the queries that nothing may be trained on."""
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
    return Evaluation(texts, sources)
