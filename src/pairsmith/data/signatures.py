"""Recognises files of other formats than their names say, by their first bytes."""

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, display_name

_SIGNATURES = {
    b"\x1f\x8b": "compressed by gzip; give it a name that ends in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, which is not read; unpack it first (zstd -d)",
    b"BZh": "compressed by bzip2, which is not read; unpack it first (bunzip2)",
    b"\xfd7zXZ": "compressed by xz, which is not read; unpack it first (unxz)",
    b"PK\x03\x04": "a zip archive, or a document of an office program; unpack it, or save it as CSV in UTF-8",
    b"PAR1": "a Parquet file; give it a name that ends in .parquet",
    b"%PDF": "a PDF; its text is read by chunk, as that of a file whose name ends in .pdf",
}
"""The first bytes of binary formats, and what a message says about a file that begins with them."""
_LONGEST = max(map(len, _SIGNATURES))


def refuse_other_format(path: Place) -> None:
    """Raise an ``InputError`` if a file that is read as text begins with the bytes of a binary format.

    Files whose names end in ``.gz`` are unpacked before they are read, so their first bytes say nothing.
    """
    if display_name(path).lower().endswith(".gz"):
        return
    with path.open("rb") as stream:
        first = stream.read(_LONGEST)
    for signature, description in _SIGNATURES.items():
        if first.startswith(signature):
            raise InputError(f"{path} is {description}")
