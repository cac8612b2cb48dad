"""Sentences of a text, with their offsets.

``nupunkt`` finds the ends: it knows English abbreviations, initials and quotation marks, is plain Python, and
takes linear time. A line break always ends a sentence, because in news corpora it ends a paragraph or a
heading, and a heading has no full stop to go by.
"""

import re
from dataclasses import dataclass

from nupunkt import sentence_spans

# Form feed, next line and the two Unicode separators end a line as well.
_LINE = re.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence without surrounding white space, and the offset of its first character in the whole text."""

    text: str
    start: int


def split_sentences(text: str) -> list[Sentence]:
    """The sentences of an English text, in order.

    Args:
        text: any text; lines that were broken to fit a page have to be joined first.

    Returns:
        sentences that do not overlap; ``text[start : start + len(sentence.text)]`` is the sentence, and
        there is only white space between two. A text of white space has no sentences.
    """
    return [
        Sentence(line[0][start:end], line.start() + start)
        for line in _LINE.finditer(text)
        for start, end in sentence_spans(line[0], paragraph_breaks=False)
    ]
