"""Queries and their chunks, scored by a judge in ``filter-queries``."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.schemas import rows_at
from pairsmith.runs import Run
from pairsmith.runs.storage import hash_bytes
from pairsmith.steps.judging import equal_shards, judge_texts
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

    Returns the scores of all n queries, ``(n,)`` float32, NaN for those that are not judged.

    Args:
        queries: the n queries.
        own: the number of each query's chunk in the ``corpus``, ``(n,)``.
        rows: the numbers of the queries to judge, ascending.
        settings: of the filter, with its judge.
        revision: of the judge; ``inputs``: fingerprints of the queries and the corpus.
        run: where the scores are kept.
        file: where the texts of these queries' chunks are written, if any are to be judged.
    """
    scores = np.full(len(queries), np.nan, np.float32)
    if not len(rows):
        return scores
    size = settings.shard_size
    chunks = np.unique(own[rows])
    texts = cache(partial(corpus.texts, chunks, file))

    def shard(number: int) -> pa.Table:
        some = rows[number * size : (number + 1) * size]
        places = np.searchsorted(chunks, own[some])
        texts_of_queries = pa.array(queries.texts_at(some), pa.string())
        return pa.table({"input": texts_of_queries, "output": rows_at(texts(), places)["text"]})

    judged = judge_texts(
        shard,
        equal_shards(len(rows), size),
        settings.judging(),
        revision,
        run,
        deciding={},
        # Other settings of the filter leave other queries.
        inputs={**inputs, "judged": hash_bytes(rows.astype("<i8").tobytes())},
    )
    scores[rows] = judged.table()["score"].to_numpy()
    return scores
