"""Finds a text within another text: an answer in a passage, or any text verbatim."""

import re
import unicodedata

_PIECE = re.compile(r"\w+|[^\w\s]")

_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Letters of scripts that write no spaces between words, or (Korean) that attach particles to words."""


def find_answer(answer: str, passage: str) -> tuple[int, int] | None:
    """Start and end (exclusive), in characters, of an answer's first occurrence in a passage, or None.

    Letter case and white space are ignored, so that ``u. s. senate`` occurs in ``U.S. Senate``. An occurrence
    does not begin or end within a word. A blank answer does not occur.
    """
    pieces = _PIECE.findall(answer)
    if not pieces:
        return None
    pattern = r"\s*".join(re.escape(piece) for piece in pieces)
    before = r"(?<!\w)" if pieces[0][0].isalnum() else ""
    after = r"(?!\w)" if pieces[-1][-1].isalnum() else ""
    match = re.search(f"{before}{pattern}{after}", passage, re.IGNORECASE)
    return match.span() if match else None


def stands_in(part: str, text: str) -> bool:
    """Whether ``part`` occurs verbatim in ``text`` without beginning or ending within a word.

    In scripts that write no spaces between words it may begin and end anywhere.
    """
    start = text.find(part)
    while start >= 0:
        end = start + len(part)
        before, after = text[max(start - 1, 0) : start], text[end : end + 1]
        begins_inside = _in_word(before) and _in_word(part[:1])
        ends_inside = _in_word(part[-1:]) and _in_word(after)
        if not begins_inside and not ends_inside:
            return True
        start = text.find(part, start + 1)
    return False


def _in_word(character: str) -> bool:
    """Whether this is a letter, a mark or a digit of a script that writes spaces between words."""
    return bool(character) and unicodedata.category(character)[0] in "LMN" and not _UNSPACED.match(character)
