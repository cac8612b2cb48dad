"""Negatives for an input, in addition to the in-batch negatives (M7, M8)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from pairsmith.data.examples import Example, answer_in_passage
from pairsmith.data.text import Entity
from pairsmith.runs.seeds import generator

T = TypeVar("T")

Negatives = Callable[[int, np.random.Generator], list[str]]
"""Draws negatives for the example with this index."""


def answer_negatives(
    examples: Sequence[Example],
    passages: Sequence[str],
    find: Callable[[str], list[Entity]],
    count: int,
) -> Negatives:
    """``count`` other answers from the right passage, and the right answer in ``count`` other passages (M7).

    They keep the encoder from judging by the passage alone or by the answer alone. More passages make up for
    missing candidates. There are fewer in all if too many of the passages that are drawn contain the answer.

    Args:
        examples: of kind ``reading``.
        passages: to draw wrong passages from, in addition to those of the other examples.
        find: finds candidate answers.
        count: number of negatives of each sort.
    """
    others = [
        _other_answers(example, answers, find)
        for example, answers in zip(examples, positive_answers(examples), strict=True)
    ]
    contexts = list(dict.fromkeys([*(example.context or "" for example in examples), *passages]))

    def draw(number: int, rng: np.random.Generator) -> list[str]:
        example, wrong = examples[number], others[number]
        assert example.context is not None
        assert example.answer is not None
        found = [answer_in_passage(text, example.context) for text in some(wrong, count, rng)]
        for passage in some(contexts, count + 2, rng)[: count + 2]:
            if len(found) < 2 * count and example.answer.casefold() not in passage.casefold():
                found.append(answer_in_passage(example.answer, passage))
        return found

    return draw


def positive_outputs(examples: Sequence[Example]) -> list[frozenset[str]]:
    """For each example, the outputs of all with its input: one question may have several answers."""
    return _of_one_input(examples, lambda example: example.output)


def positive_answers(examples: Sequence[Example]) -> list[frozenset[str]]:
    """For each example of kind ``reading``, the case-folded answers of all with its question."""
    return _of_one_input(examples, lambda example: (example.answer or "").casefold())


def overlaps(text: str, answers: Iterable[str]) -> bool:
    """Whether a candidate is one of these answers, is part of one, or contains one."""
    text = text.casefold()
    return any(text in answer or answer in text for answer in answers)


def _of_one_input(examples: Sequence[Example], part: Callable[[Example], str]) -> list[frozenset[str]]:
    found: dict[str, set[str]] = {}
    for example in examples:
        found.setdefault(example.input, set()).add(part(example))
    return [frozenset(found[example.input]) for example in examples]


def _other_answers(
    example: Example, answers: frozenset[str], find: Callable[[str], list[Entity]]
) -> list[str]:
    """Candidates that neither are part of a right answer nor contain one."""
    assert example.context is not None
    return [entity.text for entity in find(example.context) if not overlaps(entity.text, answers)]


def random_negatives(outputs: Sequence[str], count: int) -> Negatives:
    """Draws ``count`` outputs of the corpus at random (M8)."""
    return lambda number, rng: some(outputs, count, rng)  # noqa: ARG005 - the same for all examples


def some(texts: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """Up to ``count`` of the texts, drawn at random without replacement."""
    return [texts[i] for i in rng.choice(len(texts), size=min(count, len(texts)), replace=False).tolist()]


def sampled(items: Iterable[T], count: int, seed: int) -> list[T]:
    """A uniform random sample of ``count`` items of a stream, in their order; all if there are fewer."""
    rng = generator(seed, "sample")
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if number < count:
            kept.append((number, item))
        elif (place := int(rng.integers(number + 1))) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda each: each[0])]
