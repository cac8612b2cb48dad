"""The vectors of the documents that are searched, kept in the user's cache for the next search."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import StorageError
from pairsmith.core.paths import CACHE_VARIABLE, cache_folder
from pairsmith.core.progress import Progress
from pairsmith.runs.storage import canonical_json, write_atomic
from pairsmith.steps.evaluate.kept_search import digest_of
from pairsmith.steps.evaluate.retrievers import DOCUMENTS_AT_ONCE, comparison_vectors
from pairsmith.steps.search.settings import SearchSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_LAYOUT = "1"
"""Version of the files; increased when the same texts would get other vectors."""
_DECIDING = ("document_prompt", "dimensions", "pooling", "max_length", "dtype")
"""Settings on which the vectors depend, beside the model and the texts."""


@dataclass(frozen=True, slots=True)
class VectorCache:
    """Files of vectors in ``folder``, each of the next ``DOCUMENTS_AT_ONCE`` documents."""

    folder: Path

    @classmethod
    def of(cls, settings: SearchSettings, revision: str, documents: Sequence[str]) -> Self:
        """The cache of these texts and of this revision of the model; any other has a folder of its own."""
        what = {"layout": _LAYOUT, "model": revision, **{name: getattr(settings, name) for name in _DECIDING}}
        return cls(cache_folder() / "search" / digest_of(canonical_json(what), documents).hex())

    def read(self, first: int, count: int) -> torch.Tensor | None:
        """The vectors of ``count`` documents from ``first`` on; None if they are not there, or damaged."""
        try:
            vectors: torch.Tensor = load_file(self._file(first))["vectors"]
        except (OSError, SafetensorError, LookupError):
            return None
        return vectors if len(vectors) == count else None

    def write(self, first: int, vectors: torch.Tensor) -> None:
        """Keep the vectors of the documents from ``first`` on; nobody else may read the folder."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._file(first), save({"vectors": vectors.contiguous()}))
        except (OSError, StorageError) as error:
            raise StorageError(
                f"the documents' vectors cannot be kept in {self.folder}: {error}; set {CACHE_VARIABLE} to "
                "another folder, or give --no-keep-vectors"
            ) from error

    def _file(self, first: int) -> Path:
        return self.folder / f"{first:09d}.safetensors"


def document_vectors(
    encoder: "SentenceTransformer",
    documents: Sequence[str],
    cache: VectorCache | None,
    *,
    batch_size: int,
    progress: Progress,
) -> list[torch.Tensor]:
    """The vectors of documents, in tensors ``(m, d)`` float32 of ``DOCUMENTS_AT_ONCE``, the last of fewer.

    What the ``cache`` lacks is encoded and put there, so that a search that was stopped goes on behind it.
    """
    parts = list(in_batches(documents, DOCUMENTS_AT_ONCE))
    kept = [
        cache.read(place * DOCUMENTS_AT_ONCE, len(texts)) if cache else None
        for place, texts in enumerate(parts)
    ]
    lacking = [place for place, vectors in enumerate(kept) if vectors is None]
    if not lacking and cache:
        progress.say(f"the vectors of the {len(documents):,} documents are in {cache.folder.parent} already")
    by_place = dict(enumerate(kept))
    if lacking:
        with progress.task("encode", sum(len(parts[place]) for place in lacking), "documents") as bar:
            for place in lacking:
                texts = parts[place]
                vectors = comparison_vectors(
                    encoder, texts, "document", batch_size=batch_size, advance=bar.advance
                )
                try:
                    if cache:
                        cache.write(place * DOCUMENTS_AT_ONCE, vectors)
                except StorageError as error:
                    progress.say(str(error))
                    cache = None
                by_place[place] = vectors
    return [vectors for vectors in by_place.values() if vectors is not None]
