"""Normalises texts so that near-copies compare equal."""

import re
import unicodedata

_PUNCTUATION = "".join(c for c in map(chr, range(128)) if unicodedata.category(c)[0] == "P")
_BETWEEN_NO_DIGITS = re.compile(f"(?<![0-9])[{re.escape(_PUNCTUATION)}]|[{re.escape(_PUNCTUATION)}](?![0-9])")


def folded(text: str) -> str:
    """``text`` without case, spaces and punctuation, in which near-copies differ.

    Punctuation between digits stays (1.5 is not 15), and so does a text of nothing but punctuation.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    spaceless = "".join(plain.split())
    if spaceless.isascii():  # the same, in less than half the time
        return _BETWEEN_NO_DIGITS.sub("", spaceless) or spaceless
    kept = [
        c
        for i, c in enumerate(spaceless)
        if unicodedata.category(c)[0] != "P"
        or (spaceless[i - 1 : i].isdigit() and spaceless[i + 1 : i + 2].isdigit())
    ]
    return "".join(kept) or spaceless
