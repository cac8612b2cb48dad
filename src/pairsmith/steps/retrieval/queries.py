"""The step ``queries``: write search queries for chunks of documents.

chunks -> prompts, and counter-prompts with their neighbours and titles -> queries -> rows
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import islice

import pyarrow.compute as pc

from pairsmith.core.citations import CITATION
from pairsmith.core.errors import InputError, ModelError, SettingsError, counted
from pairsmith.core.model_files import META
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.core.paths import files_below, size_of
from pairsmith.data.chunk_rows import ChunkRow, read_chunks, read_query_examples
from pairsmith.methods.retrieval.queries import QueryWriter
from pairsmith.models.heads import writes_as
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.remote import is_remote
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.begun import shard_size_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    ProgressScaler,
    Records,
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
    say_loading,
)
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.storage import write_json
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.planning import CALIBRATION_TEXTS, count_in_run, plan_by_slice, sharded_estimate
from pairsmith.steps.retrieval.reused import (
    CONTENTS,
    QUERY,
    ChunkWithEarlier,
    EarlierQueries,
    contents_of,
    merged_rows,
)
from pairsmith.steps.retrieval.settings import QueriesSettings
from pairsmith.steps.reuse import commit_kept, is_complete, without_earlier
from pairsmith.steps.shared import hashes, refuse_sources

_TOKENIZED = 1_000
"""Number of chunks that are tokenized to check whether the tokenizer was made for their language."""
_FEW_BYTES = 3
"""Bytes per token: a chunk with fewer is probably in a language that the model hardly knows."""


def write_queries(settings: QueriesSettings, run: Run) -> DatasetFolder:
    """Write queries for chunks; see ``QueriesSettings`` for the settings.

    Generated texts that are no queries, and queries that repeat another query of the chunk, become rejects.
    """
    settings = resolve_dtype(settings, run)
    _refuse_other_models(settings)
    refuse_sources(
        run, chunks=settings.chunks, model=settings.model, examples=settings.examples, reuse=settings.reuse
    )
    records = chosen_chunks(settings)
    count = sum(1 for _ in records())
    total = sum(1 for _ in read_chunks(settings.chunks, settings.column)) if settings.limit is None else count
    if repeated := total - count:
        run.progress.say(
            f"{counted(repeated, 'repeated chunks')} left out; queries are written once for each chunk"
        )
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    identity = identity_of(settings)
    earlier = None
    if settings.reuse and not is_complete(run, identity):
        earlier = EarlierQueries.open(settings.reuse, identity)
    sizes = equal_shards(count, shard_size)
    writer = FolderWriter.start(run, identity, QUERY, planned=len(sizes))
    if writer.finished:
        return nothing_to_do(writer)
    say_loading(run, settings.model)
    if warning := hardly_known(settings.model, records()):
        run.progress.say(warning)
    contents = contents_of(settings, records())
    fill = partial(earlier.filled, contents) if earlier is not None else without_earlier

    def read(numbers: Sequence[int]) -> Iterator[RecordShard[ChunkWithEarlier]]:
        return map(fill, record_shards(records, shard_size, numbers))

    shards = Shards(read, sizes, "chunks")
    if earlier is not None and settings.reuse:
        commit_kept(
            writer,
            shards,
            lambda shard, _: merged_rows(shard.records, [], []),
            path=settings.reuse,
            items="chunks",
            rows="queries",
        )
    commit_each(
        writer,
        shards,
        partial(_load_worker, settings, identity.models),
        ExecutorChoice.of(settings),
        title="write queries",
    )
    counts: dict[str, int] = {}
    if run.rank is None:
        write_json(run.out / CONTENTS, {"fingerprint": identity.fingerprint, "contents": dict(contents)})
        counts = _count_chunks(writer, count, settings.queries, run)
    return finished(writer, _card(settings, counts))


def identity_of(settings: QueriesSettings) -> Identity:
    """The settings, inputs and model that decide the queries."""
    inputs = hashes("chunks", settings.chunks) | hashes("examples", settings.examples)
    return Identity.of("queries", settings.deciding(), inputs, {"model": model_revision(settings.model)})


def _refuse_other_models(settings: QueriesSettings) -> None:
    if is_remote(settings.model):
        raise SettingsError(
            f"model {settings.model}: queries needs a model that it can load; give a folder or a Hub id"
        )
    if writes_as(settings.model) != "decoder":
        raise ModelError(f"model {settings.model}: is no causal language model; give one as --model")


def hardly_known(model_name: str, chunks: Iterable[ChunkRow]) -> str:
    """A warning if the model hardly knows the language of the chunks, else empty.

    It is given if the tokenizer needs many tokens for a chunk. A token of SmolLM2 has 4.7 bytes of English
    text on average, and mostly fewer than 3 bytes of text in other languages.
    """
    model = load_model(model_name, device=META)  # without the weights: only the tokenizer is used
    first = [chunk.text for chunk in islice(chunks, _TOKENIZED)]
    dense = sum(len(text.encode()) < _FEW_BYTES * len(model.encode(text)) for text in first)
    if dense < len(first) / 4:
        return ""
    return (
        f"{dense:,} of the first {len(first):,} chunks have fewer than {_FEW_BYTES} bytes for each token of "
        f"{model_display_name(model_name)}: they may be in a language that the model hardly knows, or no "
        "running text, and queries for them poor"
    )


def _count_chunks(writer: FolderWriter, chunk_count: int, requested: int, run: Run) -> dict[str, int]:
    """Count the chunks with the ``requested`` queries and those without any; report how many have too few.

    All queries of a chunk are in the same shard.
    """
    complete = with_queries = 0
    for tables in filter(None, map(writer.tables, writer.done)):
        queries = pc.value_counts(tables[0]["train"]["chunk"]).field("counts").to_numpy()
        with_queries += len(queries)
        complete += int((queries >= requested).sum())
    none = chunk_count - with_queries
    if complete < chunk_count:
        run.progress.say(
            f"{chunk_count - complete:,} of {chunk_count:,} chunks have fewer than "
            f"{counted(requested, 'queries')}, {none:,} of them none; a larger --tries gives more"
        )
    return {
        "chunks": chunk_count,
        "chunks with as many queries as requested": complete,
        "chunks without a query": none,
    }


def chosen_chunks(settings: QueriesSettings) -> Records[ChunkRow]:
    """The function that reads the chunks to write queries for, each once, in the order of the source.

    Different chunks with the same id are an ``InputError``. With a ``limit`` of N, the chunks are a random
    sample: those with the N lowest keys, which are made of seed and id, so that a larger N adds chunks.
    """
    if settings.limit is None:
        return partial(_once, settings)

    def key(chunk: ChunkRow) -> int:
        return stream_key(settings.seed, "choose chunks", chunk.id)

    highest = nsmallest(settings.limit, map(key, _once(settings)))[-1]
    return lambda: (chunk for chunk in _once(settings) if key(chunk) <= highest)


def _once(settings: QueriesSettings) -> Iterator[ChunkRow]:
    texts: dict[int, int] = {}  # the key of a chunk's text by that of its id
    for chunk in read_chunks(settings.chunks, settings.column):
        name, text = stream_key(chunk.id), stream_key(chunk.text)
        earlier_text = texts.get(name)
        if earlier_text is None:
            texts[name] = text
            yield chunk
        elif earlier_text != text:
            raise InputError(
                f"{settings.chunks}: two chunks with different texts have the id {chunk.id!r}; give each "
                "chunk an id of its own"
            )


def _load_worker(
    settings: QueriesSettings, models: Mapping[str, str], worker: int
) -> Work[RecordShard[ChunkWithEarlier], RowsAndRejects]:
    """Load the model; returns the function that makes the rows and rejects of a shard of chunks."""
    check_revision(settings.model, models["model"], worker)
    examples = read_query_examples(settings.examples)[: settings.shown] if settings.examples else []
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    writer = QueryWriter(model, settings.options, examples)

    def work(shard: RecordShard[ChunkWithEarlier], advance: Advance) -> RowsAndRejects:
        new = [entry.record for entry in shard.records if not entry.earlier]
        scaler = ProgressScaler(len(shard.records), len(new) * settings.queries * settings.tries, advance)
        written, rejects = writer.write(new, scaler)
        scaler.finish()
        return merged_rows(shard.records, [query.columns() for query in written], rejects)

    return work


def plan_write_queries(settings: QueriesSettings, before: Before) -> Estimate:
    """Estimate ``queries``: write queries for some chunks.

    For chunks whose queries the folder ``reuse`` has, only the time to read these queries is counted.
    """
    without_reuse = settings.model_copy(update={"reuse": None})
    if settings.reuse is None or settings.model in before:
        return plan_by_slice(write_queries, "chunks", without_reuse, before)
    begun = time.monotonic()
    earlier = EarlierQueries.open(settings.reuse, identity_of(settings))
    folder = DatasetFolder.open(settings.reuse)
    contents = contents_of(settings, chosen_chunks(settings)())
    share = sum(earlier.has(*item) for item in contents.items()) / len(contents)
    count = count_in_run(len(contents), [settings.chunks], before)
    count = min(count, settings.limit or count)
    remaining = count - round(share * count)
    rows = round(folder.rows * (count - remaining) / max(1, len(earlier)))
    sample = next(folder.batches("train"), folder.schema().empty_table()).slice(0, CALIBRATION_TEXTS)
    size = rows * sum(size_of(file) or 0 for file in files_below(folder.path).values()) // max(1, folder.rows)
    reused = sharded_estimate(sample, rows, 1, loading=time.monotonic() - begun, shared=0.0, size=size)
    if not remaining:
        return reused
    new = without_reuse.model_copy(update={"limit": remaining})
    written = plan_by_slice(write_queries, "chunks", new, before)
    seconds, disk = written.seconds + reused.seconds, written.disk + reused.disk
    return replace(written, seconds=seconds, disk=disk, rows={"train": written.rows.get("train", 0) + rows})


def _card(settings: QueriesSettings, counts: dict[str, int]) -> Card:
    data = [settings.chunks, *filter(None, [settings.examples])]
    return Card(
        title="Search queries for chunks of documents",
        counts=counts,
        description="Search queries, each for a chunk of a document that answers it. The language model "
        f"`{model_display_name(settings.model)}` wrote them. Their kinds are {', '.join(settings.kinds)}.",
        columns={"query": "the query", "positive": "the text of the chunk that the query was written for"},
        provenance="The queries were written by a program; no person has checked them.",
        citations=(CITATION,),
        licence="The rights in the documents apply.",
        sources=sources_of(models=[settings.model], data=data),
    )
