"""Cutting documents into chunks: runs of whole sentences, the units that a retriever finds.

A chunk lies within one section. A section is cut into as few chunks as possible, of lengths as equal as
possible: with at most 120 words in a chunk, 130 words are cut near the middle, as a chunk of the last ten
words would be a poor one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pairsmith.data.files.parsed import Section
from pairsmith.data.text import split_sentences
from pairsmith.data.text.words import MARKS, UNSPACED, UNSPACED_WORD

LONGEST_WORD = 30
"""A run of more characters than this without a space counts as several words, so that it is cut, too."""
STRETCH = 1_000_000
"""Characters of a section that are cut at once, which bounds the memory that a huge document needs."""
_WORD = re.compile(rf"{UNSPACED_WORD}|[^\s{UNSPACED}]{{1,{LONGEST_WORD}}}[{MARKS}]*")
"""No letter is cut from its marks."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document, and the title of the section that it is from; the title may be empty."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence, or a part of a sentence above the limit: its begin and end, and its number of words."""

    start: int
    end: int
    words: int


def cut_sections(sections: Iterable[Section], *, words: int, overlap: int = 0) -> Iterator[Chunk]:
    """The chunks of a document's sections, in order.

    Args:
        sections: the sections with their titles; a section without text has no chunk.
        words: largest number of words in a chunk, 1 or more; words are separated by white space, except as
            ``LONGEST_WORD`` and ``UNSPACED_WORD`` say. A sentence with more words is cut.
        overlap: largest number of sentences, 0 or more, from the end of a chunk that the next chunk repeats;
            fewer if they do not fit.
    """
    if words < 1 or overlap < 0:
        raise ValueError(f"expected at least one word and no negative overlap, got {words}, {overlap}")
    for section in sections:
        for start, end in _stretches(section.text):
            pieces = list(_pieces(section.text[start:end], words))
            for first, stop in _evenly([piece.words for piece in pieces], words, overlap):
                text = section.text[start + pieces[first].start : start + pieces[stop - 1].end]
                yield Chunk(section.title, text)


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of parts of at most ``STRETCH`` characters, cut at line ends or else at spaces."""
    start = 0
    while start < len(text):
        end = start + STRETCH
        if end < len(text):
            half = start + STRETCH // 2
            cuts = (text.rfind(separator, half, end) for separator in "\n ")
            end = next((cut + 1 for cut in cuts if cut >= 0), end)
        yield start, min(end, len(text))
        start = end


def _pieces(text: str, words: int) -> Iterator[_Piece]:
    for sentence in split_sentences(text):
        matches = _WORD.finditer(text, sentence.start, sentence.start + len(sentence.text))
        while some := list(islice(matches, words)):
            yield _Piece(some[0].start(), some[-1].end(), len(some))


def _evenly(counts: Sequence[int], most: int, overlap: int) -> list[tuple[int, int]]:
    """Begin and end of the runs of pieces with ``counts`` words: as few as possible, of even length."""
    best = _packed(counts, most, overlap)
    low, high = max(counts, default=most), most  # the smallest limit that makes no more runs lies here
    while low < high:
        middle = (low + high) // 2
        runs = _packed(counts, middle, overlap)
        if len(runs) <= len(best):
            best, high = runs, middle
        else:
            low = middle + 1
    return best


def _packed(counts: Sequence[int], most: int, overlap: int) -> list[tuple[int, int]]:
    """Begin and end of the longest runs of pieces with at most ``most`` words; no single piece has more."""
    runs: list[tuple[int, int]] = []
    first = end = 0
    while end < len(counts):
        first = max(first + 1, end - overlap) if runs else 0
        total = sum(counts[first:end])
        while total + counts[end] > most:
            total -= counts[first]
            first += 1
        while end < len(counts) and total + counts[end] <= most:
            total += counts[end]
            end += 1
        runs.append((first, end))
    return runs
