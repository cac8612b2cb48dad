"""Counts negatives that are positives after all, on queries whose positives are all known."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.data.query_pairs import QueryPair
from pairsmith.data.text_keys import TextKeys, copy_keys
from pairsmith.methods.retrieval.negatives import are_in, query_text_keys
from pairsmith.steps.negatives.pairs import QueryPairs


@dataclass(frozen=True, slots=True)
class LabelledQueries:
    """Queries of the pairs whose positives are all known.

    ``queries`` is ``(queries,)`` bool; ``positives`` are their numbers with the keys of their positives
    (``query_text_keys``), sorted.
    """

    queries: NDArray[np.bool_]
    positives: TextKeys

    @classmethod
    def of(cls, stream: Iterable[QueryPair], pairs: QueryPairs, source: str) -> "LabelledQueries":
        """Read labelled pairs; those of other queries are left out."""
        rows = [(row.query, row.positive) for row in stream if row.query and row.positive]
        query_keys, _ = copy_keys([query for query, _ in rows])
        order = pairs.query_keys[:, 0].argsort(kind="stable")
        known = pairs.query_keys[order, 0]
        at = np.minimum(np.searchsorted(known, query_keys), len(known) - 1)
        there = known[at] == query_keys
        if not there.any():
            raise InputError(
                f"{source}: none of its {len(rows):,} pairs has a query of the pairs that get negatives"
            )
        number = order[at[there]]
        positive_keys, _ = copy_keys(
            [positive for (_, positive), hit in zip(rows, there, strict=True) if hit]
        )
        queries = np.zeros(len(known), bool)
        queries[number] = True
        return cls(queries, np.unique(query_text_keys(number, positive_keys)))

    def count_false_negatives(
        self, queries: NDArray[np.int64], ids: NDArray[np.int64], copies: TextKeys
    ) -> tuple[int, int]:
        """Two counts over the labelled ones among ``queries``: their texts, and those labelled as positives.

        Args:
            queries: ``(n,)`` int64, the numbers of queries.
            ids: ``(n, c)`` int64, the numbers in the corpus of each query's texts, and -1 for none.
            copies: ``(texts, 2)`` uint64, the ``copy_keys`` of the corpus.
        """
        asking, places = ((ids >= 0) & self.queries[queries][:, None]).nonzero()
        keys = copies[ids[asking, places]]
        hits = np.zeros(len(asking), bool)
        for column in (0, 1):
            hits |= are_in(query_text_keys(queries[asking], keys[:, column]), self.positives)
        return len(asking), int(hits.sum())
