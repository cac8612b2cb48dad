"""The cost estimate of ``negatives``: a sample is encoded, searched and judged, timed and extrapolated."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import ceil

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.model_names import MINILM
from pairsmith.data.query_columns import pick_pair, texts_of
from pairsmith.data.query_pairs import QueryPair, read_query_pairs
from pairsmith.data.schemas import NEGATIVES
from pairsmith.data.splits import to_train_on
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.search.exact import one_way_search
from pairsmith.steps.negatives.search import looked_up
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.planning import (
    NEIGHBOUR_BYTES,
    counted,
    sample_of,
    search_seconds,
    sharded,
    some_passages,
    spread,
    timed,
)
from pairsmith.steps.query_judge import seconds_to_judge
from pairsmith.steps.shared import load_options

CALIBRATION_TEXTS = 256
CALIBRATION_QUERIES = 512
CALIBRATION_ROWS = 32_768
_SCRATCH_BYTES = 8


def plan_negatives(settings: NegativesSettings, before: Before, base: str = MINILM) -> Estimate:
    """Estimate ``negatives``; ``base`` stands in for an encoder or a judge not yet trained.

    A search with an index is counted as an exact one, which takes longer; every pair as one of a new query.
    """
    started = time.monotonic()
    untrained = settings.encoder in before
    encoder = load_sentence_encoder(base if untrained else settings.encoder, **load_options(settings))
    loading = time.monotonic() - started
    width = encoder.get_embedding_dimension() or 1
    encode = partial(encode_texts, encoder, batch_tokens=settings.batch_tokens)
    pairs, pair_count = _pairs(settings, before)
    corpus, text_count = some_passages(settings.corpus, before, CALIBRATION_TEXTS, settings.corpus_column)
    texts = spread(corpus, CALIBRATION_TEXTS)
    if not (pairs and texts):
        raise InputError(f"{settings.pairs}: the pairs or the corpus have no texts to try")
    _, each_query, _ = timed(lambda: encode, [query for query, _ in pairs])
    _, each_text, _ = timed(lambda: encode, texts)
    seconds = each_query * pair_count + each_text * text_count
    per_product = search_seconds(
        one_way_search, looked_up(settings), width, CALIBRATION_QUERIES, CALIBRATION_ROWS
    )
    seconds += per_product * pair_count * text_count
    if settings.judge:
        ranks = settings.last_rank - settings.first_rank + 1
        queries = [query for query, _ in pairs]
        wait, per_score = seconds_to_judge(settings.judging(), before, queries, texts, base)
        loading, seconds = loading + wait, seconds + per_score * pair_count * (ranks + 1)
    length = sum(len(text.encode()) for text in texts) // len(texts)
    vectors = (pair_count + text_count) * np.dtype(settings.vector_dtype).itemsize * width
    held = vectors + text_count * length
    neighbour_bytes = pair_count * looked_up(settings) * NEIGHBOUR_BYTES
    rows = pair_count * length * (settings.negatives + 2)
    estimate = sharded(
        loading=loading,
        shared=seconds,
        size=held + neighbour_bytes + rows,
        rows=pair_count,
        shards=ceil(pair_count / settings.shard_size) + ceil(text_count / settings.shard_size),
        sample=_rows(pairs, texts, settings),
    )
    similarities = int(min(settings.memory * 2**30, 4.0 * settings.search_rows * text_count / 64))
    scratch = held + pair_count * looked_up(settings) * _SCRATCH_BYTES
    return replace(estimate, memory=estimate.memory + vectors + similarities, scratch=scratch)


def _pairs(settings: NegativesSettings, before: Before) -> tuple[list[tuple[str, str]], int]:
    """Some pairs, and the number of all."""
    sample = sample_of(settings.pairs, before)
    if sample is not None:
        query, other = pick_pair(
            dict.fromkeys(sample.column_names),
            settings.pairs,
            query=settings.query_column,
            positive=settings.positive_column,
        )
        pairs = (
            (row[query], positive)
            for row in sample.slice(0, CALIBRATION_TEXTS).to_pylist()
            for positive in texts_of(row, other, settings.pairs)
        )
        return [pair for pair in pairs if all(pair)], counted(settings.pairs, before, sample.num_rows)
    read: Iterator[QueryPair] = read_query_pairs(
        to_train_on(settings.pairs, "taken"),
        query_column=settings.query_column,
        positive_column=settings.positive_column,
    )
    good = ((pair.query, pair.positive) for pair in read if pair.query and pair.positive)
    sample = list(islice(good, CALIBRATION_TEXTS))
    return sample, len(sample) + sum(1 for _ in good)


def _rows(pairs: Sequence[tuple[str, str]], texts: Sequence[str], settings: NegativesSettings) -> pa.Table:
    """Rows about as long as those that will come."""
    rows = []
    for number, (query, positive) in enumerate(pairs):
        others = [texts[(number + k) % len(texts)] for k in range(settings.negatives)]
        ids = [str(k) for k in range(len(others))]
        rows.append(
            {
                "id": str(number),
                "query": query,
                "positive": positive,
                "negatives": others,
                "score": 0.5,
                "scores": [0.4] * len(others),
                "query_id": str(number),
                "positive_id": str(number),
                "negative_ids": ids,
            }
        )
    return pa.Table.from_pylist(rows, NEGATIVES)
