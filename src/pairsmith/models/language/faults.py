"""Faults for which a sampled text is rejected, whatever the task."""

import unicodedata
from collections.abc import Callable, Mapping

from pairsmith.data.filters import BAD_CHARACTER, EMPTY, LINE_BREAK, NO_END, TOO_LONG
from pairsmith.data.text.words import JOINERS
from pairsmith.models.language.decoder import Ending

TextFault = tuple[str, str]
"""The filter that rejects a text, and the reason."""

_ENDINGS: Mapping[Ending | None, TextFault] = {
    "length": (NO_END, "no quotation mark within the token limit"),
    "end": (NO_END, "the model ended the text without a quotation mark"),
    "uncertified": ("not certified", "the server's lists of likeliest tokens do not prove the next token"),
    "outranked": ("outranked", "a counter-label's prompt makes the text at least as likely"),
    "too long": (TOO_LONG, "the server says that the prompt exceeds the model's context"),
}


_NEEDED = frozenset(f"{JOINERS}\u200b\u200e\u200f\u061c\u00ad")
"""Invisible characters of many languages' texts: joiners, a space without width (Khmer, Thai), the marks of
direction of Arabic and Hebrew, and the soft hyphen."""


def is_printable(character: str) -> bool:
    """Whether a text may contain a character: no control, and nothing that stands for bytes that are no text.

    ``str.isprintable`` alone also excludes all spaces but the ASCII one, such as those within French
    quotation marks and between Japanese names, and characters that spelling needs.
    """
    printable = character.isprintable() or character in _NEEDED or unicodedata.category(character) == "Zs"
    return printable and character != "\ufffd"


def fault_of_text(
    text: str, ending: Ending | None, is_good: Callable[[str], bool] = is_printable
) -> TextFault | None:
    """The filter that rejects a sampled text, with the reason; None if the text is accepted.

    A text must stand on one line and end before a quotation mark. ``ending`` says how the text ended;
    ``is_good`` says whether a text may contain a character.
    """
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    text = text.strip()
    if all(character in _NEEDED or character.isspace() for character in text):
        return EMPTY, "nothing before the quotation mark"
    if text.splitlines() != [text]:
        return LINE_BREAK, "the text holds a line break"
    if bad := next((character for character in text if not is_good(character)), None):
        return BAD_CHARACTER, f"the text holds the character U+{ord(bad):04X}"
    return None
