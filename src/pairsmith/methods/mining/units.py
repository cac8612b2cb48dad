"""The units that a corpus is cut into for mining: answers in their passages (M7) or single sentences (M8)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.examples import answer_in_passage
from pairsmith.data.text import Entity, count_words, split_sentences, windows

FindEntities = Callable[[Iterable[str]], Iterator[Sequence[Entity]]]
"""Finds the candidate answers of passages: a sequence for each passage, in the order of the passages."""


@dataclass(frozen=True, slots=True)
class AnswerInPassage:
    """A candidate answer in its passage (M7); ``passage[start : start + len(answer)]`` is the answer."""

    answer: str
    start: int
    passage: str

    @property
    def text(self) -> str:
        """Answer and passage as one text, as encoders read it."""
        return answer_in_passage(self.answer, self.passage)


def answers_in_passages(
    texts: Sequence[str], find: FindEntities, window: int
) -> Iterator[list[AnswerInPassage]]:
    """For each text, its candidate answers, each with the passage of at most ``window`` words around it (M7).

    ``find`` finds the entities of passages; ``data.text.entities_of_texts("rule")`` returns such a function.
    """
    passages = [[run.text for run in windows(text, window, count_words)] for text in texts]
    entities = find(chain.from_iterable(passages))
    for of_text in passages:
        yield [
            AnswerInPassage(entity.text, entity.start, passage)
            for passage in of_text
            for entity in next(entities)
        ]


def sentences_of(document: str) -> list[str]:
    """The single sentences of a document, each of which may be the summary of another document (M8)."""
    return [sentence.text for sentence in split_sentences(document)]


@dataclass(frozen=True, slots=True)
class UnitVectors:
    """The vectors of those of n texts that are paired, and why the others are not.

    Attributes:
        vectors: ``(kept, d)`` float32, of length 1: the vectors of the texts that are paired, in their order.
        zero: ``(n,)`` bool, whether a text has a zero vector, which has no direction.
        other_style: ``(n,)`` bool, whether another text is not in the style of the seeds (M4).
    """

    vectors: Float32s
    zero: NDArray[np.bool_]
    other_style: NDArray[np.bool_]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """The texts that are paired, ``(n,)`` bool."""
        return ~(self.zero | self.other_style)


def select_unit_vectors(
    vectors: Float32s, style_probability: Float32s | None = None, least_probability: float = 0.0
) -> UnitVectors:
    """Leave out zero vectors and texts that are not in the style of the seeds (M4); scale the others.

    Args:
        vectors: ``(n, d)`` float32, finite.
        style_probability: ``(n,)`` float32, in [0, 1], the probability that each text is in the style of the
            seeds (``StyleClassifier.probability``); None keeps texts of every style.
        least_probability: the lowest probability of a text that is kept.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    zero = lengths == 0
    other_style = np.zeros(len(vectors), bool)
    if style_probability is not None:
        other_style = ~zero & (style_probability < least_probability)
    kept = ~(zero | other_style)
    return UnitVectors(vectors[kept] / lengths[kept, None], zero, other_style)
