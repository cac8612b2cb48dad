"""Splitting a text into windows: runs of whole sentences that a model can read at once (Q1)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pairsmith.data.text.sentences import split_sentences

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text, and the offset of its first character there."""

    text: str
    start: int


def count_words(text: str) -> int:
    """The number of words in ``text``, separated by white space: a ``length`` for ``windows``."""
    return len(text.split())


def windows(text: str, limit: int, length: Callable[[str], int]) -> list[Window]:
    """Cut a text, from its beginning on, into the longest runs of whole sentences within a limit (Q1).

    Args:
        text: any text.
        limit: the largest length of a window, 1 or more.
        length: the length of a text in the unit of ``limit``, e.g. ``count_words`` or the number of tokens
            without special tokens; a longer text must never count less.

    Returns:
        windows in order, which do not overlap; there is only white space between two, and
        ``text[start : start + len(window.text)]`` is the window. A sentence above the limit is cut at spaces
        into windows of its own. Only a window of a single word can be above ``limit``.
    """
    if limit < 1:
        raise ValueError(f"a window needs a limit of 1 or more, got {limit}")
    return [
        Window(text[start:end], start)
        for pieces in _runs(text, limit, length)
        for start, end in _packed(pieces, text, limit, length)
    ]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence or a word: where it begins and ends, and its own length."""

    start: int
    end: int
    length: int


def _runs(text: str, limit: int, length: Callable[[str], int]) -> Iterator[Sequence[_Piece]]:
    """Runs of sentences within the limit, and the words of each sentence above it."""
    run: list[_Piece] = []
    for sentence in split_sentences(text):
        piece = _Piece(sentence.start, sentence.start + len(sentence.text), length(sentence.text))
        if piece.length <= limit:
            run.append(piece)
            continue
        yield run
        run = []
        words = _WORD.finditer(text, piece.start, piece.end)
        yield [_Piece(word.start(), word.end(), length(word[0])) for word in words]
    yield run


def _packed(
    pieces: Sequence[_Piece], text: str, limit: int, length: Callable[[str], int]
) -> Iterator[tuple[int, int]]:
    """Begin and end of the longest runs of pieces within the limit; each holds at least one piece."""

    def fits(first: int, last: int) -> bool:
        return length(text[pieces[first].start : pieces[last].end]) <= limit

    first, end = 0, len(pieces)
    while first < end:
        # The sum of the lengths is near the length of the whole, so that few calls of ``length`` are needed.
        last, total = first, pieces[first].length
        while last + 1 < end and total + pieces[last + 1].length <= limit:
            last += 1
            total += pieces[last].length
        while last > first and not fits(first, last):
            last -= 1
        while last + 1 < end and fits(first, last + 1):
            last += 1
        yield pieces[first].start, pieces[last].end
        first = last + 1
