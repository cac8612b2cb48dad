"""The units that a corpus is cut into for mining: answers in their passages (M7) or single sentences (M8)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

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
