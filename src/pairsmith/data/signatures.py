"""Recognises files of formats that are not read as rows, by their suffixes and by their first bytes."""

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, display_name

OTHER_SUFFIXES = frozenset({
    ".docx", ".odt", ".rtf", ".xls", ".xlsx", ".ods", ".ppt", ".pptx", ".odp", ".epub", ".pdf",
    ".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst",
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".mp3", ".mp4", ".wav",
    ".npy", ".npz", ".pkl", ".pickle", ".safetensors",
    ".sqlite", ".arrow", ".feather", ".orc", ".avro",
})  # fmt: skip
"""Suffixes of formats that are not text, and are not read as rows."""
SAVE_AS = (
    "save the data as .txt with a text per line, .jsonl, .tsv, .csv or .parquet, or give documents (.pdf, "
    ".html, .md) to chunk"
)
"""Advice about files of other formats."""
_SIGNATURES = {
    b"\x1f\x8b": "compressed by gzip; give it a name that ends in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, which is not read; unpack it first (zstd -d)",
    b"BZh": "compressed by bzip2, which is not read; unpack it first (bunzip2)",
    b"\xfd7zXZ": "compressed by xz, which is not read; unpack it first (unxz)",
    b"PK\x03\x04": "a zip archive, or a document of an office program; unpack it, or save it as CSV in UTF-8",
    b"PAR1": "a Parquet file; give it a name that ends in .parquet",
    b"%PDF-1.": "a PDF; its text is read by chunk, as that of a file whose name ends in .pdf",
    b"{\\rtf1": "a document in RTF; save it as plain text or CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "a document of an office program; save it as plain text or CSV in UTF-8",
    b"SQLite format 3": "a database of SQLite; export its rows as CSV in UTF-8",
    b"\x89PNG": "an image, which is not read",
    b"\xff\xd8\xff": "an image, which is not read",
    b"GIF8": "an image, which is not read",
}
"""The first bytes of other formats, and what a message says about a file that begins with them."""
PRINTABLE = (b"%PDF-1.", b"{\\rtf1")
"""The first bytes of other formats whose files may be valid text."""
_LONGEST = max(map(len, _SIGNATURES))


def refuse_other_format(path: Place) -> None:
    """Raise an ``InputError`` if a file that is read as text begins with the bytes of another format.

    Files whose names end in ``.gz`` are unpacked before they are read, so their first bytes say nothing.
    """
    if display_name(path).lower().endswith(".gz"):
        return
    with path.open("rb") as stream:
        first = stream.read(_LONGEST)
    for signature, description in _SIGNATURES.items():
        if first.startswith(signature):
            raise InputError(f"{path} is {description}")
