"""Cost estimates of ``chunk``, ``queries`` and ``filter-queries``, extrapolated from a timed sample."""

import time
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from pairsmith.core.paths import files_below, size_of
from pairsmith.data.files.reading import count_documents
from pairsmith.data.schemas import CHUNK
from pairsmith.data.splits import to_train_on
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import FOLDER_BYTES, Before, Estimate, peak_memory
from pairsmith.search.exact import nearest
from pairsmith.steps.judging import seconds_to_judge
from pairsmith.steps.planning import (
    beyond_samples,
    counted,
    first_passages,
    has_no_sample,
    load_search_encoder,
    search_seconds,
    sharded,
    timed,
)
from pairsmith.steps.retrieval.chunk import document_chunks, documents
from pairsmith.steps.retrieval.generated_queries import QuerySource, WrittenQueries
from pairsmith.steps.retrieval.queries import chosen_chunks, identity_of, write_queries
from pairsmith.steps.retrieval.query_rows import read_evaluation
from pairsmith.steps.retrieval.reused import EarlierQueries, contents_of
from pairsmith.steps.retrieval.settings import ChunkSettings, FilterQueriesSettings, QueriesSettings
from pairsmith.steps.slice_plan import plan_by_slice

CALIBRATION_DOCUMENTS = 32
CALIBRATION_TEXTS = 256
CALIBRATION_VECTORS = 2_048


def plan_chunk(settings: ChunkSettings, before: Before) -> Estimate:
    """Estimate ``chunk``: cut evenly spaced documents of the sources; copies are not taken into account."""
    begun = time.monotonic()
    sources = [source for source in settings.documents if not has_no_sample(source, before)]
    readable = settings.model_copy(update={"documents": sources})
    number = count_documents(documents(readable)).documents if sources else 0
    sample = list(islice(documents(readable), 0, None, max(1, number // CALIBRATION_DOCUMENTS)))
    count = number + beyond_samples(settings.documents, before)
    loading = time.monotonic() - begun
    begun = time.monotonic()
    tables = [document_chunks(document, settings)[0] for document in sample]
    chunks = pa.concat_tables([CHUNK.empty_table(), *(table.select(CHUNK.names) for table in tables)])
    share = count / max(1, len(sample))
    return sharded(
        loading=loading,
        shared=(time.monotonic() - begun) * share,
        size=round(2 * chunks.nbytes * share),  # chunks are saved with and without copies
        rows=round(chunks.num_rows * share),
        shards=-(-count // settings.shard_size),
        sample=chunks,
    )


def plan_queries(settings: QueriesSettings, before: Before) -> Estimate:
    """Estimate ``queries``: write queries for some chunks.

    Chunks whose queries the folder of ``reuse`` has only take the time to read them.
    """
    new = settings.model_copy(update={"reuse": None})
    if settings.reuse is None or settings.model in before:
        return plan_by_slice(write_queries, "chunks", new, before)
    begun = time.monotonic()
    earlier = EarlierQueries.open(settings.reuse, identity_of(settings))
    contents = contents_of(settings, chosen_chunks(settings)())
    share = sum(earlier.has(*item) for item in contents.items()) / len(contents)
    count = counted(settings.chunks, before, len(contents))
    count = min(count, settings.limit or count)
    left = count - round(share * count)
    reused_share = (count - left) / max(1, len(earlier))  # of the chunks of the earlier folder
    folder = DatasetFolder.open(settings.reuse)
    size = sum(size_of(file) or 0 for file in files_below(folder.path).values())
    sample = next(folder.batches("train"), folder.schema().empty_table()).slice(0, CALIBRATION_TEXTS)
    estimate = Estimate(seconds=0.0, memory=peak_memory(), disk=FOLDER_BYTES, rows={}, sample=sample)
    reading = time.monotonic() - begun
    if left:
        estimate = plan_by_slice(write_queries, "chunks", new.model_copy(update={"limit": left}), before)
    return replace(
        estimate,
        seconds=estimate.seconds + reading,
        disk=estimate.disk + round(size * reused_share),
        rows={"train": estimate.rows.get("train", 0) + round(folder.rows * reused_share)},
    )


def plan_filter_queries(settings: FilterQueriesSettings, before: Before) -> Estimate:
    """Estimate ``filter-queries``: encode and judge a sample of texts, and search random vectors.

    The time of the search is proportional to the number of queries times the number of chunks. The estimate
    assumes that all queries are kept.
    """
    begun = time.monotonic()
    query_source = QuerySource.find(to_train_on(settings.queries, "filtered"))
    count = counted(settings.queries, before, query_source.rows)
    written = WrittenQueries.of(next(query_source.tables()), settings.queries)
    chunks, corpus = first_passages(settings.corpus, before, CALIBRATION_TEXTS, settings.corpus_column)
    query_count = count + len(read_evaluation(settings))
    queries = [text for text in islice(written.texts(), CALIBRATION_TEXTS) if text]
    reading = time.monotonic() - begun
    encode, width, loading = load_search_encoder(settings)
    loading += reading
    seconds, size = 0.0, written.table.nbytes * count // len(written)
    for texts, total in ((queries, query_count), (chunks, corpus)):
        more_loading, per_text, vectors = timed(lambda: encode, texts)
        loading += more_loading
        encoding = per_text * total  # at the end that of the chunks
        seconds += encoding
        size += (vectors.nbytes + sum(map(len, texts))) * total // max(1, len(texts))
    if settings.judge:
        judge_loading, per_query = seconds_to_judge(settings.judging(), before, queries, chunks)
        loading, seconds = loading + judge_loading, seconds + per_query * count
    per_product = search_seconds(nearest, settings.within, width, CALIBRATION_VECTORS, CALIBRATION_VECTORS)
    seconds += per_product * count * corpus
    estimate = sharded(
        loading=loading,
        shared=seconds,
        size=size,
        rows=count,
        shards=-(-query_count // settings.shard_size) - (-corpus // settings.shard_size),
        sample=written.table.slice(0, CALIBRATION_TEXTS),
    )
    return replace(estimate, encoding=encoding)
