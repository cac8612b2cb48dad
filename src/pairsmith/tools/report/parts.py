"""The parts of a page and its template. All texts in them are plain data, which the template escapes."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

SHOWN_CHARACTERS = 600
"""Longest text that is shown, in characters."""

_JOINERS = "\u200c\u200d"
"""Zero-width joiners, which many scripts and emoji need."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that are drawn as blanks."""
_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}
"""Unicode categories of invisible characters: controls, formats, separators, surrogates, private use."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values as a list."""

    rows: Sequence[tuple[str, str]]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a header; all columns but the first ``texts`` hold numbers; ``note`` stands below it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    note: str = ""
    title: str = ""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Bars:
    """A horizontal bar for each name, with its number; numbers are at least 0.

    ``series`` has for each bar the number of its colour; without it all have the first one.
    """

    rows: Sequence[tuple[str, float]]
    caption: str = ""
    unit: str = ""
    series: Sequence[int] = ()
    kind: Literal["bars"] = "bars"

    def drawn(self) -> Iterator[tuple[str, str, str, int]]:
        """For each bar its name, its number with the unit, its width in per cent, and its colour."""
        longest = max((value for _, value in self.rows), default=0) or 1
        for place, (name, value) in enumerate(self.rows):
            figure = f"{value:,g}" if value < 1e6 else f"{value:,.0f}"
            colour = self.series[place] if self.series else 0
            unit = self.unit.removesuffix("s") if value == 1 else self.unit
            yield shown_text(name, 100), f"{figure}{unit}", f"{70 * value / longest:.1f}", colour


@dataclass(frozen=True, slots=True)
class Chart:
    """An SVG image with a caption."""

    svg: Markup
    caption: str
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True, slots=True)
class ExampleRows:
    """Example rows, each with a mark, such as its score, and its texts by column name.

    ``series`` is the number of the colour at their edge, that of their label in charts.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    series: int | None = None
    kind: Literal["examples"] = "examples"


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph."""

    text: str
    kind: Literal["note"] = "note"


Block = Facts | Table | Bars | Chart | ExampleRows | Note


@dataclass(frozen=True, slots=True)
class PageSection:
    """Blocks under a heading; ``level`` 2 is a folder, 3 a part of it."""

    title: str
    blocks: Sequence[Block]
    level: int = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with what the page is about, and what to do about it."""

    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Below its title stand ``lead``, which says in a few sentences what the page is about, and a box with the
    ``verdict``, the ``warnings``, and what was ``checked``.
    """

    title: str
    sections: Sequence[PageSection]
    warnings: Sequence[Finding] = ()
    lead: Sequence[str] = ()
    verdict: str = ""
    checked: str = ""


def render_page(page: Page) -> str:
    """The page as one HTML file with texts escaped, whose policy forbids scripts and external resources."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = resources.files("pairsmith.tools.report").joinpath("page.html").read_text(encoding="utf-8")
    highest = min((section.level for section in page.sections), default=2)
    chapters = [
        (place, section.title)
        for place, section in enumerate(page.sections, start=1)
        if section.level == highest
    ]
    # Headings of the highest level are h2, whatever they are about.
    return environment.from_string(source).render(page=page, chapters=chapters, up=highest - 2)


def column_words(name: str) -> str:
    """A column's name as it is shown: ``sentence1`` as ``sentence 1``, others without underscores."""
    return _COLUMNS.get(name, name.replace("_", " "))


_COLUMNS = {"sentence1": "sentence 1", "sentence2": "sentence 2"}


def shown_text(text: str, longest: int = SHOWN_CHARACTERS, *, length: int | None = None) -> str:
    """A text as it is shown: shortened if it is long, with invisible characters written as their names.

    ``length`` is the number of its characters where only its beginning is given.

    Direction marks would otherwise reverse the rest of the page, and control characters stop some
    programs from reading it.
    """
    pieces: list[str] = []
    room = longest
    for place, character in enumerate(text):
        written = _visible(character)
        room -= len(written)
        if room < 0:
            return f"{''.join(pieces)}… ({length or len(text):,} characters)" if place else "…"
        pieces.append(written)
    return "".join(pieces)


def _visible(character: str) -> str:
    if character in "\n\t" or character in _JOINERS:
        return character
    if character in _BLANK or unicodedata.category(character) in _UNSEEN:
        return f"⟨{unicodedata.name(character, f'U+{ord(character):04X}')}⟩"
    return character


def number(value: float, places: int = 1) -> str:
    """A number with thousands separators; ``places`` decimals unless it is an int."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def percent(part: float, total: float) -> str:
    """``part`` as a percentage of ``total``; a dash where ``total`` is 0."""
    return f"{100 * part / total:.1f} %" if total else "–"
