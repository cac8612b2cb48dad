"""Decodes the bytes of text files, and joins lines that were broken to fit a page."""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pairsmith.data.files.parsed import DocumentFault, Parsed, Section, Unreadable
from pairsmith.data.text.words import is_unspaced

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks, and the encodings that they announce."""
NARROWEST = 40
"""Texts whose longest lines have fewer characters than this are not joined: verse, lists or programs."""
PAGE_WIDTH = 120
"""Texts whose longest lines have more characters than this are not joined: no line was broken."""
_LINE_END = re.compile(r"\r\n?|\n")
_UNBROKEN = re.compile(r"\W*\w[\Wぁぃぅぇぉっゃゅょァィゥェォッャュョー]*")
"""A letter of Chinese or Japanese with the marks that stay on its line: no line begins with a closing mark or
a small letter, and none ends with an opening mark."""
_LONGEST_THAI = 12
"""The number of letters of a long word in Thai, and in other scripts without spaces that divide no words."""


def decode(data: bytes, declared: str | None = None) -> str:
    """Decode a file in the encoding of its byte order mark, else the encoding ``declared``, else UTF-8.

    All line ends are converted to ``\\n``.

    Raises:
        Unreadable: the bytes are not valid in this encoding, or the text has a NUL character.
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
    """The number, from 1, of the line that contains byte ``at``."""
    return data.count(b"\n", 0, at) + 1


def read_text(data: bytes) -> Parsed:
    """A text file as one section without a title."""
    return Parsed([Section("", unwrapped(decode(data)))])


def unwrapped(text: str, slack: float = 1.0) -> str:
    """Join the lines that were broken to fit a page; all other line breaks are kept.

    A line counts as broken if the first word of the next line would not have fitted on it. Nothing is joined
    if fewer than half of the lines that are followed by another were broken, or if the longest lines have
    fewer than ``NARROWEST`` or more than ``PAGE_WIDTH`` characters. Letters of Chinese, Japanese and Korean
    count as two.

    Args:
        text: the text, with lines that end with ``\\n``.
        slack: the width of the page as a share of the length of the longest lines, both in characters. It is
            below 1 for proportional fonts, in which full lines have different numbers of characters.
    """
    lines = text.split("\n")
    pairs = [pair for pair in pairwise(lines) if pair[0].strip() and pair[1].strip()]
    if not pairs:
        return text
    # The 95 % quantile, so that a few lines that are too long do not count.
    longest = float(np.quantile([_columns(line.rstrip()) for line, _ in pairs], 0.95))
    width = slack * longest
    broken = sum(_is_broken(line, following, width) for line, following in pairs)
    if longest < NARROWEST or width > PAGE_WIDTH or 2 * broken < len(pairs):
        return text
    return "\n".join(_joined(lines, width))


def _is_broken(line: str, following: str, width: float) -> bool:
    """Whether the first word of the following line would not have fitted on this line."""
    return _columns(line.rstrip()) + _columns(_first_word(following)) > width


def _first_word(line: str) -> str:
    """The beginning of a line up to the first place for a break, with a space before it if words have one."""
    word = line.split(maxsplit=1)[0]
    if not _breaks_anywhere(word[0]):
        return f" {word}"
    if unicodedata.east_asian_width(word[0]) == "N":  # Thai and others; finding words takes a dictionary
        return word[:_LONGEST_THAI]
    unbroken = _UNBROKEN.match(word)
    return unbroken[0] if unbroken else word


def _breaks_anywhere(character: str) -> bool:
    """Whether a line may be broken before or after this character, without a space."""
    return is_unspaced(character) or "\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uff65"


def _columns(text: str) -> int:
    """The width of a text: letters of Chinese, Japanese and Korean are as wide as two others."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _joined(lines: Sequence[str], width: float) -> Sequence[str]:
    joined = [lines[0]]
    for line, following in pairwise(lines):
        if line.strip() and following.strip() and _is_broken(line, following, width):
            before, after = joined[-1].rstrip(), following.strip()
            spaceless = _breaks_anywhere(before[-1]) and _breaks_anywhere(after[0])
            joined[-1] = f"{before}{after}" if spaceless else f"{before} {after}"
        else:
            joined.append(following)
    return joined
