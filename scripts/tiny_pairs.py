"""Sentence pairs as ``pairsmith:tiny`` should learn to write them.

Three kinds are made, and each is noisy on purpose, as a large model's understanding of an
instruction is:

* label 1: a sentence said again; two captions of one image, two wordings of one question;
* label 0.5: one half or so of a sentence kept and the rest that of another; neutral NLI pairs;
* label 0: a sentence about something else that starts alike and shares function words, or any other.

Which words count is what an encoder is to learn from them: label 1 changes the function words and
keeps the content, label 0 the other way round.

The half of label 0.5 is kept word for word, on purpose. Self-debiasing lowers every token that the
instruction for label 1 makes more likely, so label 0.5 keeps only what it copies with at least label
1's confidence: a half that is always copied survives, words copied here and there do not.
"""

import random
from collections import defaultdict

from tiny_edits import PHRASE_STARTS, Editor
from tiny_sources import Sources, fits

Pair = tuple[str, str]
BUCKET = 400


def bare_words(text: str) -> set[str]:
    """The words of a text, lower case, without marks."""
    return {word.strip(".,;:?!'").lower() for word in text.split()}


class Pairs:
    """Makes sentence pairs of each kind from the sources."""

    def __init__(self, sources: Sources, rng: random.Random) -> None:
        self.sources = sources
        self.rng = rng
        self.edit = Editor(rng)
        self.tails: dict[str, list[str]] = defaultdict(list)
        self.heads: dict[str, list[str]] = defaultdict(list)
        self.alike: dict[tuple[str, int], list[str]] = defaultdict(list)
        for text in self._many_sentences():
            words = text.split()
            for position in range(2, len(words) - 1):
                self._keep(self.tails[words[position - 1].lower()], " ".join(words[position:]))
                if (word := words[position].lower()) in PHRASE_STARTS:
                    self._keep(self.heads[word], " ".join(words[:position]))
            self.alike[self._shape(text)].append(text)

    def _keep(self, bucket: list[str], text: str) -> None:
        """Put a text into a bucket of bounded size."""
        if len(bucket) < BUCKET:
            bucket.append(text)
        elif self.rng.random() < 0.01:
            bucket[self.rng.randrange(BUCKET)] = text

    @staticmethod
    def _shape(text: str) -> tuple[str, int]:
        """The first word and about the length."""
        words = text.split()
        return words[0].lower(), len(words) // 3

    def _many_sentences(self) -> list[str]:
        captions = [self.rng.choice(group) for group in self.sources.captions]
        texts = captions + self.sources.news + self.sources.everyday
        texts += [self.rng.choice(pair) for pair in self.sources.questions[:15_000]]
        self.rng.shuffle(texts)
        return texts[:100_000]

    def any_sentence(self) -> str:
        """A sentence of any source."""
        draw = self.rng.random()
        if draw < 0.33:
            return self.rng.choice(self.rng.choice(self.sources.captions))
        if draw < 0.73:
            return self.rng.choice(self.sources.news)
        if draw < 0.92:
            return self.rng.choice(self.sources.everyday)
        return self.rng.choice(self.rng.choice(self.sources.questions))

    def same(self) -> Pair:
        """Two texts that mean about the same."""
        draw = self.rng.random()
        if draw < 0.08:
            first, second = self.rng.sample(self.rng.choice(self.sources.captions), 2)
            return first, second
        if draw < 0.14:
            return self.rng.choice(self.sources.questions)
        if draw < 0.17:
            return self.rng.choice(self.sources.nli["entailment"])
        first = self.any_sentence()
        return first, self.edit(first)

    def similar(self) -> Pair:
        """Two texts that share a part."""
        draw = self.rng.random()
        if draw < 0.05:
            return self.rng.choice(self.sources.nli["neutral"])
        if draw < 0.08:
            return self.same()
        first = self.any_sentence()
        return first, self.same_end(first) if draw < 0.35 else self.same_start(first)

    def unrelated(self) -> Pair:
        """Two texts that have nothing to do with each other; one in ten does, as noise."""
        draw = self.rng.random()
        if draw < 0.06:
            return self.similar()
        if draw < 0.10:
            article = self.rng.choice(self.sources.articles)
            texts = [s for s in article if fits(s)]
            if len(texts) > 1:
                return texts[0], texts[1]
        first = self.any_sentence()
        return first, self.other_content(first) if draw < 0.75 else self.any_sentence()

    def same_start(self, text: str) -> str:
        """The first half or so of ``text``, continued by the end of another sentence."""
        words = text.split()
        for _ in range(8):
            kept = round(len(words) * self.rng.uniform(0.45, 0.75))
            kept = min(max(kept, 2), len(words) - 1)
            tails = self.tails.get(words[kept - 1].lower())
            if not tails:
                continue
            tail = self.rng.choice(tails).split()
            if tail != words[kept:] and len(tail) <= len(words) - kept + 4:
                return " ".join(words[:kept] + tail)
        return " ".join(words[: max(2, len(words) // 2)] + self.any_sentence().split()[-4:])

    def same_end(self, text: str) -> str:
        """The start of another sentence, ended by a phrase of ``text`` and all that follows it."""
        words = text.split()
        low, high = round(0.25 * len(words)), round(0.6 * len(words))
        cuts = [i for i in range(max(low, 2), max(high, 2)) if words[i].lower() in PHRASE_STARTS]
        for cut in self.rng.sample(cuts, len(cuts)):
            for _ in range(8):
                head = self.rng.choice(self.heads.get(words[cut].lower()) or [""]).split()
                if head and head != words[:cut] and len(head) <= cut + 3:
                    return " ".join(head + words[cut:])
        return self.same_start(text)

    def other_content(self, text: str) -> str:
        """A sentence that starts as ``text`` does and shares short words with it, but no long ones."""
        candidates = self.alike[self._shape(text)]
        if len(candidates) < 5:
            return self.any_sentence()
        words = bare_words(text)

        def likeness(other: str) -> int:
            shared = words & bare_words(other)
            return sum(1 if len(word) < 4 else -3 for word in shared)

        return max(self.rng.sample(candidates, min(30, len(candidates))), key=likeness)
