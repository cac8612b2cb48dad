"""Finds a text within another text: an answer in a passage, or any text verbatim."""

import re
import unicodedata

from pairsmith.data.text.words import UNSPACED, WORD

_PIECE = re.compile(rf"{WORD}|[^\s]")

_UNBOUNDED = re.compile(f"[{UNSPACED}\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]")
"""Letters of scripts that write no spaces between words, or (Korean) that attach particles to words."""


def find_answer(answer: str, passage: str) -> tuple[int, int] | None:
    """Start and end (exclusive), in characters, of an answer's first occurrence in a passage, or None.

    Letter case and white space are ignored, so that ``u. s. senate`` occurs in ``U.S. Senate``. Letters with
    marks may be composed in one text (NFC) and decomposed in the other (NFD). An occurrence does not
    begin or end within a word, except in scripts that write no spaces between words. A blank answer does not
    occur.
    """
    pieces = _PIECE.findall(answer)
    if not pieces:
        return None
    pattern = re.compile(r"\s*".join(map(_in_either_form, pieces)), re.IGNORECASE)
    match = pattern.search(passage)
    while match:
        if _is_bounded(passage, *match.span()):
            return match.span()
        match = pattern.search(passage, match.start() + 1)
    return None


def _in_either_form(piece: str) -> str:
    """A regular expression for a word or sign with composed letters, or with bases and marks."""
    forms = dict.fromkeys([piece, unicodedata.normalize("NFC", piece), unicodedata.normalize("NFD", piece)])
    return f"(?:{'|'.join(map(re.escape, forms))})" if len(forms) > 1 else re.escape(piece)


def stands_in(part: str, text: str) -> bool:
    """Whether ``part`` occurs verbatim in ``text`` without beginning or ending within a word.

    In scripts that write no spaces between words it may begin and end anywhere.
    """
    start = text.find(part)
    while start >= 0:
        if _is_bounded(text, start, start + len(part)):
            return True
        start = text.find(part, start + 1)
    return False


def _is_bounded(text: str, start: int, end: int) -> bool:
    """Whether the part of a text neither begins nor ends within a word."""
    before, first, last, after = (
        text[place : place + 1] if place >= 0 else "" for place in (start - 1, start, end - 1, end)
    )
    return not (_in_word(before) and _in_word(first)) and not (_in_word(last) and _in_word(after))


def _in_word(character: str) -> bool:
    """Whether this is a letter, a mark or a digit of a script that writes spaces between words."""
    return bool(character) and unicodedata.category(character)[0] in "LMN" and not _UNBOUNDED.match(character)
