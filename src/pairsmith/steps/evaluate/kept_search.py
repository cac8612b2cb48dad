"""What a search has found so far, in the run's folder, so that a stopped evaluation goes on from there."""

from dataclasses import dataclass

import torch
from safetensors.torch import load, save

from pairsmith.core.errors import StorageError
from pairsmith.core.paths import Place, reaching, remove_files, size_of
from pairsmith.runs.storage import write_atomic
from pairsmith.search.exact import Neighbours

_FILE = "nearest-so-far.safetensors"


@dataclass(frozen=True, slots=True)
class KeptSearch:
    """The nearest of the documents that were searched, of queries in blocks; in a file of ``folder``."""

    folder: Place

    def read(self) -> tuple[int, list[Neighbours]]:
        """How many documents were searched, and the nearest of each block; 0 and none at the beginning."""
        with reaching(self._file, StorageError):
            if size_of(self._file) is None:
                return 0, []
            kept = load(self._file.read_bytes())
        blocks = range((len(kept) - 1) // 2)
        return int(kept["documents"]), [
            Neighbours(kept[f"ids {block}"], kept[f"similarities {block}"]) for block in blocks
        ]

    def write(self, documents: int, nearest: list[Neighbours]) -> None:
        """Keep the nearest of the first ``documents`` documents in place of what was kept before."""
        tensors = {"documents": torch.tensor(documents)}
        for block, each in enumerate(nearest):
            tensors |= {
                f"ids {block}": each.ids.contiguous(),
                f"similarities {block}": each.similarities.contiguous(),
            }
        write_atomic(self._file, save(tensors))

    def remove(self) -> None:
        """Remove what was kept."""
        with reaching(self._file, StorageError):
            remove_files([self._file])

    @property
    def _file(self) -> Place:
        return self.folder / _FILE
