"""Vectors of documents in a folder, so that steps that encode the same ones alike encode them once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import StorageError
from pairsmith.core.model_files import pick_device
from pairsmith.core.model_names import DtypeName, PoolingName
from pairsmith.core.paths import Place, inside, reaching, remove_files, size_of
from pairsmith.runs.storage import canonical_json, write_atomic
from pairsmith.runs.work import Advance

BLOCK = 2_000
"""Texts that are encoded together, unless a step has a ``shard_size`` that says otherwise."""
_LAYOUT = 1
"""Version of the files; increased when the same texts would get other vectors."""


@dataclass(frozen=True, slots=True)
class KeptVectors:
    """Files in ``folder``, each with the vectors that an encoder gave for a block of texts.

    The name of a file is the hash of the texts and of all that decides their vectors. So none is ever out of
    date, and of several processes that encode the same block all write the same file.

    Attributes:
        folder: where they are.
        deciding: what decides the vectors besides the texts, as JSON.
        writes: whether vectors that are lacking are added.
    """

    folder: Place
    deciding: str
    writes: bool = True

    @classmethod
    def of(
        cls,
        folder: Place,
        revision: str,
        *,
        device: str,
        dtype: DtypeName,
        max_length: int | None,
        batch_size: int = 1_024,
        batch_tokens: int | None = None,
        pooling: PoolingName = "default",
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> Self:
        """The vectors by an encoder of this ``revision``, with a ``prompt`` in place of its own if given.

        The other arguments are those with which the encoder is loaded and used. Batches and the kind of
        device change the last bits of vectors, so these count, too.
        """
        return cls(
            folder,
            canonical_json(
                {
                    "layout": _LAYOUT,
                    "encoder": revision,
                    "device": pick_device(device).partition(":")[0],
                    "dtype": dtype,
                    "max_length": max_length,
                    "batch_size": batch_size,
                    "batch_tokens": batch_tokens,
                    "pooling": pooling,
                    "prompt": prompt,
                    "dimensions": dimensions,
                }
            ),
        )

    def vectors(self, texts: Sequence[str], encode: Callable[..., Float32s], advance: Advance) -> Float32s:
        """The vectors of a block of texts, ``(n, d)``: those in the folder, else what ``encode`` returns.

        ``encode`` is called with the texts and ``advance=``, which counts finished texts.
        """
        file = self._file(texts)
        vectors = _read(file)
        if vectors is not None:
            advance(len(texts))
            return vectors
        vectors = encode(texts, advance=advance)
        if self.writes:
            write_atomic(file, save({"vectors": vectors, "sha256": _hash(vectors)}))
        return vectors

    def has_all(self, blocks: Iterable[Sequence[str]], say: Callable[[str], None]) -> bool:
        """Whether the vectors of all blocks are in the folder; ``say`` is told of how many texts they are."""
        total = kept = 0
        for texts in blocks:
            total += len(texts)
            with reaching(self.folder, StorageError):
                kept += len(texts) if size_of(self._file(texts)) is not None else 0
        if kept:
            say(f"the vectors of {kept:,} of {total:,} texts are in {self.folder} already")
        return kept == total

    def _file(self, texts: Sequence[str]) -> Place:
        digest = sha256(self.deciding.encode())
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)}:".encode() + data)
        return self.folder / f"{digest.hexdigest()}.safetensors"


def _read(file: Place) -> Float32s | None:
    """The vectors in a file; None where there are none, or it is damaged."""
    with reaching(file, StorageError):
        try:
            content = load(file.read_bytes())
            vectors: Float32s = content["vectors"]
            return vectors if np.array_equal(content["sha256"], _hash(vectors)) else None
        except (OSError, SafetensorError, LookupError):
            return None


def _hash(vectors: Float32s) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """SHA-256 of the numbers, ``(32,)``."""
    return np.frombuffer(sha256(vectors.tobytes()).digest(), np.uint8)


def remove_vectors(folder: Place) -> None:
    """Remove a folder of kept vectors, if there is one."""
    with reaching(folder, StorageError):
        remove_files(inside(folder))
        if isinstance(folder, Path) and folder.is_dir():
            folder.rmdir()
