"""Finds a text in another: an answer in a passage, or any text verbatim."""

import re
import unicodedata

_PIECE = re.compile(r"\w+|[^\w\s]")

_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces between words, or (Korean) with particles attached to words."""


def find_answer(answer: str, passage: str) -> tuple[int, int] | None:
    """Start and end (exclusive) in characters of an answer's first place in a passage; None if there is none.

    Case and white space are ignored, as in ``u. s. senate`` for ``U.S. Senate``; only whole words are found.
    A blank answer has no place.
    """
    pieces = _PIECE.findall(answer)
    if not pieces:
        return None
    pattern = r"\s*".join(re.escape(piece) for piece in pieces)
    before = r"(?<!\w)" if pieces[0][0].isalnum() else ""
    behind = r"(?!\w)" if pieces[-1][-1].isalnum() else ""
    match = re.search(f"{before}{pattern}{behind}", passage, re.IGNORECASE)
    return match.span() if match else None


def stands_in(part: str, text: str) -> bool:
    """Whether ``part`` occurs verbatim in ``text``, and does not begin or end inside a word.

    In scripts without spaces between words it may occur anywhere.
    """
    start = text.find(part)
    while start >= 0:
        end = start + len(part)
        before, behind = text[max(start - 1, 0) : start], text[end : end + 1]
        begins_inside = _in_word(before) and _in_word(part[:1])
        if not begins_inside and not (_in_word(part[-1:]) and _in_word(behind)):
            return True
        start = text.find(part, start + 1)
    return False


def _in_word(letter: str) -> bool:
    """Whether this is a letter, a mark or a digit of a script with spaces between words."""
    return bool(letter) and unicodedata.category(letter)[0] in "LMN" and not _UNSPACED.match(letter)
