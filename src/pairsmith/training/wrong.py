"""Wrong outputs for an input, beside those of the other examples of a batch (M7, M8)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from pairsmith.records import Example, answer_in_passage
from pairsmith.runs.seeds import generator
from pairsmith.texts import Entity

T = TypeVar("T")

WrongOutputs = Callable[[int, np.random.Generator], list[str]]
"""Draws wrong outputs for the example of this number."""


def wrong_answers(
    examples: Sequence[Example],
    passages: Sequence[str],
    find: Callable[[str], list[Entity]],
    count: int,
) -> WrongOutputs:
    """``count`` times another answer of the right passage, and the right answer in another passage (M7).

    They keep the encoder from looking at the passage alone, and at the answer alone. Where a passage has no
    other candidate, or no other passage lacks the answer, there is one fewer.

    Args:
        examples: of kind ``reading``.
        passages: from which wrong ones are drawn beside those of the other examples.
        find: finds candidate answers.
        count: of each sort.
    """
    others = [
        _other_answers(example, answers, find)
        for example, answers in zip(examples, right_answers(examples), strict=True)
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


def right_outputs(examples: Sequence[Example]) -> list[frozenset[str]]:
    """Of each example the outputs of all that have its input: one question may have several answers."""
    return _of_one_input(examples, lambda example: example.output)


def right_answers(examples: Sequence[Example]) -> list[frozenset[str]]:
    """Of each example of kind ``reading`` the answers of all that have its question, their case folded."""
    return _of_one_input(examples, lambda example: (example.answer or "").casefold())


def overlaps(text: str, answers: Iterable[str]) -> bool:
    """Whether a candidate is one of these answers, part of one, or the other way round."""
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
    """Candidates that are neither part of a right answer nor the other way round."""
    assert example.context is not None
    return [entity.text for entity in find(example.context) if not overlaps(entity.text, answers)]


def random_outputs(outputs: Sequence[str], count: int) -> WrongOutputs:
    """``count`` outputs of the corpus (M8)."""
    return lambda number, rng: some(outputs, count, rng)  # noqa: ARG005 - all numbers alike


def some(texts: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """At most ``count`` of them, drawn, none twice."""
    return [texts[i] for i in rng.choice(len(texts), size=min(count, len(texts)), replace=False).tolist()]


def sampled(items: Iterable[T], count: int, seed: int) -> list[T]:
    """``count`` of a stream, each as likely as any other, in its order; all if they are fewer."""
    rng = generator(seed, "sample")
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if number < count:
            kept.append((number, item))
        elif (place := int(rng.integers(number + 1))) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda each: each[0])]
