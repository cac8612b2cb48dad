"""Lists the documents in folders, files and tables, and reads each with the reader of its kind."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

from pairsmith.core.errors import InputError, PairsmithError, first_line
from pairsmith.core.paths import (
    Place,
    data_suffix,
    display_name,
    is_folder,
    place,
    printable_name,
    reaching,
    size_of,
)
from pairsmith.data.documents import read_titled
from pairsmith.data.files.folders import documents_below
from pairsmith.data.files.markup import read_html, read_markdown
from pairsmith.data.files.parsed import DocumentFault, Parsed, Section, Unreadable
from pairsmith.data.files.pdf import read_pdf
from pairsmith.data.files.plain import read_text
from pairsmith.data.filters import EMPTY
from pairsmith.data.readers import NAME_COLUMN, text_id
from pairsmith.data.schemas import Reject
from pairsmith.data.sources import TABLES, is_hub_data, missing_source
from pairsmith.data.splits import split_of

READERS: Mapping[str, Callable[[bytes], Parsed]] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
}
"""The reader of each kind of files, by the suffix of the file's name."""
UNKNOWN_KIND = "unknown kind"
NO_TEXT = DocumentFault(EMPTY, "it has no text")


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document before it is read: a file, or a row of a table with its title and text.

    ``name`` and ``where`` are valid Unicode, even if the file's name is not valid UTF-8.
    """

    name: str  # the path of the file relative to the source's folder, or the id of the row
    where: str  # the location of the document, for messages
    file: Place | None = None  # None for a row of a table
    title: str = ""
    text: str = ""

    @property
    def kind(self) -> str:
        """The suffix of the file's name, such as ``.pdf``; empty for a row of a table."""
        return PurePath(display_name(self.file)).suffix.lower() if self.file is not None else ""

    def read(self) -> Parsed:
        """Read the document.

        Raises:
            Unreadable: no text can be read from the document.
            InputError: the document's file was removed, cannot be reached now, or is not on this machine.
        """
        if self.file is None:
            parsed = Parsed([Section(self.title, self.text)])
        elif self.kind not in READERS:
            what = f"a {self.kind} file" if self.kind else "a file without a suffix"
            raise Unreadable(DocumentFault(UNKNOWN_KIND, f"{what}; known are {', '.join(READERS)}"))
        else:
            try:
                data = self.file.read_bytes()
            # As a reject, the document would be missing in a finished folder. The file could be read before,
            # when it was hashed, so it is the connection or the disk that fails now.
            except FileNotFoundError as error:
                raise InputError(
                    f"{self.where} was listed, but is missing where it is to be read; put it back, or, on a "
                    "cluster, give a folder that all machines share"
                ) from error
            except Exception as error:  # the client of a store may raise any exception
                raise InputError(
                    f"{self.where} cannot be read: {first_line(error)}; mend this and run the same command "
                    "again"
                ) from error
            parsed = _parsed(self.kind, data)
        if not any(section.text.strip() for section in parsed.sections):
            raise Unreadable(parsed.faults[0] if parsed.faults else NO_TEXT)
        return parsed

    def reject(self, fault: DocumentFault) -> Reject:
        """The reject of the document, or of a part of it, because of ``fault``."""
        # A library's error message may quote half a surrogate pair of the file, which cannot be stored.
        details = {
            key: printable_name(value) if isinstance(value, str) else value
            for key, value in fault.details.items()
        }
        row = {"document": self.name, "where": self.where, **details}
        return Reject.of(text_id(self.name), fault.filter, fault.reason, row)


def _parsed(kind: str, data: bytes) -> Parsed:
    try:
        return READERS[kind](data)
    except (Unreadable, PairsmithError):
        raise
    except Exception as error:  # a file that makes a library fail must not stop the run
        raise Unreadable(
            DocumentFault("unreadable file", "the library that reads it failed", {"error": first_line(error)})
        ) from error


def source_documents(
    sources: Sequence[str], *, column: str | None = None, title_column: str | None = None
) -> Iterator[SourceDocument]:
    """All documents of the sources, one at a time, in a fixed order.

    Args:
        sources: folders, whose files are sorted by their paths and hidden files left out; document files;
            and tables: JSON Lines, CSV, TSV and Parquet files, dataset folders and Hub data sets. If there
            are several sources, the name of each document begins with the name of its source.
        column: the column of tables with the texts; by default ``text`` or another usual name.
        title_column: the column of tables with the titles; by default ``title``, if it exists.
    """
    names = _names(sources) if len(sources) > 1 else [""] * len(sources)
    for source, name in zip(sources, names, strict=True):
        if files := document_files(source):
            in_folder = is_folder(place(source))
            for path, file in files.items():
                inner = printable_name(path)
                document = f"{name}/{inner}" if name and in_folder else name or inner
                yield SourceDocument(document, printable_name(str(file)), file)
        else:
            for row in read_titled(source, column=column, title_column=title_column, remedy=NAME_COLUMN):
                yield SourceDocument(
                    f"{name}/{row.id}" if name else row.id, row.where, None, row.title, row.text
                )


def source_names(sources: Sequence[str]) -> list[str]:
    """The names of the sources that are part of the names of their documents; empty if there are none."""
    if len(sources) > 1:
        return _names(sources)
    return [] if is_folder(place(sources[0])) else list(map(printable_name, document_files(sources[0])))


def _names(sources: Sequence[str]) -> list[str]:
    """A distinct name for each source; if several have the same name, a number is appended."""
    names: list[str] = []
    for source in sources:
        name = source if is_hub_data(source) else display_name(place(source)) or "documents"
        same = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return names


def document_files(source: str) -> Mapping[str, Place]:
    """The document files of a source by their relative paths; empty if the source is a table.

    A source is a folder of documents, a document file, or a table: see ``source_documents``.
    """
    if split_of(source)[1]:
        return {}
    path = place(source)
    with reaching(path, InputError):
        if is_folder(path):
            return documents_below(path, READERS)
        if size_of(path) is not None:
            return {} if data_suffix(path) in TABLES else {display_name(path): path}
    if is_hub_data(source):
        return {}
    raise missing_source(path)


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """The number of documents, and among them the number of files of each unknown kind."""

    documents: int
    unknown: Mapping[str, int]  # for each unknown suffix, the number of files

    @property
    def of_unknown_kind(self) -> int:
        """The number of files of unknown kinds."""
        return sum(self.unknown.values())

    def named(self) -> str:
        """The unknown kinds and their numbers of files, the most frequent first: ``2 .docx, 1 .png``."""
        order = sorted(self.unknown.items(), key=lambda entry: (-entry[1], entry[0]))
        return ", ".join(f"{count:,} {kind or 'without a suffix'}" for kind, count in order)


def count_documents(documents: Iterator[SourceDocument]) -> DocumentCounts:
    """Count documents, and check that the packages that their readers need are installed.

    Raises:
        InputError: no document is of a known kind.
        MissingExtra: a reader needs a package that is not installed.
    """
    total, kinds = 0, Counter[str]()
    for document in documents:
        total += 1
        if document.file is not None:
            kinds[document.kind] += 1
    counts = DocumentCounts(total, {kind: count for kind, count in kinds.items() if kind not in READERS})
    if counts.of_unknown_kind == total:
        raise InputError(
            f"no document can be read: {counts.named() or 'there are none'}; known are the files "
            f"{', '.join(READERS)}, and tables: {', '.join(TABLES)}"
        )
    for kind in sorted(READERS.keys() & kinds.keys()):
        with suppress(Unreadable):
            _parsed(kind, b"")
    return counts
