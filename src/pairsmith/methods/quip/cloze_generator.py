"""Questions without a model: sentences whose answer is taken out, with noise (Q6).

names and numbers of a passage -> their sentences without them -> words dropped, moved, blanked -> questions

This is the noisy cloze of Lewis, Denoyer and Riedel, *Unsupervised Question Answering by Cloze Translation*
(2019), with which QUIP was trained where no questions of people were to be used.
"""

import re
from collections.abc import Sequence

import numpy as np

from pairsmith.encoders.asker import QUESTION_TOKENS, Fault, Written
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all, unheard
from pairsmith.records import Reject
from pairsmith.runs.executors import Advance
from pairsmith.runs.seeds import generator
from pairsmith.texts import Entity, entity_finder, split_sentences
from pairsmith.texts.passages import PASSAGE_TOKENS

QUESTION_WORDS = ("Who", "What", "When", "Where", "Which", "How")

DROPPED = 0.1
"""Share of the words that are left out,"""

BLANKED = 0.1
"""and of those for which a blank stands;"""

MOVED = 3
"""a word moves by no more than so many places."""

_BLANK = "_"
_TOKEN = re.compile(r"\w+|[^\w\s]")


class ClozeGenerator:
    """Makes cloze questions of a passage's names and numbers; what is drawn depends on the passage alone."""

    def __init__(self, options: GenerationOptions) -> None:
        """Raises: SettingsError, MissingExtra, ModelError: see ``entity_finder``."""
        self.limit = options.max_length or PASSAGE_TOKENS
        self._options = options
        self._find = entity_finder(options.answers)

    def length(self, text: str) -> int:
        """Words and marks of a text."""
        return sum(1 for _ in _TOKEN.finditer(text))

    def generate(self, passages: Sequence[Passage], advance: Advance = unheard) -> list[Reject]:
        """Add questions to each passage; returns what is none, and passages without names and numbers."""
        answers = {passage.id: self._find(passage.text) for passage in passages}
        detail = "no name or number stands in it"
        rejects = [
            Reject.of(passage.id, "no answer", detail, {"context": passage.text})
            for passage in passages
            if not answers[passage.id]
        ]
        for _ in range(self._options.tries):
            left = [passage for passage in passages if len(passage.found) < self._options.questions]
            rejects += keep_all(left, [self._write(passage, answers[passage.id]) for passage in left])
            advance(len(passages))
        return rejects

    def _write(self, passage: Passage, answers: Sequence[Entity]) -> list[Written]:
        """As many questions as a passage lacks, of its answers in an order by chance, again and again."""
        if not answers:
            return []
        order = generator(self._options.seed, passage.id, "answers").permutation(len(answers))
        last = passage.drawn + self._options.questions - len(passage.found)
        written = []
        for number in range(passage.drawn, last):
            answer = answers[order[number % len(order)]]
            rng = generator(self._options.seed, passage.id, number)
            question = noisy_cloze(passage.text, answer, rng)
            fault: Fault | None = None if question else "no question"
            if self.length(question) > QUESTION_TOKENS:
                fault = "long question"
            written.append(Written(answer.text, question, fault, answer.start))
        return written


def noisy_cloze(passage: str, answer: Entity, rng: np.random.Generator) -> str:
    """The sentence in which an answer stands, as a question for it; empty where nothing else stands in it.

    Args:
        passage: any text.
        answer: where it stands in it.
        rng: of the question word, and of what becomes of the other words.
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
    # Sorted by its place and a chance of up to MOVED + 1, no word overtakes one more than MOVED places ahead.
    order = np.argsort(np.arange(len(kept)) + rng.random(len(kept)) * (MOVED + 1), kind="stable")
    blank = rng.random(len(kept)) < BLANKED
    noised = [_BLANK if blank[place] else kept[place] for place in order]
    return f"{rng.choice(QUESTION_WORDS)} {' '.join(noised)}?"
