"""Converts HTML and Markdown to sections: headings become titles; scripts, navigation and forms are left out.

Markdown is first converted to HTML by ``markdown-it-py``. HTML is parsed by ``lxml``, which accepts faulty
HTML.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from pairsmith.core.errors import MissingExtra
from pairsmith.data.files.parsed import DocumentFault, Parsed, Section, joined_titles
from pairsmith.data.files.plain import decode

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LEFT_OUT = frozenset({
    "script", "style", "noscript", "template", "nav", "head", "svg", "math", "iframe", "object", "button",
    "select", "textarea",
})  # fmt: skip
"""Elements that are not read as text: scripts, navigation, and forms."""
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "li",
    "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
"""Elements that begin and end a line of text."""
_CELLS = frozenset({"td", "th"})
TITLE_WORDS = 40
"""Largest number of words of a title; a longer heading is read as a paragraph."""
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_OF_PYTHON = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
"""Encodings that Python knows and no web page uses."""
_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def read_html(data: bytes) -> Parsed:
    """The sections of an HTML page.

    The encoding is that of the byte order mark, else the declared one, else UTF-8. If the page has exactly
    one ``<main>`` element, only this element is read.
    """
    return parse_html(decode(data, _declared(data)))


def read_markdown(data: bytes) -> Parsed:
    """The sections of a Markdown file (CommonMark, with tables); the front matter may give its title."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise MissingExtra("markdown-it-py", "documents") from None

    text, title = decode(data), ""
    front = _FRONT.match(text)
    if front:
        text, properties = text[front.end() :], _properties(front[1])
        # Text between two horizontal rules is no front matter. The rules are removed, because Markdown would
        # take the second for the underline of a heading.
        if properties is None:
            text = f"{front[1]}\n{text}"
        else:
            title = properties.get("title", "")
    return parse_html(MarkdownIt("commonmark").enable("table").render(text), title)


def _properties(text: str) -> Mapping[str, str] | None:
    """The properties in a YAML mapping, with scalar values as text; None if the YAML is not a mapping.

    Values are not converted to Python objects, which fails for impossible dates and deeply nested lists.
    """
    nodes: list[str] | None = None  # the mapping's keys and values, alternating
    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.NodeEvent) and depth == 0:
                if not isinstance(event, yaml.MappingStartEvent):
                    return None
                nodes = []
            elif isinstance(event, yaml.NodeEvent) and depth == 1 and nodes is not None:
                nodes.append(_value(event))
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
    except Exception:  # PyYAML raises errors besides its own, such as for numbers in escape sequences
        return None
    return None if nodes is None else dict(zip(nodes[::2], nodes[1::2], strict=True))


def _value(node: Any) -> str:
    """A scalar value as text, unconverted; empty for null, lists and mappings."""
    if not isinstance(node, yaml.ScalarEvent):
        return ""
    value = str(node.value)
    return "" if node.style is None and value.lower() in ("null", "~") else value


def _declared(data: bytes) -> str | None:
    """The encoding that a page declares in its first 2,048 bytes; None if it declares none that is known."""
    declaration = _DECLARED.search(data[:2_048])
    if declaration is None:
        return None
    try:
        codec = codecs.lookup(declaration[1].decode("ascii", "replace"))
    except LookupError:
        return None
    # The declaration was found in ASCII bytes, so the page is not UTF-16; browsers read it as UTF-8.
    if not codec._is_text_encoding or codec.name in _OF_PYTHON or codec.name.startswith(("utf-16", "utf-32")):
        return None
    # Like browsers, read pages that declare Latin-1 or ASCII as Windows-1252, a superset of both.
    return {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(codec.name, codec.name)


def parse_html(page: str, title: str = "") -> Parsed:
    """The sections of an HTML page, in order.

    The document's title is its only ``<h1>``. If there are several or none, it is ``title`` or, if this is
    empty, the ``<title>`` of the page's head. A page that is nested too deep for the parser is read up to
    that point, and has a fault.
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
    top_headings = root.findall(".//h1")
    page_title = title or " ".join((root.findtext(".//head/title") or "").split())
    heading = _text_of(top_headings[0]) if len(top_headings) == 1 else ""
    document_title = heading if 0 < len(heading.split()) <= TITLE_WORDS else page_title
    mains = root.findall(".//main")
    reader = _Page(document_title)
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
    fault = DocumentFault("damaged HTML", "not all of it can be read", {"error": fatal[0]}) if fatal else None
    return Parsed(reader.sections(), [fault] if fault else [])


def _text_of(heading: Any) -> str:
    """The text of a heading's element, on one line."""
    from lxml import etree

    parts: list[str] = []
    walk: Any = etree.iterwalk(heading, events=("start", "end"))
    for event, element in walk:
        if event == "end":
            parts.append("" if element is heading else element.tail or "")
        elif element.tag in _LEFT_OUT:
            walk.skip_subtree()
        else:
            parts.append(" " if element.tag == "br" else element.text or "")
    return " ".join("".join(parts).split())


class _Page:
    """The state of reading a page: the completed sections, and the section and the line being read."""

    def __init__(self, document_title: str) -> None:
        self._document_title = document_title
        self._headings: list[tuple[int, str]] = []  # level and text of the headings above the current section
        self._sections: list[Section] = []
        self._lines: list[str] = []  # the lines of the current section
        self._line: list[str] = []  # the parts of the current line
        self._heading = 0  # the number of heading elements that are open
        self._verbatim = 0  # the number of <pre> elements that are open

    def begin(self, tag: str, text: str) -> None:
        """Enter an element; ``text`` is the text before its first child."""
        self._heading += tag in _HEADINGS
        if tag == "br" and self._heading:
            self._add(" ")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._end_line()
        if tag in _CELLS and "".join(self._line).strip():
            self._line.append(" | ")
        self._verbatim += tag == "pre"
        self._add(text)

    def end(self, tag: str, tail: str) -> None:
        """Leave an element; ``tail`` is the text between its end and the next element."""
        self._heading -= tag in _HEADINGS
        if tag in _HEADINGS:
            self._end_heading(_HEADINGS[tag])
        elif tag in _BLOCKS and not (tag == "br" and self._heading):
            self._end_line()
        self._verbatim -= tag == "pre"
        self._add(tail)

    def sections(self) -> Sequence[Section]:
        """Complete the current section; returns all sections that have text."""
        self._end_section()
        return self._sections

    def _add(self, text: str) -> None:
        first, *others = text.split("\n") if self._verbatim else [text]
        self._line.append(first)
        for line in others:
            self._end_line()
            self._line.append(line)

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
        self._headings = [outer for outer in self._headings if outer[0] < level]
        self._headings.append((level, heading))

    def _end_section(self) -> None:
        self._end_line()
        if self._lines:
            title = joined_titles([self._document_title, *(heading for _, heading in self._headings)])
            self._sections.append(Section(title, "\n".join(self._lines)))
        self._lines = []
