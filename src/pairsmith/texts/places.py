"""Where an answer stands in a passage, though a model wrote it without capitals or with other spaces."""

import re

_PIECE = re.compile(r"\w+|[^\w\s]")


def find_answer(answer: str, passage: str) -> tuple[int, int] | None:
    """The first place of an answer, whatever its capitals and white space; whole words only.

    Args:
        answer: as a model wrote it, such as ``u. s. senate`` for ``U.S. Senate``.
        passage: where to look.

    Returns:
        its first character and the place behind its last; None where it is blank or stands nowhere.
    """
    pieces = _PIECE.findall(answer)
    if not pieces:
        return None
    pattern = r"\s*".join(re.escape(piece) for piece in pieces)
    before = r"(?<!\w)" if pieces[0][0].isalnum() else ""
    behind = r"(?!\w)" if pieces[-1][-1].isalnum() else ""
    found = re.search(f"{before}{pattern}{behind}", passage, re.IGNORECASE)
    return found.span() if found else None
