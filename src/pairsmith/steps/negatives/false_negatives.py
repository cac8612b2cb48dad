"""The count of false negatives: chosen negatives that are positives according to complete labels."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.data.query_pairs import QueryPair
from pairsmith.data.text_keys import TextKeys, copy_keys
from pairsmith.methods.retrieval.negatives import are_in, query_text_keys
from pairsmith.steps.negatives.pairs import PAIRS_AT_ONCE, QueryPairs
from pairsmith.steps.retrieval.compared_texts import places_of
from pairsmith.steps.search_parts import NeighbourFile, ids_of_stored


@dataclass(frozen=True, slots=True)
class LabelledQueries:
    """The queries of the pairs for which all positives are labelled.

    Attributes:
        queries: ``(queries,)`` bool, whether each query of the pairs is labelled.
        positives: the ``query_text_keys`` of the labelled queries with their positives, sorted.
    """

    queries: NDArray[np.bool_]
    positives: TextKeys

    @classmethod
    def of(cls, stream: Iterable[QueryPair], pairs: QueryPairs, source: str) -> "LabelledQueries":
        """Read labelled pairs; those whose query is not a query of ``pairs`` are left out."""
        rows = [(row.query, row.positive) for row in stream if row.query and row.positive]
        query_keys, _ = copy_keys([query for query, _ in rows])
        number = places_of(query_keys, pairs.query_keys[:, 0])
        matches = number >= 0
        if not matches.any():
            raise InputError(
                f"--labelled {source}: none of its {len(rows):,} pairs has a query of --pairs; give labels "
                "for the same queries"
            )
        number = number[matches]
        positive_keys, _ = copy_keys(
            [positive for (_, positive), match in zip(rows, matches, strict=True) if match]
        )
        queries = np.zeros(len(pairs.first), bool)
        queries[number] = True
        return cls(queries, np.unique(query_text_keys(number, positive_keys)))

    def false_negatives(
        self, pairs: QueryPairs, candidates: NeighbourFile, chosen: NeighbourFile, copies: TextKeys
    ) -> str:
        """A sentence on how many negatives and candidates of the labelled queries are labelled as positives.

        Args:
            pairs: the pairs, with the number of each row's query.
            candidates: the candidates of each query, by their numbers in the corpus.
            chosen: the negatives of each row, likewise.
            copies: ``(texts, 2)`` uint64, the ``copy_keys`` of the texts of the corpus.
        """
        labelled = np.flatnonzero(self.queries)
        totals = np.zeros((2, 2), np.int64)
        for rows in in_batches(pairs.good[self.queries[pairs.query[pairs.good]]], PAIRS_AT_ONCE):
            totals[0] += self._count(pairs.query[rows], ids_of_stored(chosen.ids[rows]), copies)
            chosen.release()
        for queries in in_batches(labelled, PAIRS_AT_ONCE):
            totals[1] += self._count(queries, ids_of_stored(candidates.ids[queries]), copies)
            candidates.release()
        shares = [f"{false:,} of {count:,} ({false / max(1, count):.1%})" for count, false in totals.tolist()]
        return (
            f"labelled as positives, for {len(labelled):,} labelled queries: {shares[0]} of the negatives, "
            f"and {shares[1]} of all texts at these ranks"
        )

    def _count(self, queries: NDArray[np.int64], ids: NDArray[np.int64], copies: TextKeys) -> tuple[int, int]:
        """Count the texts of n labelled ``queries``, and how many of these are labelled as positives.

        ``ids``, ``(n, c)`` int64, are the numbers in the corpus of up to c texts of each query, then -1.
        """
        rows, columns = (ids >= 0).nonzero()
        keys = copies[ids[rows, columns]]
        are_positives = np.zeros(len(rows), bool)
        for column in (0, 1):
            are_positives |= are_in(query_text_keys(queries[rows], keys[:, column]), self.positives)
        return len(rows), int(are_positives.sum())
