"""A corpus as vectors: read as a stream, cut into units, encoded shard by shard, saved as a dataset folder.

The folder is a result of its own: a run that was stopped continues after its last shard, and a run with
other search settings reuses the vectors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import check_revision
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.text import finder_revision
from pairsmith.methods.mining.style import load_style
from pairsmith.models.encode import encode_texts
from pairsmith.runs import Card, DatasetFolder, Run, hash_source, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, ProgressScaler, RecordShard, commit_records, start_part
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.encoded import ENCODED
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.mine.units import Unit, cutter

_DECIDES = {"kind", "group_column", "dtype", "max_length", "shard_size"}
_DECIDES_BY_SIDE = {
    ("reading", "inputs"): {"style"},
    ("reading", "outputs"): {"answers", "window"},
    ("summaries", "inputs"): {"min_sentences"},
    ("summaries", "outputs"): {"style"},
}
"""Settings on which the units of a corpus and their vectors depend."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus to encode.

    Attributes:
        name: ``inputs`` or ``outputs``.
        sources: files, dataset folders or Hub data sets with the texts.
        column: the column that holds the texts; ``group_column``: the one that holds their groups.
        hashes: the hash of each source, by a name for it.
        prefer: column names that are tried first where ``column`` is None.
    """

    name: Literal["inputs", "outputs"]
    sources: Sequence[str]
    column: str | None
    group_column: str | None
    hashes: Mapping[str, str]
    prefer: Sequence[str] = ()

    def records(self) -> Iterator[Document]:
        """All documents of the corpus, one at a time."""
        return chain.from_iterable(
            read_documents(source, column=self.column, group_column=self.group_column, prefer=self.prefer)
            for source in self.sources
        )


def corpora(settings: MineSettings) -> tuple[Corpus, Corpus]:
    """The corpora of the inputs and of the outputs."""
    inputs = _corpus("inputs", settings.inputs, settings.input_column, settings.group_column)
    outputs = _corpus("outputs", settings.outputs, settings.output_column, settings.group_column)
    return replace(inputs, prefer=("question",) if settings.kind == "reading" else ()), outputs


def _corpus(
    name: Literal["inputs", "outputs"], sources: Sequence[str], column: str | None, group_column: str | None
) -> Corpus:
    hashes = {f"{name} {i}": hash_source(source) for i, source in enumerate(sources, start=1)}
    return Corpus(name, sources, column, group_column, hashes)


def is_styled(settings: MineSettings, side: str) -> bool:
    """Whether texts whose style differs from that of the seeds are dropped on this side."""
    return "style" in _DECIDES_BY_SIDE.get((settings.kind, side), ())


def finder_of(settings: MineSettings) -> dict[str, str]:
    """The revision of the model that finds candidate answers; empty where no model is used."""
    return finder_revision(settings.answers) if settings.kind == "reading" else {}


def encode_corpus(corpus: Corpus, settings: MineSettings, revision: str, run: Run) -> DatasetFolder:
    """Encode a corpus into ``run.out`` with this revision of the encoder; finished shards are kept."""
    count = sum(1 for _ in corpus.records())
    decides = _DECIDES | _DECIDES_BY_SIDE.get((settings.kind, corpus.name), set())
    writer = start_part(
        run,
        step="encode",
        schema=ENCODED,
        settings={
            "side": corpus.name,
            "column": corpus.column,
            **settings.model_dump(mode="json", include=decides),
        },
        inputs=corpus.hashes,
        models={"encoder": revision, **(finder_of(settings) if corpus.name == "outputs" else {})},
        planned=-(-count // settings.shard_size),
    )
    if writer.finished:
        return writer.folder()
    commit_records(
        writer,
        EncoderLoader(corpus.name, settings, revision),
        corpus.records,
        count,
        settings.shard_size,
        where_of(settings),
        run,
        title=f"encode {corpus.name}",
        unit="texts",
    )
    return writer.finish(_card(corpus, settings))


def where_of(settings: MineSettings) -> ExecutorChoice:
    """The executor and the workers that the settings ask for."""
    return ExecutorChoice(settings.executor, settings.workers, settings.ray_address)


@dataclass(frozen=True, slots=True)
class EncoderLoader:
    """Sets up a worker: loads the encoder once, then encodes one shard after the other."""

    side: Literal["inputs", "outputs"]
    settings: MineSettings
    revision: str

    def __call__(self, worker: int) -> Work[RecordShard[Document], Made]:
        """The function that a worker applies to each shard; it returns the shard's rows and rejects."""
        from pairsmith.models.sentence_encoder import load_sentence_encoder  # slow; not needed to search

        settings = self.settings
        check_revision(settings.encoder, self.revision, worker)
        encoder = load_sentence_encoder(
            settings.encoder, device=settings.device, dtype=settings.dtype, max_length=settings.max_length
        )
        cut = cutter(self.side, settings)
        style = load_style(settings.encoder) if settings.style and is_styled(settings, self.side) else None

        def encode(shard: RecordShard[Document], advance: Advance) -> Made:
            pieces = [cut(record) for record in shard.records]
            units = [unit for found, _ in pieces for unit in found]
            share = ProgressScaler(len(shard.records), len(units), advance)
            vectors = encode_texts(
                encoder,
                [unit.text for unit in units],
                side="query" if self.side == "inputs" else "document",
                batch_tokens=settings.batch_tokens,
                advance=share,
            )
            share.finish()
            rejects = [reject for _, lost in pieces for reject in lost]
            likely = style.likelihood(vectors) if style and len(units) else None
            return encoded(units, vectors, settings, likely, rejects)

        return encode


def encoded(
    units: Sequence[Unit],
    vectors: NDArray[np.float32],
    settings: MineSettings,
    likely: NDArray[np.float32] | None = None,
    rejects: Sequence[Reject] = (),
) -> Made:
    """Make rows of ``ENCODED``; units of another style (M4) and units with a zero vector become rejects.

    Args:
        units: n units.
        vectors: ``(n, d)`` float32.
        settings: settings of the step.
        likely: ``(n,)`` probabilities that a unit is in the style of the seeds; None without a classifier.
        rejects: rejects from cutting the records into units.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all():
        where = units[int(np.flatnonzero(~np.isfinite(lengths))[0])].where
        raise ModelError(
            f"model {settings.encoder}: gives a vector that is not finite for {where}; use --dtype float32"
        )
    stays = lengths > 0
    lost = list(rejects)
    for place, unit in enumerate(units):
        row = {"text": unit.text, "where": unit.where}
        if not stays[place]:
            reason = "the encoder's vector is zero"
            lost.append(Reject.of(text_id(unit.text), "zero vector", reason, row))
        elif likely is not None and likely[place] < settings.style:
            stays[place] = False
            reason = f"probability below {settings.style} of being in the style of the seeds"
            likelihood = {"likelihood": float(likely[place])}
            lost.append(Reject.of(text_id(unit.text), "style", reason, row | likelihood))
    kept = [unit for unit, stay in zip(units, stays, strict=True) if stay]
    unit_vectors = vectors[stays] / lengths[stays, None]
    offsets = np.arange(0, unit_vectors.size + 1, max(1, vectors.shape[1]), dtype=np.int32)[: len(kept) + 1]
    columns = {
        "id": [text_id(unit.text) for unit in kept],
        **{
            name: [getattr(unit, name) for unit in kept]
            for name in ENCODED.names
            if name not in ("id", "vector")
        },
        "vector": pa.ListArray.from_arrays(offsets, pa.array(unit_vectors.ravel(), pa.float32())),
    }
    return pa.table(columns, schema=ENCODED), to_table(lost, REJECT)


def _card(corpus: Corpus, settings: MineSettings) -> Card:
    return Card(
        title=f"{corpus.name}, encoded by {model_display_name(settings.encoder)}",
        description="Texts and their vectors of length 1, by a sentence encoder, as mining needs them.",
        made="The texts are as they were given, or cut from these; the vectors were computed.",
        tags=("embeddings",),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.encoder], data=corpus.sources),
    )
