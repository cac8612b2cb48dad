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
    others = [_other_answers(example, find) for example in examples]
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


def _other_answers(example: Example, find: Callable[[str], list[Entity]]) -> list[str]:
    """Candidates that are neither part of the answer nor the other way round."""
    assert example.context is not None
    assert example.answer is not None
    answer = example.answer.casefold()
    texts = [entity.text for entity in find(example.context)]
    return [text for text in texts if text.casefold() not in answer and answer not in text.casefold()]


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
