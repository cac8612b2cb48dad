"""A corpus as vectors: read as a stream, encoded shard by shard, kept as a dataset folder.

The folder has the columns ``id``, ``text`` and ``vector``. It is finished work of its own: a run that is
stopped goes on behind its last shard, and one with other settings of the search takes it as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Self, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.encoders.sentence import encode_texts, load_sentence_encoder
from pairsmith.errors import ModelError, OtherWorkError, WorkerError
from pairsmith.mine.settings import MineSettings
from pairsmith.modelnames import model_revision
from pairsmith.records import REJECT, Reject, TextRecord, read_texts, text_id, to_table
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source
from pairsmith.runs.executors import Advance, Lost, Where, Work, execute

ENCODED: pa.Schema = pa.schema(
    [("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32()))]
)
"""A text and its vector, of length 1."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is to be encoded.

    Attributes:
        name: ``inputs`` or ``outputs``.
        sources: where the texts are.
        column: which column holds them.
        hashes: of the sources, by a name for each.
    """

    name: str
    sources: Sequence[str]
    column: str | None
    hashes: Mapping[str, str]

    @classmethod
    def of(cls, name: str, sources: Sequence[str], column: str | None) -> Self:
        """The corpus in these sources.

        Raises:
            InputError: one is not there.
        """
        hashes = {f"{name} {i}": hash_source(source) for i, source in enumerate(sources, start=1)}
        return cls(name, sources, column, hashes)

    def texts(self) -> Iterator[TextRecord]:
        """All of them, one at a time."""
        return chain.from_iterable(read_texts(source, column=self.column) for source in self.sources)


@dataclass(frozen=True, slots=True)
class Shard:
    """Texts that are encoded and saved together."""

    number: int
    texts: tuple[TextRecord, ...]


class Shards(Sequence[Shard]):
    """The shards of a corpus that are not done, read as they are asked for, in order or nearly so."""

    def __init__(self, corpus: Corpus, size: int, numbers: Sequence[int]) -> None:
        self._corpus = corpus
        self._size = size
        self._numbers = numbers
        self._stream: Iterator[TextRecord] = iter(())
        self._at = -1  # the shard that the stream stands before; -1 before it is opened

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Shard: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Shard]: ...
    def __getitem__(self, place: int | slice) -> Shard | Sequence[Shard]:
        if isinstance(place, slice):
            return Shards(self._corpus, self._size, self._numbers[place])
        number = self._numbers[place]
        if self._at < 0 or number < self._at:
            self._stream, self._at = self._corpus.texts(), 0
        skipped = (number - self._at) * self._size
        texts = tuple(islice(self._stream, skipped, skipped + self._size))
        self._at = number + 1
        return Shard(number, texts)


def encode_corpus(corpus: Corpus, settings: MineSettings, revision: str, run: Run) -> DatasetFolder:
    """Encode a corpus into ``run.out`` by the encoder of this revision; what is there of it is kept.

    Raises:
        InputError: a text cannot be read.
        ModelError: the encoder cannot be loaded, or gives no numbers.
        FolderError: the folder holds something else.
        StorageError, WorkerError: the disk or a worker failed; finished shards are kept.
    """
    count = sum(1 for _ in corpus.texts())
    shards = range(-(-count // settings.shard_size))

    def start(fresh: bool) -> FolderWriter:
        return FolderWriter.start(
            Run(run.out, run.progress, fresh),
            step="encode",
            schema=ENCODED,
            settings={
                "column": corpus.column,
                **settings.model_dump(mode="json", include={"dtype", "max_length", "shard_size"}),
            },
            inputs=corpus.hashes,
            models={"encoder": revision},
            planned=len(shards),
        )

    try:
        writer = start(fresh=False)
    except OtherWorkError:
        if not run.fresh:
            raise
        writer = start(fresh=True)
    if writer.finished:
        return writer.folder()

    left = [number for number in shards if not writer.is_done(number)]
    where = Where(settings.executor, settings.workers, settings.ray_address)
    with run.progress.task(f"encode {corpus.name}", count, "texts") as bar:
        size = settings.shard_size
        bar.skip(count - sum(min(size, count - number * size) for number in left))
        load, todo = EncoderLoader(settings, revision), Shards(corpus, size, left)
        for outcome in execute(load, todo, bar.advance, where, lambda text: run.tell("worker", text)):
            if isinstance(outcome, Lost):
                raise WorkerError(
                    f"shard {outcome.item.number} of the {corpus.name} ended its worker three times "
                    f"({outcome.how}); the others are saved\nrun the same command again, with fewer "
                    "--workers or a smaller --batch-size if memory ran out"
                )
            rows, rejects = outcome.result
            writer.commit(outcome.item.number, {"train": rows}, rejects)
    return writer.finish(_card(corpus, settings))


@dataclass(frozen=True, slots=True)
class EncoderLoader:
    """Makes a worker ready: loads the encoder once, then encodes one shard after the other."""

    settings: MineSettings
    revision: str

    def __call__(self, worker: int) -> Work[Shard, tuple[pa.Table, pa.Table]]:
        """The work of a worker: a shard's rows and rejects.

        Raises:
            ModelError: the encoder cannot be loaded, or is not the one of the process that started this.
        """
        settings = self.settings
        if model_revision(settings.encoder) != self.revision:
            raise ModelError(f"model {settings.encoder}: worker {worker} finds other weights under this name")
        encoder = load_sentence_encoder(
            settings.encoder, device=settings.device, dtype=settings.dtype, max_length=settings.max_length
        )

        def encode(shard: Shard, advance: Advance) -> tuple[pa.Table, pa.Table]:
            texts = [record.text for record in shard.texts]
            vectors = encode_texts(encoder, texts, batch_size=settings.batch_size, advance=advance)
            return encoded(shard.texts, vectors, settings.encoder)

        return encode


def encoded(
    records: Sequence[TextRecord], vectors: NDArray[np.float32], model: str
) -> tuple[pa.Table, pa.Table]:
    """Rows of ``ENCODED``, and as rejects the texts whose vector has no direction.

    Args:
        records: n texts.
        vectors: ``(n, d)`` float32.
        model: what the user called the encoder.

    Raises:
        ModelError: a vector is not finite.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all():
        where = records[int(np.flatnonzero(~np.isfinite(lengths))[0])].where
        raise ModelError(
            f"model {model}: gives a vector with numbers that are not finite for {where}; use --dtype float32"
        )
    unit = vectors[lengths > 0] / lengths[lengths > 0, None]
    kept = [record.text for record, length in zip(records, lengths, strict=True) if length > 0]
    lost = [record for record, length in zip(records, lengths, strict=True) if not length > 0]
    offsets = np.arange(0, unit.size + 1, unit.shape[1], dtype=np.int32)
    rows = pa.Table.from_arrays(
        [
            pa.array([text_id(text) for text in kept], pa.string()),
            pa.array(kept, pa.string()),
            pa.ListArray.from_arrays(offsets, pa.array(unit.ravel(), pa.float32())),
        ],
        schema=ENCODED,
    )
    rejects = [
        Reject.of(
            text_id(record.text),
            "zero vector",
            "the encoder's vector has no direction",
            {"text": record.text, "where": record.where},
        )
        for record in lost
    ]
    return rows, to_table(rejects, REJECT)


def _card(corpus: Corpus, settings: MineSettings) -> Card:
    return Card(
        title=f"{corpus.name}, encoded by {settings.encoder}",
        description="Texts and their vectors of length 1, by a sentence encoder, as mining needs them.",
        made="The texts are as they were given; the vectors were computed.",
        tags=("embeddings",),
        licence="The rights in the texts apply.",
    )
