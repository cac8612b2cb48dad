"""Cost estimates of ``chunk`` and ``filter-queries``: a sample is processed, timed and extrapolated."""

import time
from itertools import islice

import pyarrow as pa

from pairsmith.data.documents import read_titled
from pairsmith.data.files.reading import Given, count_given
from pairsmith.data.schemas import CHUNK
from pairsmith.data.sources import Source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.planning import sample_of, sharded
from pairsmith.steps.retrieval.chunk import chunks_of, documents
from pairsmith.steps.retrieval.settings import ChunkSettings

CALIBRATION_DOCUMENTS = 32


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
        rows = sample_of(source, before)
        found = [] if rows is None else _given(rows, settings)
        sample += found[:CALIBRATION_DOCUMENTS]
        count += sum(before[source].rows.values())
    loading = time.monotonic() - begun
    begun = time.monotonic()
    tables = [chunks_of(document, settings)[0] for document in sample]
    made = pa.concat_tables([CHUNK.empty_table(), *(table.select(CHUNK.names) for table in tables)])
    share = count / max(1, len(sample))
    return sharded(
        loading=loading,
        shared=(time.monotonic() - begun) * share,
        size=round(2 * made.nbytes * share),  # they are kept with and without copies
        rows=round(made.num_rows * share),
        shards=-(-count // settings.shard_size),
        sample=made,
    )


def _given(rows: pa.Table, settings: ChunkSettings) -> list[Given]:
    """The rows of an earlier step as documents."""
    source = Source("the sample", lambda: (("", row) for row in rows.to_pylist()))
    titled = read_titled(source, column=settings.column, title_column=settings.title_column)
    return [Given(row.id, row.where, None, row.title, row.text) for row in titled]
