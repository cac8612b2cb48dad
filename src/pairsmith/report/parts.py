"""What a page consists of. Texts in it are data: the template escapes them, whatever they hold."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup

LONGEST = 600
"""Characters that are shown of a text at most."""

_JOINERS = "\u200c\u200d"
"""Part of many scripts and of emoji."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs that nobody sees."""
_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}
"""Kinds of characters that are no letters, digits, signs or blanks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one below the other."""

    rows: Sequence[tuple[str, str]]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with a head; all but the first ``texts`` of them hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    note: str = ""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Chart:
    """An SVG image, and in words what it shows."""

    svg: Markup
    caption: str
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows: of each what it is marked with, and its texts by the names of their columns."""

    title: str
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    kind: Literal["examples"] = "examples"


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph."""

    text: str
    kind: Literal["note"] = "note"


Block = Facts | Table | Chart | Examples | Note


@dataclass(frozen=True, slots=True)
class Section:
    """Something with a heading; ``level`` 2 is a folder, 3 a part of what there is to say of it."""

    title: str
    blocks: Sequence[Block]
    level: int = 3


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Attributes:
        title: of the page.
        sections: in their order.
        warnings: what a reader should see first.
    """

    title: str
    sections: Sequence[Section]
    warnings: Sequence[str] = field(default_factory=tuple)


def shown(text: str, longest: int = LONGEST) -> str:
    """A text as it is shown: cut where it is long, characters that nobody sees made visible.

    Marks that turn the direction of writing would turn the rest of the page, and control characters end
    some readers of it.
    """
    found: list[str] = []
    left = longest
    for place, character in enumerate(text):
        written = _visible(character)
        left -= len(written)
        if left < 0:
            return f"{''.join(found)}… ({len(text):,} characters)" if place else "…"
        found.append(written)
    return "".join(found)


def _visible(character: str) -> str:
    if character in "\n\t" or character in _JOINERS:
        return character
    if character in _BLANK or unicodedata.category(character) in _UNSEEN:
        return f"⟨{unicodedata.name(character, f'U+{ord(character):04X}')}⟩"
    return character


def number(value: float, places: int = 1) -> str:
    """A number for people."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def percent(part: float, whole: float) -> str:
    """A share in per cent; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "–"
