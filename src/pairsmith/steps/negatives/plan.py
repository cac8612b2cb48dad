"""The cost estimate of ``negatives``, extrapolated from a sample that is encoded, searched and judged."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.data.query_pairs import read_query_pairs
from pairsmith.data.schemas import NEGATIVES
from pairsmith.data.splits import to_train_on
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.search.exact import one_way_search
from pairsmith.steps.judging import seconds_to_judge
from pairsmith.steps.negatives.search import neighbours_per_query
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.planning import (
    NEIGHBOUR_BYTES,
    counted,
    evenly_spaced,
    first_items,
    first_passages,
    load_search_encoder,
    search_seconds,
    sharded,
    timed,
)

CALIBRATION_TEXTS = 256
CALIBRATION_QUERIES = 512
CALIBRATION_ROWS = 32_768
_SCRATCH_BYTES = 8
"""Bytes of a neighbour in a scratch file."""


def plan_negatives(settings: NegativesSettings, before: Before) -> Estimate:
    """Estimate ``negatives``: encode and judge a sample of texts, and search random vectors.

    The time of the search is proportional to the number of queries times the number of texts. A search with
    an index is estimated as an exact one, which takes longer, and each pair is counted as a query of its own.
    """
    encode, width, loading = load_search_encoder(settings)
    pairs, pair_count = _pairs(settings, before)
    corpus, text_count = first_passages(settings.corpus, before, CALIBRATION_TEXTS, settings.corpus_column)
    texts = evenly_spaced(corpus, CALIBRATION_TEXTS)
    if not (pairs and texts):
        raise InputError(f"{settings.pairs}: the pairs or the corpus have no texts to try")
    _, per_query, _ = timed(lambda: encode, [query for query, _ in pairs])
    _, per_text, _ = timed(lambda: encode, texts)
    encoding = per_text * text_count
    seconds = per_query * pair_count + encoding
    per_product = search_seconds(
        one_way_search, neighbours_per_query(settings), width, CALIBRATION_QUERIES, CALIBRATION_ROWS
    )
    seconds += per_product * pair_count * text_count
    if settings.judge:
        ranks = settings.last_rank - settings.first_rank + 1
        judged = settings.negatives if settings.drawn_before_scores else ranks
        queries = [query for query, _ in pairs]
        judge_loading, per_score = seconds_to_judge(settings.judging(), before, queries, texts)
        loading, seconds = loading + judge_loading, seconds + per_score * pair_count * (judged + 1)
    length = sum(len(text.encode()) for text in texts) // len(texts)
    vectors = (pair_count + text_count) * np.dtype(settings.vector_dtype).itemsize * width
    encoded = vectors + text_count * length
    neighbour_bytes = pair_count * neighbours_per_query(settings) * NEIGHBOUR_BYTES
    row_bytes = pair_count * length * (settings.negatives + 2)
    estimate = sharded(
        loading=loading,
        shared=seconds,
        size=encoded + neighbour_bytes + row_bytes,
        rows=pair_count,
        shards=ceil(pair_count / settings.shard_size) + ceil(text_count / settings.shard_size),
        sample=_rows(pairs, texts, settings),
    )
    similarities = int(min(settings.memory * 2**30, 4.0 * settings.search_rows * text_count / 64))
    scratch = encoded + pair_count * neighbours_per_query(settings) * _SCRATCH_BYTES
    memory = estimate.memory + vectors + similarities
    return replace(estimate, memory=memory, scratch=scratch, encoding=encoding)


def _pairs(settings: NegativesSettings, before: Before) -> tuple[list[tuple[str, str]], int]:
    """The first pairs, and the number of all pairs."""
    rows = read_query_pairs(
        to_train_on(settings.pairs, "taken"),
        query_column=settings.query_column,
        positive_column=settings.positive_column,
    )
    filled = ((row.query, row.positive) for row in rows if row.query and row.positive)
    pairs, number = first_items(filled, CALIBRATION_TEXTS)
    return pairs, counted(settings.pairs, before, number)


def _rows(pairs: Sequence[tuple[str, str]], texts: Sequence[str], settings: NegativesSettings) -> pa.Table:
    """Rows about as long as those of the result."""
    count = settings.negatives
    rows = [
        {
            **dict.fromkeys(("id", "query_id", "positive_id"), str(number)),
            **{"query": query, "positive": positive, "score": 0.5, "scores": [0.4] * count},
            "negatives": [texts[(number + k) % len(texts)] for k in range(count)],
            "negative_ids": [str(k) for k in range(count)],
        }
        for number, (query, positive) in enumerate(pairs)
    ]
    return pa.Table.from_pylist(rows, NEGATIVES)
