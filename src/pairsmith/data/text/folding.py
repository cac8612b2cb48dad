"""Texts reduced to what near-copies have in common."""

import unicodedata


def folded(text: str) -> str:
    """``text`` without case, spaces and punctuation, in which near-copies differ.

    Punctuation between digits stays (1.5 is not 15), and so does a text of nothing but punctuation.
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
