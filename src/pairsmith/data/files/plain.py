"""Decodes bytes to text, and joins lines that were broken to fit a page."""

import codecs
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pairsmith.data.files.parsed import DocumentFault, Parsed, Section, Unreadable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks, and the encodings that they announce."""
NARROWEST = 40
"""Lines whose longest have fewer characters than this are verses, entries of a list or a program's."""
PAGE_WIDTH = 120
"""Longest line in characters that counts as broken to fit a page."""
_LINE_END = re.compile(r"\r\n?|\n")


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of a file: in the encoding of its byte order mark, else the declared one, else UTF-8.

    Lines end with ``\\n``. Raises ``Unreadable`` for bytes that are none of this encoding, and for NUL
    characters, which no text holds.
    """
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", declared or "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        at = len(mark) + error.start
        bad = f"byte 0x{data[at]:02x}" if at < len(data) else "its end"
        raise Unreadable(
            DocumentFault(
                "encoding", f"not {encoding.upper()}: {bad}", {"byte": at + 1, "line": _line(data, at)}
            )
        ) from None
    if "\x00" in text:
        at = len(mark) + len(text[: text.index("\x00")].encode(encoding, "replace"))
        reason = "byte 0x00: a binary file, or UTF-16 without a byte order mark"
        raise Unreadable(DocumentFault("encoding", reason, {"byte": at + 1, "line": _line(data, at)}))
    return _LINE_END.sub("\n", text)


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def read_text(data: bytes) -> Parsed:
    """A text file as one section without a title."""
    return Parsed([Section("", unwrapped(decode(data)))])


def unwrapped(text: str, slack: float = 1.0) -> str:
    """The text with lines joined that were broken to fit a page; other line ends stay.

    A line was broken if the first word of the next would have made it longer than the page is wide. Where
    that is so of fewer than half of the lines that are followed by another, or where the longest lines have
    fewer than ``NARROWEST`` or more than ``PAGE_WIDTH`` characters, nothing is joined. ``slack`` below 1
    takes a page to be narrower than its longest lines, as lines of a proportional font have different numbers
    of characters.
    """
    lines = text.split("\n")
    followed = [pair for pair in pairwise(lines) if pair[0].strip() and pair[1].strip()]
    if not followed:
        return text
    longest = float(np.quantile([len(one.rstrip()) for one, _ in followed], 0.95))  # but for a few odd ones
    width = slack * longest
    broken = sum(_is_broken(one, other, width) for one, other in followed)
    if longest < NARROWEST or width > PAGE_WIDTH or 2 * broken < len(followed):
        return text
    return "\n".join(_joined(lines, width))


def _is_broken(line: str, following: str, width: float) -> bool:
    return len(line.rstrip()) + 1 + len(following.split(maxsplit=1)[0]) > width


def _joined(lines: Sequence[str], width: float) -> Sequence[str]:
    joined = [lines[0]]
    for line, following in pairwise(lines):
        if line.strip() and following.strip() and _is_broken(line, following, width):
            joined[-1] = f"{joined[-1].rstrip()} {following.strip()}"
        else:
            joined.append(following)
    return joined
