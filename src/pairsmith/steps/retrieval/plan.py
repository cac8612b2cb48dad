"""Cost estimates of ``chunk`` and ``filter-queries``: a sample is processed, timed and extrapolated."""

import time
from functools import partial
from itertools import islice

import pyarrow as pa
import torch

from pairsmith.core.model_names import MINILM
from pairsmith.data.documents import read_titled
from pairsmith.data.files.reading import Given, count_given
from pairsmith.data.schemas import CHUNK
from pairsmith.data.splits import to_train_on
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.search.exact import nearest
from pairsmith.steps.planning import counted, readable, sample_of, sharded, some_passages, timed
from pairsmith.steps.query_judge import seconds_to_judge
from pairsmith.steps.retrieval.chunk import chunks_of, documents
from pairsmith.steps.retrieval.generated_queries import QuerySource, WrittenQueries
from pairsmith.steps.retrieval.query_rows import read_evaluation
from pairsmith.steps.retrieval.settings import ChunkSettings, FilterQueriesSettings
from pairsmith.steps.shared import load_options

CALIBRATION_DOCUMENTS = 32
CALIBRATION_TEXTS = 256
CALIBRATION_VECTORS = 2_048


def plan_chunk(settings: ChunkSettings, before: Before) -> Estimate:
    """Cut some documents from all over the sources, and extrapolate; copies are not taken into account."""
    begun = time.monotonic()
    earlier = [source for source in settings.documents if source in before]
    there = settings.model_copy(
        update={"documents": [source for source in settings.documents if source not in before]}
    )
    count, sample = 0, list[Given]()
    if there.documents:
        count = count_given(documents(there)).documents
        sample += islice(documents(there), 0, None, max(1, count // CALIBRATION_DOCUMENTS))
    for source in earlier:
        if sample_of(source, before) is not None:
            sample += _given(source, settings, before)[:CALIBRATION_DOCUMENTS]
        count += sum(before[source].rows.values())
    loading = time.monotonic() - begun
    begun = time.monotonic()
    tables = [chunks_of(document, settings)[0] for document in sample]
    chunks = pa.concat_tables([CHUNK.empty_table(), *(table.select(CHUNK.names) for table in tables)])
    share = count / max(1, len(sample))
    return sharded(
        loading=loading,
        shared=(time.monotonic() - begun) * share,
        size=round(2 * chunks.nbytes * share),  # they are kept with and without copies
        rows=round(chunks.num_rows * share),
        shards=-(-count // settings.shard_size),
        sample=chunks,
    )


def _given(source: str, settings: ChunkSettings, before: Before) -> list[Given]:
    """Rows that an earlier step will make, as documents."""
    rows = readable(source, before)
    titled = read_titled(rows, column=settings.column, title_column=settings.title_column)
    return [Given(row.id, row.where, None, row.title, row.text) for row in titled]


def plan_filter_queries(settings: FilterQueriesSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some queries and chunks, search some vectors, and extrapolate, as if all queries were kept.

    ``base`` stands in for an encoder or a judge that is not trained yet.
    """
    begun = time.monotonic()
    sample = sample_of(settings.queries, before)
    if sample is None:
        query_source = QuerySource.find(to_train_on(settings.queries, "filtered"))
        rows, sample = query_source.rows, next(query_source.tables())
    else:
        rows = sample.num_rows
    count = counted(settings.queries, before, rows)
    written = WrittenQueries.of(sample, settings.queries)
    chunks, corpus = some_passages(settings.corpus, before, CALIBRATION_TEXTS, settings.corpus_column)
    query_count = count + len(read_evaluation(settings))
    queries = [text for text in islice(written.texts(), CALIBRATION_TEXTS) if text]
    model = base if settings.encoder in before else settings.encoder
    encoder = load_sentence_encoder(model, **load_options(settings))
    loading = time.monotonic() - begun
    encode = partial(encode_texts, encoder, batch_tokens=settings.batch_tokens)
    seconds, size = 0.0, written.table.nbytes * count // len(written)
    for texts, total in ((queries, query_count), (chunks, corpus)):
        more, per_text, vectors = timed(lambda: encode, texts)
        loading += more
        seconds += per_text * total
        size += (vectors.nbytes + sum(map(len, texts))) * total // max(1, len(texts))
    if settings.judge:
        more, per_query = seconds_to_judge(settings.judging(), before, queries, chunks, base)
        loading, seconds = loading + more, seconds + per_query * count
    width = encoder.get_embedding_dimension() or 1
    some = torch.nn.functional.normalize(torch.randn(CALIBRATION_VECTORS, width), dim=1)
    begun = time.monotonic()
    nearest(some, some, settings.within)
    seconds += (time.monotonic() - begun) / CALIBRATION_VECTORS**2 * count * corpus
    return sharded(
        loading=loading,
        shared=seconds,
        size=size,
        rows=count,
        shards=-(-query_count // settings.shard_size) - (-corpus // settings.shard_size),
        sample=written.table.slice(0, CALIBRATION_TEXTS),
    )
