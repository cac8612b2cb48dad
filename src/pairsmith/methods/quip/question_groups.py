"""Groups of questions on the same passage, for which a training step reads the passage only once."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pairsmith.runs.seeds import generator, stream_key


class QuestionGroups:
    """Questions in groups of at most ``most`` on the same passage.

    The groups of a passage are about equally large. Each pass over the questions groups them anew. Memory
    holds a few numbers for each question.
    """

    def __init__(self, passages: Iterable[str], most: int, seed: int) -> None:
        """``passages`` has the passage of each question; equal passages need not be adjacent."""
        keys = np.array(array("Q", map(stream_key, passages)), np.uint64)
        _, self._passage, self._sizes = np.unique(keys, return_inverse=True, return_counts=True)
        self._groups = -(-self._sizes // most)  # the number of groups of each passage
        self._seed = seed

    def order(self, turn: int) -> NDArray[np.int64]:
        """The numbers of all questions in the order of pass ``turn``, counted from 0: ``(n,)`` int64."""
        rng = generator(self._seed, "order", turn)
        shuffled = rng.permutation(len(self._passage))
        questions = shuffled[np.argsort(self._passage[shuffled], kind="stable")]  # passage by passage
        passage = self._passage[questions]
        first_question, first_group = (np.cumsum(counts) - counts for counts in (self._sizes, self._groups))
        rank_in_passage = np.arange(len(questions)) - first_question[passage]
        group = first_group[passage] + rank_in_passage * self._groups[passage] // self._sizes[passage]
        place_of_group = rng.permutation(int(self._groups.sum()))
        order: NDArray[np.int64] = questions[np.argsort(place_of_group[group], kind="stable")]
        return order
