"""The parts of a page, and the page's template, which escapes all texts in the parts."""

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
"""Letters and symbols whose glyphs are blank."""
_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}
"""Unicode categories of invisible characters: controls, formats, separators, surrogates, private use."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A list of names, each with its value."""

    rows: Sequence[tuple[str, str]]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a header; the first ``texts`` columns hold text, the others numbers.

    ``title`` stands above the table, ``note`` below it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    note: str = ""
    title: str = ""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Bars:
    """A horizontal bar for each name, as long as its number is large; numbers are at least 0.

    ``series`` has the number of each bar's colour; without it all bars have the first colour.
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

    ``series`` is the number of the colour at their left edge, the colour that their label has in charts.
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
    """Blocks under a heading; ``level`` is 2 for a section on a whole folder, 3 for a part of it."""

    title: str
    blocks: Sequence[Block]
    level: int = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning: something that is wrong with the data, model or evaluation, and what to do about it."""

    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Below the title stand ``lead``, a few sentences on what the page is about, and a box with the ``verdict``,
    the ``warnings``, and ``checked``, which says what was checked for. The box is green if there are no
    warnings, unless the page ``proves_little``.
    """

    title: str
    sections: Sequence[PageSection]
    warnings: Sequence[Finding] = ()
    lead: Sequence[str] = ()
    verdict: str = ""
    checked: str = ""
    proves_little: bool = False


def render_page(page: Page) -> str:
    """The page as one HTML file; texts are escaped, and its policy forbids scripts and external resources."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = resources.files("pairsmith.tools.report").joinpath("page.html").read_text(encoding="utf-8")
    highest = min((section.level for section in page.sections), default=2)
    chapters = [
        (place, section.title)
        for place, section in enumerate(page.sections, start=1)
        if section.level == highest
    ]
    # The sections of the lowest level number have h2 headings, also if that number is 3.
    return environment.from_string(source).render(page=page, chapters=chapters, up=highest - 2)


def column_words(name: str) -> str:
    """A column's name as the page shows it: ``sentence1`` as ``sentence 1``, underscores as spaces."""
    return _COLUMNS.get(name, name.replace("_", " "))


_COLUMNS = {"sentence1": "sentence 1", "sentence2": "sentence 2"}


def shown_text(text: str, longest: int = SHOWN_CHARACTERS, *, length: int | None = None) -> str:
    """A text as the page shows it: cut after ``longest`` characters, with names for invisible characters.

    Without the names, direction marks would reverse the rest of the page, and control characters would stop
    some programs from reading it. ``length`` is the number of characters of the whole text if ``text`` is
    only its beginning.
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
    """``part`` as a percentage of ``total``; a dash if ``total`` is 0."""
    return f"{100 * part / total:.1f} %" if total else "–"
