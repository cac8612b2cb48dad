"""Saying a sentence again: much of its wording changes, its meaning about stays.

The content words stay or are replaced by a synonym; function words, order and frame change freely.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tiny_sources import open_text

SYNONYMS = Path(__file__).parent / "tiny_synonyms.txt"
ARTICLES = {"the": ("a", "this", "that"), "a": ("the", "one"), "an": ("the", "one")}
# Not all of them keep the meaning in every sentence.
FUNCTION_WORDS = {
    "in": ("inside", "within", "at"),
    "on": ("upon", "atop", "over"),
    "at": ("by", "near", "in"),
    "with": ("having", "along with", "and"),
    "and": ("as well as", "and also", "plus"),
    "by": ("near", "via", "next to"),
    "of": ("from", "for"),
    "to": ("in order to", "toward", "for"),
    "for": ("of", "to"),
    "from": ("out of", "of"),
    "was": ("has been", "is", "had been"),
    "were": ("have been", "are", "had been"),
    "will": ("is going to", "would", "shall"),
    "has": ("had",),
    "have": ("had",),
    "had": ("has", "have"),
    "that": ("which",),
    "who": ("that",),
    "which": ("that",),
    "his": ("the", "their"),
    "her": ("the", "their"),
    "their": ("the", "its"),
    "its": ("the", "their"),
    "he": ("the man", "they"),
    "she": ("the woman", "they"),
    "can": ("could", "is able to", "may"),
    "as": ("while", "since"),
}
FILLERS = ("really", "now", "also", "just", "still", "then", "actually")
DROPPED = {
    "very", "just", "really", "also", "still", "now", "then", "however", "already", "quite", "even", "only",
}  # fmt: skip
LEADS = (
    "Apparently,", "It seems that", "Reportedly,", "In fact,", "We know that", "They say that",
    "I think that", "It is true that", "It is said that", "As we know,", "It turns out that", "Note that",
)  # fmt: skip
TRAILS = ("it is said", "apparently", "it seems", "as we know", "they say", "in fact", "of course", "I think")
ASKED = {
    "how do i": (
        "What is the best way to",
        "How can one",
        "Can someone tell me how to",
        "What should I do to",
    ),
    "how can i": ("What is the way to", "How could I", "What can I do to", "Is there a way to"),
    "what is": ("Tell me about", "Can you explain", "What do you call", "Which is"),
    "what are": ("Which are", "Can you name", "Tell me"),
    "why do": ("What is the reason that", "How come"),
    "is it": ("Would it be", "Could it be"),
}
PHRASE_STARTS = {
    "in", "on", "at", "after", "while", "during", "because", "when", "by", "near", "with", "as", "before",
    "if", "under", "behind", "through", "without", "for", "from", "to",
}  # fmt: skip
LOWERED = {
    "a", "an", "the", "two", "three", "it", "he", "she", "they", "we", "this", "there", "some", "in",
    "on", "at",
}  # fmt: skip
MARKS = ".,;:?!"


def lowered(words: Sequence[str]) -> list[str]:
    """The words, the first one small where it is no name."""
    first = words[0].lower() if words[0].lower() in LOWERED else words[0]
    return [first, *words[1:]]


def without_mark(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without the last one's final mark, and that mark."""
    mark = words[-1][-1] if words[-1][-1] in ".?!" else ""
    return [*words[:-1], words[-1].removesuffix(mark)], mark


class Editor:
    """Says sentences again. Draws from ``rng``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.synonyms: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for line in open_text(SYNONYMS):
            if line and not line.startswith("#"):
                group = line.split("|")
                for phrase in group[:1] if len(group) > 1 else []:
                    self.synonyms[tuple(phrase.lower().split())] += group[1:]

    def __call__(self, text: str) -> str:
        """``text`` said again, in other words where some were found."""
        for _ in range(4):
            words = self._words(self._moved(text.split()))
            edited = " ".join(self._framed(words)) if words else text
            edited = edited[:1].upper() + edited[1:]
            if edited != text:
                return edited
        return text

    def _words(self, words: Sequence[str]) -> list[str]:
        """Synonyms put in, function words changed, fillers dropped and added."""
        out: list[str] = []
        position = 0
        while position < len(words):
            length, phrase = self._synonym(words, position)
            if phrase is not None and self.rng.random() < 0.7:
                out += phrase.split()
                position += length
                continue
            last = position == len(words) - 1
            following = words[position + 1] if not last else ""
            out += self._word(words[position], following, last).split()
            position += 1
        return out

    def _word(self, word: str, following: str, last: bool) -> str:
        """What stands for one word: itself, another one, several or none."""
        plain = word.lower().strip(MARKS)
        draw = self.rng.random()
        if last or plain != word.lower():
            return word
        if plain in ARTICLES:
            return self.rng.choice(ARTICLES[plain]) if draw < 0.3 else "" if draw < 0.45 else word
        if plain in {"is", "are"}:
            if following.endswith("ing") and draw < 0.4:
                return ""
            return {"is": "was", "are": "were"}[plain] if draw < 0.6 else word
        if plain in FUNCTION_WORDS:
            return self.rng.choice(FUNCTION_WORDS[plain]) if draw < 0.35 else word
        if plain in DROPPED or (plain.endswith("ly") and len(plain) > 5):
            return "" if draw < 0.5 else word
        return f"{self.rng.choice(FILLERS)} {word}" if draw < 0.03 else word

    def _synonym(self, words: Sequence[str], position: int) -> tuple[int, str | None]:
        """How many words a known phrase at ``position`` has, and a synonym of it, or None."""
        for length in (4, 3, 2, 1):
            window = words[position : position + length]
            if len(window) < length:
                continue
            body = " ".join(window)
            mark = body[-1] if body[-1] in MARKS else ""
            options = self.synonyms.get(tuple(body.lower().rstrip(MARKS).split()))
            if options:
                return length, self.rng.choice(options) + mark
        return 1, None

    def _moved(self, words: list[str]) -> list[str]:
        """Sometimes the last phrase moved to the front: "X in the park." becomes "In the park, X."."""
        cuts = [i for i in range(3, len(words) - 1) if words[i].lower() in PHRASE_STARTS]
        body, mark = without_mark(words)
        if not cuts or self.rng.random() > 0.3 or mark != ".":
            return words
        cut = self.rng.choice(cuts[-2:])
        head, phrase = lowered(body[:cut]), body[cut:]
        front = [phrase[0].capitalize(), *phrase[1:-1], phrase[-1].rstrip(",") + ","]
        return [*front, *head[:-1], head[-1].rstrip(",") + mark]

    def _framed(self, words: list[str]) -> list[str]:
        """Sometimes another frame: "There is a man who …", "They say that …", "…, it seems."."""
        body, mark = without_mark(words)
        draw = self.rng.random()
        if mark == "?":
            for start, others in ASKED.items():
                count = len(start.split())
                if " ".join(body[:count]).lower() == start and draw < 0.6 and len(body) > count:
                    return [*self.rng.choice(others).split(), *body[count:-1], body[-1] + mark]
            return words
        if not mark:
            return words
        if draw < 0.12 and body[0].lower() in {"a", "an", "one"}:
            return ["There", "is", *lowered(body)[:-1], body[-1] + mark]
        if draw < 0.24:
            return [*self.rng.choice(LEADS).split(), *lowered(body)[:-1], body[-1] + mark]
        if draw < 0.32:
            return [*body[:-1], body[-1] + ",", *f"{self.rng.choice(TRAILS)}{mark}".split()]
        return words
