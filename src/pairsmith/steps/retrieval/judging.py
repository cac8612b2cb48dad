"""The scores that a judge gives to queries with their own chunks, in ``filter-queries``."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.schemas import rows_at
from pairsmith.runs import Run
from pairsmith.runs.mapped import equal_shards
from pairsmith.runs.storage import hash_bytes
from pairsmith.steps.judging import judge_texts
from pairsmith.steps.retrieval.generated_queries import WrittenQueries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.vectors import KeyedVectors


def judge_queries(
    queries: WrittenQueries,
    own: NDArray[np.int64],
    corpus: KeyedVectors,
    rows: NDArray[np.int64],
    settings: FilterQueriesSettings,
    revision: str,
    inputs: Mapping[str, str],
    run: Run,
    file: Path,
) -> Float32s:
    """Have the judge score some queries, each with its own chunk and the chunk's title.

    Args:
        queries: the n queries.
        own: ``(n,)`` int64, the number of each query's own chunk in ``corpus``.
        corpus: the chunks.
        rows: the numbers of the queries to judge, ascending.
        settings: the settings of ``filter-queries``, which have a judge.
        revision: the revision of the judge.
        inputs: the fingerprints of the encoded queries and of the encoded corpus, by name.
        run: the run, whose folder becomes that of the scores.
        file: the file into which the texts of the judged queries' chunks are written.

    Returns:
        the scores of all n queries, ``(n,)`` float32; NaN for queries that are not judged.
    """
    scores = np.full(len(queries), np.nan, np.float32)
    if not len(rows):
        return scores
    size = settings.shard_size
    chunks = np.unique(own[rows])
    texts = cache(partial(corpus.texts, chunks, file))

    def shard(number: int) -> pa.Table:
        part = rows[number * size : (number + 1) * size]
        places = np.searchsorted(chunks, own[part])
        query_texts = pa.array(queries.texts_at(part), pa.string())
        return pa.table({"input": query_texts, "output": rows_at(texts(), places)["text"]})

    judged = judge_texts(
        shard,
        equal_shards(len(rows), size),
        settings.judging(),
        revision,
        run,
        deciding={},
        # The filter's other settings decide which queries are judged.
        inputs={**inputs, "judged": hash_bytes(rows.astype("<i8").tobytes())},
    )
    scores[rows] = judged.table()["score"].to_numpy()
    return scores
