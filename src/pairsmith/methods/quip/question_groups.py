"""Questions on the same passage, put together so that a model that learns them reads the passage once."""

from array import array
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pairsmith.runs.seeds import generator, stream_key

_PASSAGES = 256
"""Number of passages, those needed last, whose questions' order is held."""


class QuestionGroups:
    """Questions in groups of up to ``most`` on the same passage, nearly all equally large.

    Each pass over the questions puts others together. Memory holds a few numbers for each question.
    """

    def __init__(self, passages: Iterable[str], most: int, seed: int) -> None:
        """``passages`` are those of the questions, in order; those that are equal need not be adjacent."""
        keys = np.array(array("Q", map(stream_key, passages)), np.uint64)
        _, passage, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        self._order = np.argsort(passage, kind="stable")
        self._ends = np.cumsum(sizes)
        self._counts = -(-sizes // most)  # groups of each passage
        self._passage_of = np.repeat(np.arange(len(sizes)), self._counts)
        self._first = np.cumsum(self._counts) - self._counts
        self._seed = seed
        self._shuffled = lru_cache(_PASSAGES)(self._shuffle)

    def __len__(self) -> int:
        return len(self._passage_of)

    def members(self, group: int, turn: int) -> list[int]:
        """The numbers of a group's questions in this pass, the first of which is 0."""
        passage = int(self._passage_of[group])
        parts = np.array_split(self._shuffled(passage, turn), self._counts[passage])
        members: list[int] = parts[group - self._first[passage]].tolist()
        return members

    def _shuffle(self, passage: int, turn: int) -> NDArray[np.int64]:
        """All questions of a passage in the order of this pass."""
        begin = int(self._ends[passage - 1]) if passage else 0
        own = self._order[begin : self._ends[passage]]
        shuffled: NDArray[np.int64] = generator(self._seed, "questions", turn, passage).permutation(own)
        return shuffled
