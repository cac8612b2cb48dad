"""Texts without what near-copies differ in."""

import unicodedata


def folded(text: str) -> str:
    """``text`` without case, spaces and punctuation: what two near-copies have in common.

    Marks between digits stay (1.5 is not 15), and so does a text of marks alone.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    spaceless = "".join(plain.split())
    kept = [
        c
        for i, c in enumerate(spaceless)
        if unicodedata.category(c)[0] != "P"
        or (spaceless[i - 1 : i].isdigit() and spaceless[i + 1 : i + 2].isdigit())
    ]
    return "".join(kept) or spaceless
