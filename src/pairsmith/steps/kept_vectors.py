"""Document vectors saved in a folder, so that several steps encode the same documents only once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import StorageError, counted
from pairsmith.core.model_files import pick_device, processor_of
from pairsmith.core.model_names import DtypeName, PoolingName, model_revision
from pairsmith.core.paths import Place, inside, is_folder, place, reaching, remove_files, size_of
from pairsmith.core.settings import Settings
from pairsmith.data.beir import in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.runs.estimate import Before
from pairsmith.runs.storage import canonical_json, write_atomic
from pairsmith.runs.work import Advance

BLOCK = 2_000
"""Number of texts that are encoded and saved together in a step without a ``shard_size``."""
_LAYOUT = 1
"""Version of the files; increased when the same texts get other vectors than before."""


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """What decides the vector of a text besides the encoder; batch sizes change the last bits.

    Attributes:
        device, dtype, max_length, pooling: how the encoder is loaded.
        batch_size, batch_tokens: the size of its batches.
        prompt: the prompt in place of the encoder's own; None: its own.
        dimensions: the number of components of each vector that are used; None: all.
    """

    device: str
    dtype: DtypeName
    max_length: int | None
    batch_size: int = 1_024
    batch_tokens: int | None = None
    pooling: PoolingName = "default"
    prompt: str | None = None
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class KeptVectors:
    """A folder of files, each with the vectors of a block of texts by an encoder.

    The name of a file is the hash of the texts and of all settings that decide their vectors. So a file is
    never out of date, and several processes that encode the same block write the same file.

    Attributes:
        folder: the folder of the files.
        deciding: what decides the vectors besides the texts, as JSON.
        writes: whether new vectors are saved.
    """

    folder: Place
    deciding: str
    writes: bool = True

    @classmethod
    def of(cls, folder: Place, revision: str, options: VectorOptions) -> Self:
        """The vectors in ``folder`` by the encoder with this revision.

        The processor decides the last bits of the vectors: two GPUs of the same model count as one, as do two
        CPUs with the same instructions.
        """
        device = processor_of(pick_device(options.device))
        deciding = asdict(options) | {"layout": _LAYOUT, "encoder": revision, "device": device}
        return cls(folder, canonical_json(deciding))

    def vectors(self, texts: Sequence[str], encode: Callable[..., Float32s], advance: Advance) -> Float32s:
        """The vectors of a block of texts, ``(n, d)`` float32, read from the folder or else computed.

        ``encode`` is called with the texts and ``advance``; ``advance`` is called with numbers of finished
        texts.
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
        """Whether the vectors of all blocks are in the folder; ``say`` reports how many texts have them."""
        kept, total = self.counts(blocks)
        if kept:
            say(f"the vectors of {kept:,} of {counted(total, 'texts')} are already in {self.folder}")
        return kept == total

    def counts(self, blocks: Iterable[Sequence[str]]) -> tuple[int, int]:
        """How many texts of the blocks have their vectors in the folder, and how many texts there are."""
        total = kept = 0
        for texts in blocks:
            total += len(texts)
            with reaching(self.folder, StorageError):
                kept += len(texts) if size_of(self._file(texts)) is not None else 0
        return kept, total

    def _file(self, texts: Sequence[str]) -> Place:
        digest = sha256(self.deciding.encode())
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)}:".encode() + data)
        return self.folder / f"{digest.hexdigest()}.safetensors"


def kept_share(settings: Settings, before: Before) -> tuple[str, float]:
    """What the plan of a step needs to know about the vectors of its corpus.

    Returns:
        the settings that decide the vectors that the step keeps, as JSON, which is empty if it keeps none;
        and the share of the vectors, 0 to 1, that an earlier step (``before``) or an earlier run keeps.
    """
    if not (getattr(settings, "vectors", None) and getattr(settings, "corpus", None)):
        return "", 0.0
    values = settings.model_dump(mode="json")
    chosen = {field.name: values[field.name] for field in fields(VectorOptions) if field.name in values}
    options = VectorOptions(**chosen | {"prompt": values.get("document_prompt")})
    model = values["encoder"] if "encoder" in values else values["model"]
    folder, sources, column = values["vectors"], values["corpus"], values.get("corpus_column")
    size = values.get("shard_size", BLOCK)
    deciding = canonical_json([folder, sources, column, size, model, asdict(options)])
    if any(earlier.vectors == deciding for earlier in before.values()):
        return deciding, 1.0
    if before.keys() & {model, *sources} or not is_folder(place(folder)):
        return deciding, 0.0
    vectors = KeptVectors.of(place(folder), model_revision(model), options)
    texts = (row.whole for source in sources for row in read_passages(in_beir(source), column))
    kept, count = vectors.counts(iter(lambda: list(islice(texts, size)), []))
    return deciding, kept / max(1, count)


def _read(file: Place) -> Float32s | None:
    """The vectors in a file; None if the file does not exist or is damaged."""
    with reaching(file, StorageError):
        try:
            content = load(file.read_bytes())
            vectors: Float32s = content["vectors"]
            return vectors if np.array_equal(content["sha256"], _hash(vectors)) else None
        except (OSError, SafetensorError, LookupError):
            return None


def _hash(vectors: Float32s) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """SHA-256 of the vectors as an array of bytes, ``(32,)`` uint8."""
    return np.frombuffer(sha256(vectors.tobytes()).digest(), np.uint8)


def remove_vectors(folder: Place) -> None:
    """Remove a folder of saved vectors, if it exists."""
    with reaching(folder, StorageError):
        remove_files(inside(folder))
        if isinstance(folder, Path) and folder.is_dir():
            folder.rmdir()
