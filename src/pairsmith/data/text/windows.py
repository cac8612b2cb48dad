"""Splits a text into sentences, and into windows: runs of sentences that fit into a model's context (Q1).

``nupunkt`` finds the ends of sentences. It knows English abbreviations, initials and quotation marks, is
written in Python, and takes linear time. A line break always ends a sentence, because in news corpora it ends
a paragraph or a heading, and headings have no full stop. So do the full stops of Chinese, Hindi and other
languages that have their own (``_STOPS``).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from nupunkt import sentence_spans

PASSAGE_TOKENS = 456
"""Default length in tokens, without special tokens, of the longest passage."""

_CHARACTERS = 100
"""The beginning of a text is measured first if the text has more characters than this times the limit, in
tokens or words."""
_KEPT_LENGTHS = 2**16
"""Number of words whose lengths are cached, as most words of a text occur often."""

_WORD = re.compile(r"\S+")
# Form feed, next line and the two Unicode separators end a line, too.
_BREAKS = r"\n\r\v\f\x85\u2028\u2029"
# Marks that end sentences and that nupunkt does not know: those of Chinese and Japanese, which no space
# follows; of Hindi and other languages of India; of Arabic, Persian and Urdu; of Armenian, Amharic, Burmese
# and Khmer.
_STOPS = "。！？｡।॥؟۔։።፧။។៕"
_CLOSING = "」』）】》”’»"
# A run of characters up to a line break or one of these marks. A mark before a closing bracket does not end
# the sentence around the bracket, nor does it before another mark, as in "?!".
_STRETCH = re.compile(
    rf"(?:[^{_BREAKS}{_STOPS}]+|[{_STOPS}](?=[{_CLOSING}{_STOPS}.!?…]))+[{_STOPS}]?|[{_STOPS}]"
)

_ENDED = re.compile(rf"[.!?…:{_STOPS}][{_CLOSING}\"'`)\]*_]*\Z")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text, and the offset of its first character in the text."""

    text: str
    start: int


def with_full_stop(text: str) -> str:
    """``text`` without white space around it, and with an end like that of a sentence.

    A full stop is added, unless the text is blank or already ends with a mark that ends a sentence.
    """
    text = text.strip()
    return f"{text}." if text and not _ENDED.search(text) else text


def split_sentences(text: str) -> list[TextPart]:
    """The sentences of a text, in order, in English or a language with the same marks or marks of ``_STOPS``.

    Thai marks no sentences, so that a line is one.

    Lines that were broken to fit a page have to be joined before. The sentences do not overlap, and there is
    only white space between them; ``text[start : start + len(sentence.text)]`` is the sentence. A blank text
    has no sentences.
    """
    return [
        TextPart(stretch[0][start:end], stretch.start() + start)
        for stretch in _STRETCH.finditer(text)
        for start, end in sentence_spans(stretch[0], paragraph_breaks=False)
    ]


def windows(text: str, limit: int, length: Callable[[str], int]) -> list[TextPart]:
    """Cut a text, from its beginning on, into the longest runs of whole sentences within a limit (Q1).

    The windows are in order and do not overlap. There is only white space between them, and
    ``text[start : start + len(window.text)]`` is the window. A sentence above the limit is cut at spaces into
    windows of its own. Only a window of a single word can be above the limit.

    Args:
        text: the text.
        limit: the largest length of a window, 1 or more, in words or tokens.
        length: returns the length of a text in the unit of ``limit``, such as ``count_words`` or the number
            of tokens without special tokens. The length must not decrease when a text is extended.
    """
    if limit < 1:
        raise ValueError(f"a window needs a limit of 1 or more, got {limit}")
    return [
        TextPart(text[start:end], start)
        for pieces in _runs(text, limit, length)
        for start, end in _packed(pieces, text, limit, length)
    ]


def is_within(text: str, limit: int, length: Callable[[str], int]) -> bool:
    """Whether the length of a text is within a limit; for ``length`` see ``windows``."""
    return _measured(text, limit, length) <= limit


def _measured(text: str, limit: int, length: Callable[[str], int]) -> int:
    """The length of a text, or of its beginning if the beginning alone is above the limit.

    This is faster: tokenizers take minutes for a text of megabytes. The beginning consists of whole words, as
    a part of a long word may have more tokens than the word, which WordPiece replaces by one unknown token.
    """
    end = _CHARACTERS * limit
    while end < len(text):
        beginning = text[:end].rsplit(maxsplit=1)
        if (measured := length(beginning[0] if len(beginning) == 2 else text[:end])) > limit:
            return measured
        end *= 8
    return length(text)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence or a word of a text."""

    start: int  # the offset of its first character
    end: int  # the offset after its last character
    length: int  # its length by itself, as ``_measured`` returns it


def _runs(text: str, limit: int, length: Callable[[str], int]) -> Iterator[Sequence[_Piece]]:
    """Runs of sentences of which each is within the limit, and the words of each sentence above the limit."""
    length_of_word = lru_cache(_KEPT_LENGTHS)(partial(_measured, limit=limit, length=length))
    run: list[_Piece] = []
    for sentence in split_sentences(text):
        end = sentence.start + len(sentence.text)
        piece = _Piece(sentence.start, end, _measured(sentence.text, limit, length))
        if piece.length <= limit:
            run.append(piece)
            continue
        yield run
        run = []
        words = _WORD.finditer(text, piece.start, piece.end)
        # With a space before it, a word has the same tokens as after another word.
        yield [_Piece(word.start(), word.end(), length_of_word(f" {word[0]}")) for word in words]
    yield run


def _packed(
    pieces: Sequence[_Piece], text: str, limit: int, length: Callable[[str], int]
) -> Iterator[tuple[int, int]]:
    """Start and end of each of the longest runs of pieces within the limit; a run has at least one piece."""

    def fits(first: int, last: int) -> bool:
        return is_within(text[pieces[first].start : pieces[last].end], limit, length)

    first, end = 0, len(pieces)
    while first < end:
        # The sum of the pieces' lengths approximates the run's length, so few calls of ``length`` follow.
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


def passage_limit(tokenizer: Any, max_length: int | None, context: int | None = None) -> int:
    """The length in tokens, without special tokens, of the longest passage that a model is given.

    Args:
        tokenizer: the model's tokenizer, of transformers.
        max_length: the requested length in tokens without special tokens; None: ``PASSAGE_TOKENS``. The
            result is smaller if the model's context is.
        context: the number of tokens of the model's context, with special tokens; None: the tokenizer's
            ``model_max_length``.
    """
    room = (context or int(tokenizer.model_max_length)) - int(tokenizer.num_special_tokens_to_add())
    return max(1, min(max_length or PASSAGE_TOKENS, room))


def passages(text: str, limit: int, tokenizer: Any) -> list[TextPart]:
    """Cut a text into the longest runs of whole sentences that have at most ``limit`` tokens (Q1).

    ``limit``, 1 or more, does not include special tokens; ``tokenizer`` is one of transformers. Sentences
    above the limit are cut as by ``windows``.
    """
    return windows(text, limit, lambda part: token_count(part, tokenizer))


def token_count(text: str, tokenizer: Any) -> int:
    """The number of tokens of a text, without special tokens; their names in the text are ordinary text."""
    how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    return len(tokenizer(text, **how)["input_ids"])
