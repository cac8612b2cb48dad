"""The count of false negatives: chosen negatives that are positives according to complete labels."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.data.query_pairs import QueryPair
from pairsmith.data.text_keys import TextKeys, copy_keys
from pairsmith.methods.retrieval.negatives import are_in, query_text_keys
from pairsmith.steps.negatives.pairs import QueryPairs
from pairsmith.steps.retrieval.vectors import places_of


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

    def count_false_negatives(
        self, queries: NDArray[np.int64], ids: NDArray[np.int64], copies: TextKeys
    ) -> tuple[int, int]:
        """Count the texts of labelled queries, and how many of these are labelled as positives.

        Queries that are not labelled are not counted.

        Args:
            queries: ``(n,)`` int64, the numbers of queries.
            ids: ``(n, c)`` int64, the numbers in the corpus of up to c texts of each query, then -1.
            copies: ``(texts, 2)`` uint64, the ``copy_keys`` of the texts of the corpus.
        """
        rows, columns = ((ids >= 0) & self.queries[queries][:, None]).nonzero()
        keys = copies[ids[rows, columns]]
        are_positives = np.zeros(len(rows), bool)
        for column in (0, 1):
            are_positives |= are_in(query_text_keys(queries[rows], keys[:, column]), self.positives)
        return len(rows), int(are_positives.sum())
