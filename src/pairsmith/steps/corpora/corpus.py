"""Encoding of a corpus: records are cut into units of text, encoded shard by shard, and saved in a folder.

The folder is a dataset folder of its own. A run that was stopped continues after its last saved shard, and a
run with other settings of the search uses the saved vectors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import compress
from typing import Literal

import numpy as np
import pyarrow as pa

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import check_revision
from pairsmith.core.paths import place
from pairsmith.data.documents import Document
from pairsmith.data.filters import NO_ANSWER, TOO_SHORT, ZERO_VECTOR
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.text import entities_of_texts, finder_revision
from pairsmith.methods.mining.style import load_style_classifier, select_unit_vectors
from pairsmith.methods.mining.units import answers_in_passages, sentences_of
from pairsmith.models.encode import Side, encode_texts
from pairsmith.models.unit_vectors import first_not_finite
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    ProgressScaler,
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    record_shards,
    start_part,
)
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.corpora.encoded import ENCODED_TEXTS, encoded_schema
from pairsmith.steps.corpora.options import EncodingOptions, UnitOptions
from pairsmith.steps.kept_vectors import KeptVectors, VectorOptions
from pairsmith.steps.shared import load_options

STYLE = "style"
"""The name of the filter that rejects texts that are not in the style of the seeds (M4)."""

_DECIDES_BY_SIDE = {
    ("reading", "inputs"): ("style",),
    ("reading", "outputs"): ("answers", "window"),
    ("summaries", "inputs"): ("min_sentences",),
    ("summaries", "outputs"): ("style",),
}
"""The options that decide the units of a corpus, by kind of pairs and side."""

_MOST_NUMBERS = 2**31 - 1
"""Largest number of vector components in one shard: Arrow's lists have 32-bit offsets."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of text to encode.

    Attributes:
        text: the text; for a candidate answer, the answer in its passage.
        where: the location of its record in the source.
        group: the group within which it is paired.
        context: for a candidate answer, its passage; else None.
        answer: the candidate answer; else None.
        answer_start: the position of the answer in ``context``, in characters; else None.
    """

    text: str
    where: str
    group: str = ""
    context: str | None = None
    answer: str | None = None
    answer_start: int | None = None


UnitsOfRecord = list[Unit] | Reject
"""The units of a record, or a reject if it has none."""
Cut = Callable[[Sequence[Document]], Iterable[UnitsOfRecord]]
"""A function that cuts records into units; it yields one result for each record."""


def cutter(side: str, options: UnitOptions) -> Cut:
    """The function that cuts the records of a corpus into units; ``side`` is ``inputs`` or ``outputs``.

    A record without a group is rejected if the options have a ``group_column``.
    """
    cut: Cut = partial(map, _one_unit)
    if options.kind == "reading" and side == "outputs":
        cut = _answers(options)
    elif options.kind == "summaries":
        cut = partial(map, partial(_long_enough, options.min_sentences) if side == "inputs" else _sentences)

    def in_groups(records: Sequence[Document]) -> Iterator[UnitsOfRecord]:
        grouped = [bool(record.group) or not options.group_column for record in records]
        of_grouped = iter(cut(list(compress(records, grouped))))
        reason = f"nothing in column {options.group_column}"
        for record, has_group in zip(records, grouped, strict=True):
            yield next(of_grouped) if has_group else _reject(record, "no group", reason)

    return in_groups


def units_of(cut: Cut, records: Sequence[Document]) -> tuple[list[Unit], list[Reject]]:
    """The units of some records, and the rejects for records without any."""
    pieces = list(cut(records))
    units = [unit for piece in pieces if not isinstance(piece, Reject) for unit in piece]
    return units, [piece for piece in pieces if isinstance(piece, Reject)]


def _one_unit(record: Document) -> list[Unit]:
    return [Unit(record.text, record.where, record.group)]


def _answers(options: UnitOptions) -> Cut:
    """The function that cuts records into windows, and makes a unit of each candidate answer in them (M7)."""
    find = entities_of_texts(options.answers)

    def cut(records: Sequence[Document]) -> Iterator[UnitsOfRecord]:
        of_records = answers_in_passages([record.text for record in records], find, options.window)
        for record, answers in zip(records, of_records, strict=True):
            units = [
                Unit(unit.text, record.where, record.group, unit.passage, unit.answer, unit.start)
                for unit in answers
            ]
            reason = "the passage holds no name, number or date"
            yield units or _reject(record, NO_ANSWER, reason)

    return cut


def _long_enough(least: int, record: Document) -> UnitsOfRecord:
    """The document as one unit, if it has at least ``least`` sentences (M8); else a reject."""
    count = len(sentences_of(record.text))
    if count >= least:
        return _one_unit(record)
    return _reject(record, TOO_SHORT, f"{count} sentence{'s' * (count != 1)}, fewer than {least}")


def _sentences(record: Document) -> list[Unit]:
    return [Unit(sentence, record.where, record.group) for sentence in sentences_of(record.text)]


def _reject(record: Document, filter_: str, reason: str) -> Reject:
    row = {"text": record.text, "where": record.where}
    return Reject.of(text_id(record.text), filter_, reason, row)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus to encode.

    Attributes:
        side: whether it holds inputs or outputs.
        title: the name of the corpus in the progress.
        records: yields all records of the corpus, from the first one at each call.
        sources: the sources of the records, for the card.
        column: the setting that names the column of the texts, for the fingerprint.
        hashes: the hash of each source, by the name under which the manifest lists it.
        keep: the columns to keep, see ``read_documents``.
    """

    side: Literal["inputs", "outputs"]
    title: str
    records: Callable[[], Iterator[Document]]
    sources: Sequence[str]
    column: str | None
    hashes: Mapping[str, str]
    keep: Mapping[str, str] = field(default_factory=dict)

    def count(self) -> int:
        """The number of records. All records are read, so a record that cannot be read is an error."""
        return sum(1 for _ in self.records())


def is_styled(options: UnitOptions, side: str) -> bool:
    """Whether texts of this side are dropped if they are not in the style of the seeds (M4)."""
    return options.style > 0 and "style" in _DECIDES_BY_SIDE.get((options.kind, side), ())


def finder_of(options: UnitOptions) -> dict[str, str]:
    """The revision of the model that finds candidate answers, by name; empty if no model finds them."""
    return finder_revision(options.answers) if options.kind == "reading" else {}


def encode_corpus(
    corpus: Corpus, options: EncodingOptions, revision: str, run: Run, count: int | None = None
) -> DatasetFolder:
    """Encode a corpus into ``run.out``; shards that an earlier run has finished are not encoded again.

    Args:
        corpus: the corpus.
        options: the encoder, how it encodes, and how records are cut into units.
        revision: the revision of the encoder.
        run: the run; its folder becomes the folder of the encoded corpus.
        count: the number of records of the corpus; None to count them.

    Returns:
        the folder, with the columns of ``encoded_schema``.
    """
    count = corpus.count() if count is None else count
    sizes = equal_shards(count, options.shard_size)
    shards = Shards(partial(record_shards, corpus.records, options.shard_size), sizes, "texts")
    writer = start_part(
        run,
        Identity.of(
            "encode",
            _deciding(corpus, options),
            corpus.hashes,
            {"encoder": revision, **(finder_of(options.units) if corpus.side == "outputs" else {})},
        ),
        encoded_schema(options.vector_dtype),
        planned=len(sizes),
    )
    if writer.finished:
        return writer.folder()
    model, kept = options.encoder, _kept_vectors(corpus.side, options, revision)
    if kept:
        cut = cutter(corpus.side, options.units)
        all_shards = shards.read(range(len(sizes)))
        texts = ([unit.text for unit in units_of(cut, shard.records)[0]] for shard in all_shards)
        model = "" if kept.has_all(texts, run.progress.say) else model  # then the encoder is not loaded
    commit_each(
        writer,
        shards,
        partial(_load_encoder, corpus.side, options, revision),
        ExecutorChoice(options.executor, options.workers, options.ray_address),
        title=f"encode {corpus.title}",
        model=model,
    )
    return writer.finish(_card(corpus, options))


def _deciding(corpus: Corpus, options: EncodingOptions) -> dict[str, JSON]:
    """The options that decide the units of a corpus and their vectors, for the folder's fingerprint."""
    units = options.units
    of_side = _DECIDES_BY_SIDE.get((units.kind, corpus.side), ())
    return {
        "side": corpus.side,
        "column": corpus.column,
        "kind": units.kind,
        "group_column": units.group_column,
        "dtype": options.dtype,
        "max_length": options.max_length,
        "vector_dtype": options.vector_dtype,
        "shard_size": options.shard_size,
        **{name: getattr(units, name) for name in of_side},
    }


def _load_encoder(
    side: Literal["inputs", "outputs"], options: EncodingOptions, revision: str, worker: int
) -> Work[RecordShard[Document], RowsAndRejects]:
    """Returns the function that makes the rows and rejects of a shard of records."""
    from pairsmith.models.sentence_encoder import load_sentence_encoder  # a slow import, only needed here

    check_revision(options.encoder, revision, worker)
    # The encoder is loaded for the first shard that has texts without a kept vector.
    encoder = cache(partial(load_sentence_encoder, options.encoder, **load_options(options)))
    kept = _kept_vectors(side, options, revision)
    cut = cutter(side, options.units)
    style = load_style_classifier(options.encoder) if is_styled(options.units, side) else None

    def encode(texts: Sequence[str], advance: Advance) -> Float32s:
        text_side: Side = "query" if side == "inputs" else "document"
        return encode_texts(
            encoder(), texts, side=text_side, batch_tokens=options.batch_tokens, advance=advance
        )

    def encode_shard(shard: RecordShard[Document], advance: Advance) -> RowsAndRejects:
        units, rejects = units_of(cut, shard.records)
        scaler = ProgressScaler(len(shard.records), len(units), advance)
        texts = [unit.text for unit in units]
        vectors = kept.vectors(texts, encode, scaler) if kept else encode(texts, advance=scaler)
        scaler.finish()
        style_probability = style.probability(vectors) if style and len(units) else None
        return encoded_rows(units, vectors, options, style_probability, rejects)

    return encode_shard


def _kept_vectors(side: str, options: EncodingOptions, revision: str) -> KeptVectors | None:
    """The store of kept vectors; None without one, and for inputs, as queries hardly ever recur."""
    if options.vectors is None or side == "inputs":
        return None
    vector_options = VectorOptions(batch_tokens=options.batch_tokens, **load_options(options))
    return KeptVectors.of(place(options.vectors), revision, vector_options)


def encoded_rows(
    units: Sequence[Unit],
    vectors: Float32s,
    options: EncodingOptions,
    style_probability: Float32s | None = None,
    rejects: Sequence[Reject] = (),
) -> RowsAndRejects:
    """The rows of ``encoded_schema`` for n units, and the rejects.

    Units whose vector is zero, and units that are not in the style of the seeds (M4), become rejects.

    Args:
        units: the units.
        vectors: ``(n, d)`` float32, the vectors of the units, of any length.
        options: the encoder, the format of the vectors, and the least probability of the style.
        style_probability: ``(n,)`` in [0, 1], the probability that a unit is in the style of the seeds; None
            without a style classifier.
        rejects: rejects from cutting the records, which are returned first.
    """
    if (place := first_not_finite(vectors)) is not None:
        raise ModelError(
            f"model {options.encoder}: its vector of the text in {units[place].where} is not finite; use "
            "--dtype float32"
        )
    scaled = select_unit_vectors(vectors, style_probability, options.units.style)
    all_rejects = list(rejects)
    for place in np.flatnonzero(~scaled.kept).tolist():
        unit = units[place]
        row = {"text": unit.text, "where": unit.where}
        if scaled.zero[place]:
            reason = "the encoder's vector is zero"
            all_rejects.append(Reject.of(text_id(unit.text), ZERO_VECTOR, reason, row))
        elif style_probability is not None:
            reason = f"probability below {options.units.style} of being in the style of the seeds"
            likelihood = {"likelihood": float(style_probability[place])}
            all_rejects.append(Reject.of(text_id(unit.text), STYLE, reason, row | likelihood))
    kept = list(compress(units, scaled.kept))
    width = max(1, vectors.shape[1])
    if scaled.vectors.size > _MOST_NUMBERS:
        raise SettingsError(
            f"{options.encoder}: {len(kept):,} vectors of {width} numbers are more than a shard can hold "
            f"({_MOST_NUMBERS // width:,}); give a smaller --shard-size"
        )
    offsets = np.arange(0, scaled.vectors.size + 1, width, dtype=np.int32)[: len(kept) + 1]
    columns = {
        "id": [text_id(unit.text) for unit in kept],
        **{name: [getattr(unit, name) for unit in kept] for name in ENCODED_TEXTS.names if name != "id"},
        "vector": pa.ListArray.from_arrays(
            offsets, pa.array(scaled.vectors.ravel().astype(options.vector_dtype))
        ),
    }
    return pa.table(columns, schema=encoded_schema(options.vector_dtype)), to_table(all_rejects, REJECT)


def _card(corpus: Corpus, options: EncodingOptions) -> Card:
    return Card(
        title=f"Vectors of {corpus.title} under {model_display_name(options.encoder)}",
        description="Texts and their vectors by a sentence encoder: an intermediate result.",
        columns={
            "group": "the group of the text; only texts of the same group are paired",
            "context": "for an answer, its passage",
            "answer": "for a candidate answer in a passage, the answer",
            "answer_start": "the character of the passage at which the answer starts, from 0",
        },
        provenance="The texts are as they were given, or cut from these; the vectors were computed.",
        tags=("embeddings",),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[options.encoder], data=corpus.sources),
    )
