"""The lines of text files.

A line ends with ``\\n`` or ``\\r\\n``; in a file without any ``\\n``, as old Macs wrote them, it ends with
``\\r``. Nothing else divides a text: not U+2028, not a form feed, and not a ``\\r`` in a file with ``\\n``.
A byte order mark (BOM) at the beginning of any line is dropped, as the file may be joined from several files.
"""

import codecs
import gzip
import re
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, display_name, reaching
from pairsmith.data.signatures import PRINTABLE, refuse_other_format

_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, 32),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, 32),
    (codecs.BOM_UTF16_LE, 16),
    (codecs.BOM_UTF16_BE, 16),
)
"""The byte order marks of encodings that are not read, and the bits of a character in these encodings."""

_MARK = "\ufeff"
"""The byte order mark."""

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that are control characters in UTF-8, Latin-1 and similar encodings, and occur in no text."""


class NotTextError(InputError):
    """A file has bytes that are no text, neither in UTF-8 nor in an encoding such as Latin-1."""


def read_lines(path: Place) -> Iterator[tuple[int, str]]:
    """Yield each line of a UTF-8 file (also ``.gz``), without line end and BOM, after its number from 1."""
    number = 0
    with reaching(path, InputError):
        try:
            with _open(path) as stream:
                for number, raw in enumerate(_divided(stream), start=1):
                    yield number, _decode(raw, path, number)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(
                f"{path} is not a valid gzip file (after line {number}: {error}); "
                "download or compress it again"
            ) from error


@contextmanager
def _open(path: Place) -> Iterator[IO[bytes]]:
    with path.open("rb") as stream:
        if _is_compressed(path):
            with gzip.open(stream) as inner:
                yield cast(IO[bytes], inner)
        else:
            yield cast(IO[bytes], stream)


def _is_compressed(path: Place) -> bool:
    return display_name(path).lower().endswith(".gz")


def _divided(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream; it is read only once, as each opening of a file in a store is a request."""
    first = stream.readline()
    if first.endswith(b"\n"):
        yield first
        yield from stream
    elif first:  # the file has no line feed
        yield from first.removesuffix(b"\r").split(b"\r")


def _decode(raw: bytes, path: Place, number: int) -> str:
    """The text of line ``number``, without line end and BOM; an ``InputError`` if it is not UTF-8.

    The error is a ``NotTextError`` if the line has control characters, as files of other formats have.
    """
    if number == 1:
        if bits := next((bits for mark, bits in _WIDE_MARKS if raw.startswith(mark)), 0):
            raise InputError(
                f"{path} is UTF-{bits} text; "
                f"re-save it as UTF-8 (e.g. {shell_command(f'iconv -f utf-{bits} -t utf-8', path)})"
            )
        if raw.startswith(PRINTABLE):
            refuse_other_format(path)
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse_other_format(path)
        kind = NotTextError if _CONTROL.search(raw) else InputError
        command = shell_command("iconv -f latin1 -t utf-8", path)
        in_excel = "in Excel as CSV UTF-8; else " if str(path).lower().endswith(".csv") else ""
        raise kind(
            f"{path}:{number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            f"re-save it as UTF-8 ({in_excel}e.g. {command})"
        ) from None
    if "\x00" in line:
        refuse_other_format(path)
        raise NotTextError(
            f"{path}:{number}: holds a NUL character, as binary and UTF-16 files do; re-save it as UTF-8 text"
        )
    return line.lstrip(_MARK).removesuffix("\n").removesuffix("\r")


def shell_command(command: str, path: Place) -> str:
    """A shell command that changes the text of a file, which may be compressed, for an error message."""
    name = shlex.quote(display_name(path))
    if _is_compressed(path):
        return f"gzip -dc {name} | {command.removesuffix(' <')} > new"
    return f"{command} {name} > new"
