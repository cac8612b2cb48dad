"""HTML and Markdown as sections: headings become titles, and everything that is not read as text is left out.

Markdown is turned into HTML by ``markdown-it-py`` first. ``lxml`` reads HTML, also where it is faulty.
"""

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import yaml

from pairsmith.core.errors import MissingExtra
from pairsmith.data.files.parsed import Fault, Parsed, Section, joined_titles
from pairsmith.data.files.plain import decode

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LEFT_OUT = frozenset({
    "script", "style", "noscript", "template", "nav", "head", "svg", "math", "iframe", "object", "button",
    "select", "textarea",
})  # fmt: skip
"""What is not read as text: programs, navigation, and forms."""
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "li",
    "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
"""What begins and ends a line."""
_CELLS = frozenset({"td", "th"})
TITLE_WORDS = 40
"""A heading of more words than this is a paragraph."""
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def read_html(data: bytes) -> Parsed:
    """The sections of an HTML page.

    Its encoding is that of its byte order mark, else what it declares, else UTF-8. Of a page with one
    ``<main>`` only that is read.
    """
    return parse_html(decode(data, _declared(data)))


def read_markdown(data: bytes) -> Parsed:
    """The sections of a Markdown file (CommonMark, with tables); a title in its front matter is used."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise MissingExtra("markdown-it-py", "documents") from None

    text, title = decode(data), ""
    if front := _FRONT.match(text):
        text = text[front.end() :]
        with suppress(yaml.YAMLError, AttributeError):
            title = str(yaml.safe_load(front[1]).get("title") or "")
    return parse_html(MarkdownIt("commonmark").enable("table").render(text), title)


def _declared(data: bytes) -> str | None:
    """The encoding that the first bytes of a page declare, if it is known."""
    found = _DECLARED.search(data[:2_048])
    if found is None:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii", "replace")).name
    except LookupError:
        return None
    # Browsers too read what calls itself Latin-1 as Windows' superset of it, and UTF-16 as UTF-8.
    return {"iso8859-1": "cp1252", "ascii": "cp1252", "utf-16": None, "utf-16-le": None}.get(name, name)


def parse_html(page: str, title: str = "") -> Parsed:
    """The sections of an HTML page, in order; a page that is nested too deep is read up to there.

    The document's title is its only ``<h1>``; where there are several or none, it is ``title``, or else that
    of the page's head.
    """
    try:
        from lxml import etree, html
    except ImportError:
        raise MissingExtra("lxml", "documents") from None

    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(page.encode(), parser=parser)
    except etree.ParserError:  # a page without anything
        return Parsed([])
    tops = root.findall(".//h1")
    given = title or " ".join((root.findtext(".//head/title") or "").split())
    first = " ".join("".join(tops[0].itertext()).split()) if len(tops) == 1 else ""
    document = first if 0 < len(first.split()) <= TITLE_WORDS else given
    mains = root.findall(".//main")
    reader = _Page(document)
    top = mains[0] if len(mains) == 1 else root
    walk: Any = etree.iterwalk(top, events=("start", "end"))
    for event, element in walk:
        if event == "start":
            if element.tag in _LEFT_OUT:
                walk.skip_subtree()
            else:
                reader.begin(element.tag, element.text or "")
        else:
            tail = "" if element is top else element.tail or ""
            reader.end(element.tag, tail)
    fatal = [error.message for error in parser.error_log if error.level == etree.ErrorLevels.FATAL]
    fault = Fault("damaged HTML", "not all of it can be read", {"error": fatal[0]}) if fatal else None
    return Parsed(reader.sections(), [fault] if fault else [])


class _Page:
    """A page while it is read: its sections so far, and the line that is being read."""

    def __init__(self, document: str) -> None:
        self._document = document
        self._headings: list[tuple[int, str]] = []  # those above the line, by level
        self._sections: list[Section] = []
        self._lines: list[str] = []
        self._line: list[str] = []
        self._verbatim = 0  # how many <pre> the line stands in

    def begin(self, tag: str, text: str) -> None:
        """Go into an element with this text before its first child."""
        if tag in _BLOCKS or tag in _HEADINGS:
            self._end_line()
        if tag in _CELLS and "".join(self._line).strip():
            self._line.append(" | ")
        self._verbatim += tag == "pre"
        self._add(text)

    def end(self, tag: str, tail: str) -> None:
        """Leave an element with this text behind it."""
        if tag in _HEADINGS:
            self._end_heading(_HEADINGS[tag])
        elif tag in _BLOCKS:
            self._end_line()
        self._verbatim -= tag == "pre"
        self._add(tail)

    def sections(self) -> Sequence[Section]:
        """All sections that have text."""
        self._end_section()
        return self._sections

    def _add(self, text: str) -> None:
        first, *others = text.split("\n") if self._verbatim else [text]
        self._line.append(first)
        for each in others:
            self._end_line()
            self._line.append(each)

    def _end_line(self) -> None:
        text = "".join(self._line)
        self._line = []
        if plain := " ".join(text.split()):
            self._lines.append(text.rstrip() if self._verbatim else plain)

    def _end_heading(self, level: int) -> None:
        heading = " ".join("".join(self._line).split())
        if len(heading.split()) > TITLE_WORDS:
            self._end_line()
            return
        self._line = []
        self._end_section()
        self._headings = [each for each in self._headings if each[0] < level]
        self._headings.append((level, heading))

    def _end_section(self) -> None:
        self._end_line()
        if self._lines:
            title = joined_titles([self._document, *(heading for _, heading in self._headings)])
            self._sections.append(Section(title, "\n".join(self._lines)))
        self._lines = []
