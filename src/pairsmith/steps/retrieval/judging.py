"""Queries and their chunks, scored by a judge in ``filter-queries``."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.data.schemas import rows_at
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.storage import hash_bytes, mapped_table
from pairsmith.steps.query_judge import judge_shards
from pairsmith.steps.retrieval.generated_queries import WrittenQueries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.vectors import KeyedVectors
from pairsmith.steps.vectors import some_rows

_TEXT: pa.Schema = pa.schema([("text", pa.string())])


def judge_queries(
    rows: NDArray[np.int64],
    own: NDArray[np.int64],
    written: WrittenQueries,
    corpus: tuple[KeyedVectors, DatasetFolder],
    settings: FilterQueriesSettings,
    revision: str,
    inputs: Mapping[str, str],
    run: Run,
    file: Path,
) -> NDArray[np.float32]:
    """Have the judge score some queries, each with its own chunk and the chunk's title.

    Returns the scores of all n queries, ``(n,)`` float32, NaN for those that are not judged.

    Args:
        rows: the numbers of the queries to judge, ascending.
        own: the number of each query's chunk in the corpus, ``(n,)``.
        corpus: its vectors and their folder, whose texts are those of the chunks; the texts of these queries'
            chunks are written to ``file``, if any are to be judged.
        revision: of the judge; ``inputs``: fingerprints of the queries and the corpus.
    """
    scores = np.full(len(written), np.nan, np.float32)
    if not len(rows):
        return scores
    size = settings.shard_size
    chunks = np.unique(own[rows])

    @cache
    def texts() -> pa.Table:
        vectors, folder = corpus
        wanted = np.zeros(len(vectors.distinct), bool)
        wanted[np.flatnonzero(vectors.distinct)[chunks]] = True
        return mapped_table((table for _, table in some_rows(folder, wanted, ["text"])), _TEXT, file)

    def shard(number: int) -> pa.Table:
        some = rows[number * size : (number + 1) * size]
        queries = pa.array(written.texts_at(some), pa.string())
        return pa.table(
            {"input": queries, "output": rows_at(texts(), np.searchsorted(chunks, own[some]))["text"]}
        )

    judged = judge_shards(
        shard,
        -(-len(rows) // size),
        len(rows),
        settings.judging(),
        revision,
        run,
        deciding={},
        # Other settings of the filter leave other queries.
        inputs={**inputs, "judged": hash_bytes(rows.astype("<i8").tobytes())},
    )
    scores[rows] = judged.table()["score"].to_numpy()
    return scores
