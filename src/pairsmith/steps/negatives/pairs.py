"""The pairs and the corpus of ``negatives`` as numbers and keys, by which equal texts are recognised.

All texts, and the keys of the corpus, are in memory-mapped files. Memory holds some numbers for each pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.data.documents import Document
from pairsmith.data.filters import DUPLICATE, EMPTY, ZERO_VECTOR
from pairsmith.data.query_pairs import QueryPair
from pairsmith.data.schemas import rows_at, text_schema
from pairsmith.data.text_keys import TextKeys, copy_keys, keys_of_list
from pairsmith.methods.retrieval.negatives import places_of_copies, query_text_keys
from pairsmith.runs.storage import storage_errors
from pairsmith.steps.corpora.encoded import Encoded

PAIRS_AT_ONCE = 2**14
"""Number of pairs, and of texts of the corpus, that are held in memory at once."""
QUERY_PAIR = text_schema("query", "positive", "query_id", "where")
GOOD, BLANK_QUERY, BLANK_POSITIVE, REPEATED, NO_QUERY, NO_POSITIVE = range(6)
FAULTS = {
    BLANK_QUERY: (EMPTY, "the query is blank"),
    BLANK_POSITIVE: (EMPTY, "the positive is blank"),
    REPEATED: (DUPLICATE, "repeats an earlier pair"),
    NO_QUERY: (ZERO_VECTOR, "the encoder's vector of the query is zero"),
    NO_POSITIVE: (ZERO_VECTOR, "the encoder's vector of the positive is zero"),
}
"""The filter and the reason of the reject for a row that is not a pair, by its fault."""


@dataclass(frozen=True)
class QueryPairs:
    """The rows that were read, with the number of each row's query and keys of its positive.

    Attributes:
        table: the rows as ``QUERY_PAIR``, mapped from a file.
        fault: ``(rows,)`` uint8: ``GOOD``, or the reason why a row is not a pair (see ``FAULTS``).
        query: ``(rows,)`` int64, the number of each row's query among the distinct queries, numbered in the
            order in which they appear; -1 for rows that are not pairs, unless only the vector of their
            positive is missing.
        first: ``(queries,)`` int64, the first row of each query.
        positive: ``(rows,)`` uint64, a key of each row's positive with its title.
        copy: ``(rows,)`` uint64, the first of the ``copy_keys`` of the positive without its title.
        rest: ``(rows,)`` uint64, the second of the same ``copy_keys``.
        whole: ``(rows,)`` uint64, the first of the ``copy_keys`` of the positive with its title.
        query_keys: ``(queries, 2)`` uint64, the ``copy_keys`` of each query.
    """

    table: pa.Table
    fault: NDArray[np.uint8]
    query: NDArray[np.int64]
    first: NDArray[np.int64]
    positive: TextKeys
    copy: TextKeys
    rest: TextKeys
    whole: TextKeys
    query_keys: TextKeys

    @property
    def good(self) -> NDArray[np.int64]:
        """The numbers of the rows that are pairs, ascending."""
        return np.flatnonzero(self.fault == GOOD)

    def queries(self) -> Iterator[Document]:
        """The distinct queries, in the order of their numbers."""
        return self._documents("query", self.first)

    def positives(self, rows: NDArray[np.int64]) -> Iterator[Document]:
        """The positives of these rows, as they were read."""
        return self._documents("positive", rows)

    def _documents(self, name: str, rows: NDArray[np.int64]) -> Iterator[Document]:
        for batch in in_batches(rows, PAIRS_AT_ONCE):
            for row in rows_at(self.table, batch).to_pylist():
                yield Document(row[name], row["where"])

    def forbidden(self) -> TextKeys:
        """The ``query_text_keys`` of texts that are no negatives of a query, sorted and distinct.

        These are the query's positives, with and without their titles, and the query itself.
        """
        rows = np.flatnonzero(self.query >= 0)
        queries = np.arange(len(self.first))
        parts = [query_text_keys(self.query[rows], keys[rows]) for keys in (self.copy, self.rest, self.whole)]
        parts += [query_text_keys(queries, keys) for keys in self.query_keys.T]
        return np.unique(np.concatenate(parts))

    def without(self, fault: int, rows: NDArray[np.bool_]) -> Self:
        """The same rows; rows that ``rows``, ``(rows,)`` bool, selects get this fault if they are pairs."""
        return replace(self, fault=np.where(rows & (self.fault == GOOD), np.uint8(fault), self.fault))

    def with_queries(self, kept: NDArray[np.bool_]) -> Self:
        """The same rows with only the queries that are ``kept``, ``(queries,)`` bool, renumbered from 0."""
        new_numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        query = np.where(self.query >= 0, new_numbers[self.query], -1)
        remaining = self.without(NO_QUERY, query < 0)
        return replace(remaining, query=query, first=self.first[kept], query_keys=self.query_keys[kept])


def collect_pairs(stream: Iterator[QueryPair], file: Path, source: str) -> QueryPairs:
    """Read all pairs from ``stream``, and write their texts to ``file``.

    ``source`` is the name of the pairs for messages.
    """
    keys_of_parts: list[dict[str, TextKeys]] = []
    faults: list[NDArray[np.uint8]] = []
    with storage_errors(file), pa.ipc.new_file(str(file), QUERY_PAIR) as out:
        while rows := list(islice(stream, PAIRS_AT_ONCE)):
            queries, positives = [row.query for row in rows], [row.whole for row in rows]
            ids, places = [row.query_id for row in rows], [row.where for row in rows]
            out.write_table(pa.table([queries, positives, ids, places], schema=QUERY_PAIR))
            copy, rest = copy_keys([row.positive for row in rows])
            whole, _ = copy_keys(positives)
            keys_of_parts.append(
                {
                    "query": keys_of_list(queries),
                    "id": keys_of_list(ids),
                    "query copies": np.stack(copy_keys(queries), axis=1),
                    "positive": keys_of_list(positives),
                    "copy": copy,
                    "rest": rest,
                    "whole": whole,
                }
            )
            faults.append(np.array([_fault(row) for row in rows], np.uint8))
    if not keys_of_parts:
        raise InputError(f"{source} holds no pairs")
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    keys = {name: np.concatenate([part[name] for part in keys_of_parts]) for name in keys_of_parts[0]}
    fault = np.concatenate(faults)
    good = np.flatnonzero(fault == GOOD)
    if not len(good):
        raise InputError(f"{source}: a query or a positive is blank in each of its {len(fault):,} rows")
    of_pairs = query_text_keys(keys["query"][good], keys["positive"][good])
    fault[np.delete(good, np.unique(of_pairs, return_index=True)[1])] = REPEATED
    good = np.flatnonzero(fault == GOOD)
    _refuse_shared_ids(table, good, keys["id"], keys["query"], source)
    # Number the distinct queries in the order in which they appear.
    _, first, of_row = np.unique(keys["query"][good], return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[first.argsort()] = np.arange(len(first))
    query = np.full(len(fault), -1, np.int64)
    query[good] = number[of_row]
    first = good[np.sort(first)]
    positive, copy, rest, whole = (keys[name] for name in ("positive", "copy", "rest", "whole"))
    return QueryPairs(table, fault, query, first, positive, copy, rest, whole, keys["query copies"][first])


def _fault(row: QueryPair) -> int:
    """``GOOD``, or the reason why a row is not a pair."""
    if not row.query:
        return BLANK_QUERY
    return GOOD if row.positive else BLANK_POSITIVE


def _refuse_shared_ids(
    table: pa.Table, good: NDArray[np.int64], ids: TextKeys, texts: TextKeys, source: str
) -> None:
    """Refuse different queries with the same id: the positives of one could become negatives of the other."""
    with_id = good[ids[good] != keys_of_list([""])[0]]
    order = with_id[np.lexsort([texts[with_id], ids[with_id]])]
    wrong = np.flatnonzero((ids[order][1:] == ids[order][:-1]) & (texts[order][1:] != texts[order][:-1]))
    if len(wrong):
        one, other = rows_at(table, np.sort(order[wrong[0] : wrong[0] + 2])).to_pylist()
        raise InputError(
            f"{source}: different queries have the id {one['query_id']!r} "
            f"({one['where']}, {other['where']}); give each an id of its own, or drop the column"
        )


def corpus_keys(corpus: Encoded, file: Path) -> TextKeys:
    """The ``copy_keys`` of each text of the corpus, ``(texts, 2)`` uint64, mapped from ``file``."""
    with storage_errors(file), file.open("wb") as out:
        for table in corpus.texts():
            for batch in table.select(["text"]).to_batches(max_chunksize=PAIRS_AT_ONCE):
                out.write(np.stack(copy_keys(batch["text"].to_pylist()), axis=1).tobytes())
    return np.memmap(file, np.uint64, "r", shape=(len(corpus), 2))


def places_in(corpus: TextKeys, pairs: QueryPairs) -> NDArray[np.int64]:
    """The number of each row's positive in the corpus, ``(rows,)`` int64; -1 if the corpus lacks it.

    A text of the corpus that is the positive with its title is preferred, then a text that is the positive
    alone, then a text that is a first line and the positive. Of several such texts, the first one is taken.
    ``corpus``, ``(texts, 2)`` uint64, has the ``copy_keys`` of the texts.
    """
    places = places_of_copies(corpus, ((pairs.whole, 0), (pairs.copy, 0), (pairs.copy, 1)))
    places[pairs.fault != GOOD] = -1
    return places
