"""Words that give a label away: they stand in many of its texts and in hardly one of the others."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairsmith.tools.report.parts import Block, Finding, Table, percent, shown_text
from pairsmith.tools.report.rows import sorted_labels

_WORD = re.compile(r"\w+(?:'\w+)*")
_FEWEST = 20
"""Labels with fewer texts are left out."""
_SHARE = 0.15
"""A word that stands in fewer of a label's texts says little about them."""
_TIMES = 4
"""How much more frequent a word has to be in the label's texts than in the others."""
_SHOWN = 8
_ALONE = 0.5
"""A word in more of a label's texts than this, and in hardly one of the others, is warned of."""


@dataclass(frozen=True, slots=True)
class Giveaway:
    """A word, how many texts of the label it stands in, and how many of the others."""

    label: str
    word: str
    count: int
    of: int
    elsewhere: int
    of_others: int

    @property
    def suffices(self) -> bool:
        """Whether a model could nearly do with this word alone."""
        share = self.count / self.of
        return share >= _ALONE and self.elsewhere / self.of_others <= share / 10


def giveaways(texts: Sequence[str], labels: Sequence[str]) -> list[Giveaway]:
    """The words that give labels away, label by label, those with the largest difference first.

    A word counts once for a text. It has to stand in at least 15 % of the label's texts, and 4 times as
    often, by share, as in all others together.
    """
    totals, counts = Counter(labels), {label: Counter[str]() for label in labels}
    for text, label in zip(texts, labels, strict=True):
        counts[label].update(set(_WORD.findall(text.casefold().replace("’", "'"))))
    of_all = sum((Counter(own) for own in counts.values()), Counter[str]())
    clues = list[Giveaway]()
    for label in sorted_labels(set(labels)):
        own, others = totals[label], len(labels) - totals[label]
        if own < _FEWEST or others < _FEWEST:
            continue
        mine = [
            Giveaway(label, word, count, own, of_all[word] - count, others)
            for word, count in counts[label].items()
            if count >= _SHARE * own and count / own >= _TIMES * (of_all[word] - count) / others
        ]
        mine.sort(key=lambda clue: (clue.elsewhere / others - clue.count / own, clue.word))
        clues += mine[:_SHOWN]
    return clues


def giveaway_blocks(texts: Sequence[str], labels: Sequence[str], warn: list[Finding]) -> Iterator[Block]:
    """A table of the words that give labels away; ``warn`` gets a finding where one word nearly suffices."""
    clues = giveaways(texts, labels)
    if not clues:
        return
    yield Table(
        ["label", "word", "in its texts", "in all others"],
        [
            (
                shown_text(clue.label, 60),
                shown_text(clue.word, 60),
                percent(clue.count, clue.of),
                percent(clue.elsewhere, clue.of_others),
            )
            for clue in clues
        ],
        texts=2,
        title="Words that give a label away",
        note="Some are what the label is about. Others only show how the texts were written.",
    )
    if alone := [clue for clue in clues if clue.suffices]:
        first = alone[0]
        more = f" (and {len(alone) - 1} more such words)" if len(alone) > 1 else ""
        others = percent(first.elsewhere, first.of_others)
        warn.append(
            Finding(
                f"“{shown_text(first.word, 60)}” stands in {percent(first.count, first.of)} of the texts of "
                f"{shown_text(first.label, 60)} and in {others} of the others{more}",
                "A model may learn this word and nothing else. Where a task wrote the texts, give the label "
                "several instructions (more_instructions) that lead to other words.",
            )
        )
