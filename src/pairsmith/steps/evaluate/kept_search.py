"""Saves the nearest documents found so far, so that a stopped evaluation goes on from there."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from pairsmith.core.errors import StorageError
from pairsmith.core.paths import Place, reaching, remove_files, size_of
from pairsmith.runs.storage import write_atomic
from pairsmith.search.exact import Neighbours

_FILE = "nearest-so-far.safetensors"
WRITE_SECONDS = 30.0
"""Least time between two writes: with many queries the file has some hundred megabytes."""


@dataclass
class KeptSearch:
    """The nearest of the documents that were searched, of queries in blocks; in a file of ``folder``."""

    folder: Place
    written: float = field(default_factory=time.monotonic)  # when it last was

    def read(self, about: bytes) -> tuple[int, list[Neighbours]]:
        """How many documents were searched, and the nearest of each block.

        ``about`` is ``digest_of`` what is searched. 0 and none at the beginning, and where another search was
        kept, or the file is damaged.
        """
        with reaching(self._file, StorageError):
            if self.is_empty():
                return 0, []
            content = self._file.read_bytes()
        try:
            kept = load(content)
            if bytes(kept["about"].tolist()) != about:
                return 0, []
            blocks = range((len(kept) - 2) // 2)
            return int(kept["documents"]), [
                Neighbours(kept[f"ids {block}"], kept[f"similarities {block}"]) for block in blocks
            ]
        except (SafetensorError, LookupError, ValueError):
            return 0, []

    def write(self, about: bytes, documents: int, nearest: list[Neighbours]) -> None:
        """Keep the nearest of the first ``documents`` documents, unless some were kept a moment ago."""
        if time.monotonic() - self.written < WRITE_SECONDS:
            return
        tensors = {"about": torch.tensor(list(about)), "documents": torch.tensor(documents)}
        for block, neighbours in enumerate(nearest):
            tensors |= {
                f"ids {block}": neighbours.ids.contiguous(),
                f"similarities {block}": neighbours.similarities.contiguous(),
            }
        write_atomic(self._file, save(tensors))
        self.written = time.monotonic()

    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        with reaching(self._file, StorageError):
            return size_of(self._file) is None

    def remove(self) -> None:
        """Remove what was kept."""
        with reaching(self._file, StorageError):
            remove_files([self._file])

    @property
    def _file(self) -> Place:
        return self.folder / _FILE


def digest_of(what: str, *texts: Iterable[str]) -> bytes:
    """SHA-256 of a description of the work, ``what``, and of all texts in their order."""
    digest = sha256(what.encode())
    for side in texts:
        for text in side:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)}:".encode() + data)
        digest.update(b"|")
    return digest.digest()
