"""The step ``chunk``: cut documents into chunks.

folders, files and tables -> documents -> sections with titles -> chunks of whole sentences -> chunks that
repeat no earlier one -> rows
"""

import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairsmith.data.files.parsed import Unreadable
from pairsmith.data.files.reading import (
    UNKNOWN_KIND,
    DocumentCounts,
    SourceDocument,
    count_documents,
    source_documents,
    source_names,
)
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import CHUNK, REJECT, Reject, to_table
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import text_keys
from pairsmith.methods.retrieval.chunks import cut_sections
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, sources_of, synthetic_tag
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import REJECTS
from pairsmith.runs.mapped import (
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
    start_part,
)
from pairsmith.runs.sorting import first_of_each
from pairsmith.runs.storage import hash_json
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.planning import count_in_run, has_no_sample, sharded_estimate
from pairsmith.steps.retrieval.settings import ChunkSettings
from pairsmith.steps.shared import hashes, refuse_inside, refuse_sources

_CUT: pa.Schema = pa.schema([*CHUNK, ("key", pa.string())])
"""A chunk, and a key that is equal for all copies of its text."""

_NAMED = 3
"""Largest number of unreadable documents that the progress names; the rejects list all of them."""
_TRIED = 32
"""About the number of documents that a plan cuts."""


def chunk(settings: ChunkSettings, run: Run) -> DatasetFolder:
    """Cut documents into chunks; see ``ChunkSettings`` for the settings.

    The chunks of each document, copies included, are saved in the subfolder ``cut``. Documents that cannot be
    read, and chunks that repeat an earlier one, become rejects.
    """
    refuse_sources(run, documents=settings.documents)
    refuse_inside(run, documents=settings.documents)
    counted = count_documents(documents(settings))
    if counted.unknown:
        run.progress.say(
            f"files of kinds that are not read: {counted.named()}; rejects/ lists them ({UNKNOWN_KIND})"
        )
    decides, inputs = settings.deciding(), _inputs(settings)
    planned = -(-counted.documents // settings.shard_size)
    writer = FolderWriter.start(run, Identity.of("chunk", decides, inputs), CHUNK, planned=planned)
    if writer.finished:
        return nothing_to_do(writer)
    # 1. Cut all documents into chunks.
    cut = _cut(settings, counted, inputs, run.part("cut"))
    if run.rank is not None:
        return writer.folder()  # copies are found among the chunks of all ranks
    # 2. Find the chunks that repeat an earlier one, by the keys of their texts.
    total = sum(cut.shard_rows())
    keys = (text_keys(table["key"])[:, None] for table in cut.shards("train", ["key"]))
    first = first_of_each(keys, total, run.out)
    # 3. Write the other chunks.
    start = 0
    unread: list[str] = []
    shards = zip(cut.shards("train"), cut.shards(REJECTS), strict=True)
    for number, (table, rejects) in enumerate(shards):
        faulty = rejects.filter(pc.not_equal(rejects["filter"], UNKNOWN_KIND))["row"]
        unread += [json.loads(row)["where"] for row in faulty.slice(0, _NAMED + 1).to_pylist()]
        rows = np.arange(start, start + len(table))
        start += len(table)
        if not writer.is_done(number):
            is_first = pa.array(first[rows] == rows)
            copies = table.filter(pc.invert(is_first)).to_pylist()
            all_rejects = pa.concat_tables([rejects, to_table([_copy(row) for row in copies], REJECT)])
            writer.commit(number, {"train": table.filter(is_first).select(CHUNK.names)}, all_rejects)
    if unread:
        more = ", …" if len(unread) > _NAMED else ""
        run.progress.say(f"not read, or only in part: {', '.join(unread[:_NAMED])}{more}; rejects/ says why")
    return finished(writer, _card(settings, counted, total))


def documents(settings: ChunkSettings) -> Iterator[SourceDocument]:
    """Yield all documents of the settings, unread."""
    return source_documents(settings.documents, column=settings.column, title_column=settings.title_column)


def _inputs(settings: ChunkSettings) -> dict[str, str]:
    """The hashes of the documents, and the hash of the sources' names, which enter the ids of chunks."""
    inputs = hashes("documents", settings.documents)
    if names := source_names(settings.documents):
        inputs["names of documents"] = hash_json(tuple(names))
    return inputs


def _cut(settings: ChunkSettings, counted: DocumentCounts, inputs: dict[str, str], run: Run) -> DatasetFolder:
    """Cut all documents: the folder of their chunks, with copies, as ``_CUT``."""
    sizes = equal_shards(counted.documents, settings.shard_size)
    writer = start_part(run, Identity.of("cut", settings.deciding(), inputs), _CUT, planned=len(sizes))
    if writer.finished:
        return writer.folder()
    commit_each(
        writer,
        Shards(partial(record_shards, partial(documents, settings), settings.shard_size), sizes, "documents"),
        partial(_load_worker, settings),
        ExecutorChoice.of(settings),
        title="chunk",
    )
    return writer.finish(_card(settings, counted))


def _load_worker(
    settings: ChunkSettings,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[RecordShard[SourceDocument], RowsAndRejects]:
    """Returns the function that makes the chunks and rejects of a shard of documents."""

    def work(shard: RecordShard[SourceDocument], advance: Advance) -> RowsAndRejects:
        tables, rejects = [_CUT.empty_table()], list[Reject]()
        for document in shard.records:
            rows, document_rejects = document_chunks(document, settings)
            tables.append(rows)
            rejects += document_rejects
            advance(1)
        return pa.concat_tables(tables), to_table(rejects, REJECT)

    return work


def document_chunks(document: SourceDocument, settings: ChunkSettings) -> tuple[pa.Table, list[Reject]]:
    """The chunks of a document as ``_CUT``, and a reject for each part that could not be read."""
    try:
        parsed = document.read()
    except Unreadable as error:
        return _CUT.empty_table(), [document.reject(error.fault)]
    rows = [
        {
            "id": text_id(f"{document.name}\n{number}\n{part.text}"),
            "title": part.title,
            "text": part.text,
            "document": document.name,
            "place": number,
            "key": text_id(folded(part.text)),
        }
        for number, part in enumerate(
            cut_sections(parsed.sections, words=settings.words, overlap=settings.overlap), start=1
        )
    ]
    return pa.Table.from_pylist(rows, _CUT), [document.reject(fault) for fault in parsed.faults]


def plan_chunk(settings: ChunkSettings, before: Before) -> Estimate:
    """Estimate ``chunk``: cut evenly spaced documents of the sources; copies are not taken into account."""
    begun = time.monotonic()
    sources = [source for source in settings.documents if not has_no_sample(source, before)]
    readable = settings.model_copy(update={"documents": sources})
    number = count_documents(documents(readable)).documents if sources else 0
    sample = list(islice(documents(readable), 0, None, max(1, number // _TRIED)))
    count = count_in_run(number, settings.documents, before)
    loading = time.monotonic() - begun
    tables = [document_chunks(document, settings)[0] for document in sample]
    chunks = pa.concat_tables([CHUNK.empty_table(), *(table.select(CHUNK.names) for table in tables)])
    factor = count / max(1, len(sample))
    return sharded_estimate(
        chunks,
        round(chunks.num_rows * factor),
        -(-count // settings.shard_size),
        loading=loading,
        shared=(time.monotonic() - begun - loading) * factor,
        size=round(2 * chunks.nbytes * factor),  # chunks are saved with and without copies
    )


def _copy(row: dict[str, object]) -> Reject:
    columns = {name: row[name] for name in CHUNK.names if name != "id"}
    return Reject.of(str(row["id"]), DUPLICATE, "repeats an earlier chunk", columns)


def _card(settings: ChunkSettings, counted: DocumentCounts, total: int | None = None) -> Card:
    counts = {"documents read": counted.documents, "files of other kinds, not read": counted.of_unknown_kind}
    if total is not None:
        counts["chunks, copies included"] = total
    return Card(
        title="Chunks of documents",
        description=f"Documents cut into chunks of whole sentences, at most {settings.words} words each.",
        counts=counts,
        columns={
            "title": "the titles of the document and of the section that the chunk is from",
            "text": "the text of the chunk",
            "key": "a hash of the text, the same for copies",
            "document": "the document's path in the folder that was given, or its id",
            "place": "the number of the chunk in its document, from 1",
        },
        provenance="The texts were cut from the documents by a program.",
        tags=synthetic_tag(*settings.documents),
        licence="The rights in the documents apply.",
        sources=sources_of(data=settings.documents),
        task="text-retrieval",
    )
