"""Question generation without a model: sentences with the answer removed and noise added (Q6).

names and numbers of a passage as answers -> the sentence of each answer, without the answer -> words dropped,
moved and blanked -> a question word before them

These are the noisy clozes of Lewis, Denoyer and Riedel (2019), *Unsupervised Question Answering by Cloze
Translation*. QUIP was trained on them in the experiment that uses no human-written questions.
"""

import re
from collections.abc import Sequence

import numpy as np

from pairsmith.data.filters import EMPTY, NO_ANSWER
from pairsmith.data.schemas import Reject
from pairsmith.data.text import Entity, entity_finder, split_sentences
from pairsmith.data.text.windows import PASSAGE_TOKENS
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all
from pairsmith.models.question_generator import GENERATED_QUESTION_TOKENS, LONG_QUESTION, WrittenQuestion
from pairsmith.runs.seeds import generator
from pairsmith.runs.work import Advance

QUESTION_WORDS = ("Who", "What", "When", "Where", "Which", "How")

DROPPED = 0.1
"""Probability that a word is dropped."""

BLANKED = 0.1
"""Probability that a word that is not dropped is replaced by a blank."""

MOVED = 3
"""A word moves ahead of another only if the other is at most this many places before it."""

_BLANK = "_"
_NO_WORDS = (EMPTY, "no word of the sentence is left beside the answer")
_TOKEN = re.compile(r"\w+|[^\w\s]")


class ClozeGenerator:
    """Makes cloze questions from names and numbers in a passage, independently of other passages."""

    def __init__(self, options: GenerationOptions) -> None:
        """Raises: SettingsError, MissingExtra, ModelError: see ``entity_finder``."""
        self.limit = options.max_length or PASSAGE_TOKENS
        self.tries = options.tries
        self._options = options
        self._find = entity_finder(options.answers)

    def __repr__(self) -> str:
        """How answers are found."""
        return f"{type(self).__name__}(answers={self._options.answers!r})"

    def length(self, text: str) -> int:
        """The number of words and punctuation marks in a text."""
        return sum(1 for _ in _TOKEN.finditer(text))

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> None:
        """Add questions to each passage; a passage without names and numbers becomes a reject."""
        answers = {passage.id: self._find(passage.text) for passage in passages}
        for passage in passages:
            if not answers[passage.id]:
                detail, row = "it holds no name or number", {"context": passage.text, **passage.kept}
                passage.rejects.append(Reject.of(passage.id, NO_ANSWER, detail, row))
        for _ in range(self.tries):
            unfinished = [passage for passage in passages if passage.missing(self._options.questions)]
            keep_all(unfinished, [self._write(passage, answers[passage.id]) for passage in unfinished])
            advance(len(passages))

    def _write(self, passage: Passage, answers: Sequence[Entity]) -> list[WrittenQuestion]:
        """Write the questions that a passage still needs, cycling through its answers in random order."""
        if not answers:
            return []
        order = generator(self._options.seed, passage.id, "answers").permutation(len(answers))
        written = []
        for number in passage.missing(self._options.questions):
            answer = answers[order[number % len(order)]]
            rng = generator(self._options.seed, passage.id, number)
            question = noisy_cloze(passage.text, answer, rng)
            fault = None if question else _NO_WORDS
            if self.length(question) > GENERATED_QUESTION_TOKENS:
                fault = LONG_QUESTION
            written.append(WrittenQuestion(answer.text, question, fault, answer.start))
        return written


def noisy_cloze(passage: str, answer: Entity, rng: np.random.Generator) -> str:
    """Turn the sentence that contains an answer into a question; empty if no word but the answer is left.

    ``rng`` draws the question word and the noise.
    """
    end = answer.start + len(answer.text)
    around = [
        passage[place.start : answer.start] + " " + passage[end : place.start + len(place.text)]
        for place in split_sentences(passage)
        if place.start <= answer.start and end <= place.start + len(place.text)
    ]
    words = (around[0] if around else "").rstrip(" .!?…").split()
    kept = [word for word, chance in zip(words, rng.random(len(words)), strict=True) if chance >= DROPPED]
    if not kept:
        return ""
    # Sorting by place plus noise below MOVED + 1 moves no word ahead of one more than MOVED places before it.
    order = np.argsort(np.arange(len(kept)) + rng.random(len(kept)) * (MOVED + 1), kind="stable")
    blank = rng.random(len(kept)) < BLANKED
    noised = [_BLANK if blank[place] else kept[place] for place in order]
    return f"{rng.choice(QUESTION_WORDS)} {' '.join(noised)}?"
