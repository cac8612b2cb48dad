"""Negatives of seed pairs besides the in-batch negatives (M7, M8), and the passages that seeds are cut to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pairsmith.data.examples import Example, answer_in_passage
from pairsmith.data.text import Entity, count_words, windows
from pairsmith.runs.seeds import generator

T = TypeVar("T")

DrawNegatives = Callable[[int, np.random.Generator], list[str]]
"""Draws negatives for the example with this number, with this random generator."""


def in_window(example: Example, words: int) -> Example:
    """Cut a passage to its first window of ``words`` words that contains the answer, as mining does.

    Examples without a passage, and those whose answer crosses the end of a window, stay unchanged.
    """
    if example.context is None or example.answer is None or example.answer_start is None:
        return example
    for window in windows(example.context, words, count_words):
        start = example.answer_start - window.start
        if start >= 0 and window.text.startswith(example.answer, start):
            output = answer_in_passage(example.answer, window.text)
            return replace(example, context=window.text, answer_start=start, output=output)
    return example


def answer_negatives(
    examples: Sequence[Example], passages: Sequence[str], find: Callable[[str], list[Entity]], count: int
) -> DrawNegatives:
    """Draws wrong answers in the right passage, and the right answer in wrong passages, ``count`` each (M7).

    Such negatives keep the encoder from judging by the passage alone or by the answer alone. ``find`` finds
    the candidate answers of a passage; wrong passages come from the other examples and from ``passages``. If
    the right passage has fewer wrong answers than ``count``, more wrong passages are used. There are fewer
    than ``2 * count`` negatives if too many of the drawn passages contain the right answer.
    """
    others = [
        [entity.text for entity in find(example.context or "") if not overlaps(entity.text, answers)]
        for example, answers in zip(examples, positive_answers(examples), strict=True)
    ]
    contexts = list(dict.fromkeys([*(example.context or "" for example in examples), *passages]))

    def draw(number: int, rng: np.random.Generator) -> list[str]:
        example, wrong = examples[number], others[number]
        assert example.context is not None
        assert example.answer is not None
        negatives = [
            answer_in_passage(text, example.context) for text in draw_without_replacement(wrong, count, rng)
        ]
        for passage in draw_without_replacement(contexts, count + 2, rng):
            if len(negatives) < 2 * count and example.answer.casefold() not in passage.casefold():
                negatives.append(answer_in_passage(example.answer, passage))
        return negatives

    return draw


def positive_outputs(examples: Sequence[Example]) -> list[frozenset[str]]:
    """For each example, the outputs of all examples with its input; a question may have several answers."""
    return _of_one_input(examples, lambda example: example.output)


def positive_answers(examples: Sequence[Example]) -> list[frozenset[str]]:
    """For each example of kind ``reading``, the case-folded answers of all examples with its question."""
    return _of_one_input(examples, lambda example: (example.answer or "").casefold())


def overlaps(text: str, answers: Iterable[str]) -> bool:
    """Whether a candidate equals one of these case-folded answers, is part of one, or contains one."""
    text = text.casefold()
    return any(text in answer or answer in text for answer in answers)


def _of_one_input(examples: Sequence[Example], part: Callable[[Example], str]) -> list[frozenset[str]]:
    by_input: dict[str, set[str]] = {}
    for example in examples:
        by_input.setdefault(example.input, set()).add(part(example))
    return [frozenset(by_input[example.input]) for example in examples]


def random_negatives(outputs: Sequence[str], count: int) -> DrawNegatives:
    """Draws ``count`` outputs of the corpus at random (M8)."""
    return lambda number, rng: draw_without_replacement(outputs, count, rng)  # noqa: ARG005 - the same for all examples


def draw_without_replacement(texts: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """Up to ``count`` of the texts, drawn at random without replacement."""
    return [texts[i] for i in rng.choice(len(texts), size=min(count, len(texts)), replace=False).tolist()]


def reservoir_sample(items: Iterable[T], count: int, seed: int, of: str) -> list[T]:
    """A uniform random sample of ``count`` items of a stream, in their order; all items if there are fewer.

    ``of`` names the stream. Samples of streams with different names are independent; otherwise the samples of
    two parallel corpora would consist of records that belong together.
    """
    rng = generator(seed, "sample", of)
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if number < count:
            kept.append((number, item))
        elif (place := int(rng.integers(number + 1))) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
