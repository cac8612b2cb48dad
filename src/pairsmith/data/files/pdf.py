"""Extracts the text of PDF files with ``pypdf``. Scanned pages are not recognised (no OCR)."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from pairsmith.core.errors import MissingExtra, first_line
from pairsmith.data.files.parsed import DocumentFault, Parsed, Section, Unreadable, joined_titles
from pairsmith.data.files.plain import unwrapped
from pairsmith.data.filters import EMPTY

NARROWER = 0.8
"""A line counts as full from this share of the longest lines' length, as letters differ in width."""
_REPEATED = 3
"""A first or last line that recurs on at least this many pages, and on half of all, is a header or footer."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010]\n([^\W\d_])")
"""A hyphen between two letters, the second one on the next line."""
_DIGITS = re.compile(r"\d+")


def _without_hyphen(match: re.Match[str]) -> str:
    """The second letter; before a capital, which begins a part of a compound or name, the hyphen is kept."""
    return match[1] if match[1].islower() else f"-{match[1]}"


def read_pdf(data: bytes) -> Parsed:
    """A PDF file as one section, whose title is the title in the file's properties.

    Lines are joined to paragraphs, and the parts of words that were hyphenated at the end of a line to words.
    Headers and footers are left out. Pages without text, and damaged pages, are reported as faults.

    Raises:
        Unreadable: the file has no text, is damaged, or needs a password.
    """
    try:
        import pypdf
    except ImportError:
        raise MissingExtra("pypdf", "documents") from None

    # pypdf logs each defect of a file that it works around.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        # Many files are encrypted with an empty password, only to forbid printing.
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable(DocumentFault("encrypted PDF", "it needs a password"))
        pages, faults = _pages(reader)
        title = _title(reader)
    except Unreadable:
        raise
    except Exception as error:  # a damaged file may make pypdf raise any exception
        raise Unreadable(
            DocumentFault("damaged PDF", "it cannot be read", {"error": first_line(error)})
        ) from error
    if not any(pages):
        raise Unreadable(faults[0] if faults else DocumentFault(EMPTY, "the PDF has no pages"))
    lines = "\n".join(line for page in _without_margins(pages) for line in page)
    return Parsed([Section(title, unwrapped(_HYPHEN.sub(_without_hyphen, lines), NARROWER))], faults)


def _pages(reader: Any) -> tuple[list[list[str]], list[DocumentFault]]:
    """The lines of each page, and faults that name the damaged pages and those without text, from 1."""
    pages: list[list[str]] = []
    blank: list[int] = []
    damaged: list[int] = []
    for number, page in enumerate(reader.pages, start=1):
        try:
            text = page.extract_text()
        except Exception:  # as above; the other pages may be readable
            damaged.append(number)
            text = ""
        # If a font has no table of its characters, pypdf returns NUL characters or unpaired surrogates.
        text = text.replace("\x00", "").encode("utf-8", "ignore").decode()
        pages.append([plain for line in text.splitlines() if (plain := " ".join(line.split()))])
        if not pages[-1] and number not in damaged:
            blank.append(number)
    faults = []
    if damaged:
        faults.append(DocumentFault("damaged page", "pages of the PDF cannot be read", {"pages": damaged}))
    if blank:
        no_text = not any(pages) and not damaged
        reason = "the PDF has no text" if no_text else "pages of the PDF have no text"
        faults.append(DocumentFault("scanned", f"{reason}; they may be pictures", {"pages": blank}))
    return pages, faults


def _title(reader: Any) -> str:
    title = getattr(reader.metadata, "title", None)
    return joined_titles([title]) if isinstance(title, str) else ""


def _without_margins(pages: Sequence[list[str]]) -> list[list[str]]:
    """The pages that have text, without their headers, footers and page numbers.

    These are first and last lines that recur on other pages, apart from their digits.
    """
    with_text = [page for page in pages if page]
    least = max(_REPEATED, len(with_text) / 2)
    trimmed = with_text
    for place in (0, -1):
        for _ in range(2):  # a header or a footer has at most two lines
            keys = [_DIGITS.sub("#", page[place]) if page else "" for page in trimmed]
            counts = Counter(key for key in keys if key)
            trimmed = [
                page if counts[key] < least else page[1:] if place == 0 else page[:-1]
                for page, key in zip(trimmed, keys, strict=True)
            ]
    return trimmed
