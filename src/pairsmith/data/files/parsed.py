"""The content of a document file: its sections, and the faults of parts that could not be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from unicodedata import category

BETWEEN = " › "
"""The separator between the titles of a document, of a section and of its subsections."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document under one heading.

    ``title`` joins the title of the document and all headings above the text, from the outermost to the
    innermost; it may be empty. Each line of ``text`` is a paragraph, a list item or a row of a table.
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """Why a document, or a part of it, was left out.

    ``filter`` and ``reason`` are as in ``Reject``, and the same for all documents with this fault.
    ``details`` says where in this document the fault is.
    """

    filter: str
    reason: str
    details: Mapping[str, object] = field(default_factory=dict)


class Unreadable(Exception):  # noqa: N818 - it becomes a reject, and is no error of the program
    """A document of which nothing can be read."""

    def __init__(self, fault: DocumentFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Parsed:
    """The sections of a document, in order, and the faults of the parts that could not be read."""

    sections: Sequence[Section]
    faults: Sequence[DocumentFault] = ()


def joined_titles(titles: Sequence[str]) -> str:
    """Join titles, from the outermost to the innermost, with ``BETWEEN``.

    Blank titles, titles equal to the one before, control characters and unpaired surrogates are left out.
    """
    kept: list[str] = []
    for title in titles:
        plain = " ".join("".join(map(_printed, _paired(title))).split())
        if plain and (not kept or plain != kept[-1]):
            kept.append(plain)
    return BETWEEN.join(kept)


def _paired(text: str) -> str:
    """The text with each surrogate pair, as YAML and PDF encode some characters, as one character.

    Unpaired surrogates are dropped.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _printed(letter: str) -> str:
    """The character, or "" for control characters and others without a glyph; unassigned ones are kept."""
    return letter if letter.isspace() or category(letter) not in ("Cc", "Co", "Cs") else ""
