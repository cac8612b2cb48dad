"""The content of a document file: sections with titles, and faults that say what could not be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from unicodedata import category

BETWEEN = " › "
"""Stands between the titles of a document, a section and its subsections."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document under one heading.

    ``title`` has the titles of the document and of all headings above, from the outermost on; it may be
    empty. Each line of ``text`` is a paragraph, an item of a list or a row of a table.
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """Why a document, or a part of it, was left out.

    ``filter`` and ``reason`` are as in a reject, and the same for all documents with this fault; ``details``
    say where it is in this one.
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
    """The sections of a document in order, and what of it could not be read."""

    sections: Sequence[Section]
    faults: Sequence[DocumentFault] = ()


def joined_titles(titles: Sequence[str]) -> str:
    """Titles from the outermost on as one; blank ones, and those equal to the one before, count once.

    Control characters and halves of characters are left out.
    """
    kept: list[str] = []
    for title in titles:
        plain = " ".join("".join(map(_printed, _paired(title))).split())
        if plain and (not kept or plain != kept[-1]):
            kept.append(plain)
    return BETWEEN.join(kept)


def _paired(text: str) -> str:
    """The text with each pair of surrogates, as YAML and PDF write some characters, as one character.

    Surrogates without a partner are dropped.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _printed(letter: str) -> str:
    """The letter, or nothing for what no font draws; letters that Python does not know yet stay."""
    return letter if letter.isspace() or category(letter) not in ("Cc", "Co", "Cs") else ""
