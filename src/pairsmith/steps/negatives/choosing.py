"""Chooses the negatives of each pair among its candidates, and makes the rows and rejects."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import NEGATIVES, REJECT, Reject, rows_at, to_table
from pairsmith.methods.retrieval.negatives import lowest_of_queries
from pairsmith.runs.seeds import stream_key, uniforms
from pairsmith.search.hard_negatives import NegativesRule, chosen_places
from pairsmith.steps.corpora.encoded import CorpusTexts
from pairsmith.steps.negatives.encoding import EncodedPositives
from pairsmith.steps.negatives.pairs import FAULTS, GOOD, PAIRS_AT_ONCE, QueryPairs
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, NeighbourFile


def choose_negatives(
    pairs: QueryPairs,
    candidates: NeighbourFile,
    of_rows: Float32s,
    settings: NegativesSettings,
    file: Path,
) -> NeighbourFile:
    """The negatives of each row and their scores, in a file; none for rows that are no pairs.

    Args:
        pairs: the rows, and the number of each one's query.
        candidates: those of each query, with their scores.
        of_rows: ``(rows,)``, the score of each row's positive.
        settings: the rule, and how negatives are picked.
        file: where the numbers and the scores are written.
    """
    share = settings.positive_share or None
    rule = NegativesRule(settings.negatives, share, settings.margin, settings.lowest, settings.highest)
    chosen = NeighbourFile.empty(len(pairs.fault), settings.negatives, file)
    ids, scores, good, limit = candidates.ids, candidates.similarities, pairs.good, of_rows
    if settings.compare == "lowest":
        limit = lowest_of_queries(of_rows[good], pairs.query[good], len(ids))[pairs.query]
    for rows in in_batches(good, PAIRS_AT_ONCE):
        asking = pairs.query[rows]
        candidate_scores = np.where(ids[asking] == NO_NEIGHBOUR, -np.inf, scores[asking])
        draws = None
        if settings.pick == "random":
            streams = np.array([stream_key("negatives", row) for row in _ids(pairs, rows)], np.uint64)
            width = candidate_scores.shape[1]
            draws = uniforms(
                settings.seed, np.repeat(streams, width), np.tile(np.arange(width), len(rows))
            ).reshape(candidate_scores.shape)
        places = chosen_places(candidate_scores, limit[rows], rule, draws)
        none = places < 0
        at = np.maximum(places, 0)
        chosen.ids[rows] = np.where(none, NO_NEIGHBOUR, np.take_along_axis(ids[asking], at, axis=1))
        chosen.similarities[rows] = np.where(none, -np.inf, np.take_along_axis(candidate_scores, at, axis=1))
    return chosen


def _ids(pairs: QueryPairs, rows: NDArray[np.int64]) -> list[str]:
    """The id of each pair: those of its two texts as they were given."""
    table = rows_at(pairs.table, rows)
    texts = (table[name].to_pylist() for name in ("query", "positive"))
    return ["-".join(map(text_id, pair)) for pair in zip(*texts, strict=True)]


def shard_of_rows(
    part: slice,
    positives: EncodedPositives,
    chosen: NeighbourFile,
    of_rows: Float32s,
    passages: CorpusTexts,
    settings: NegativesSettings,
) -> tuple[dict[str, pa.Table], pa.Table]:
    """The rows of ``NEGATIVES`` for some rows of the pairs, and rejects for the others.

    ``chosen`` and ``of_rows`` are what ``choose_negatives`` gave and took.
    """
    pairs = positives.pairs
    numbers = np.arange(part.start, part.stop)
    counts = (chosen.ids[part] != NO_NEIGHBOUR).sum(axis=1)
    enough = settings.negatives if settings.fewer == "reject" else 1
    kept = numbers[counts >= enough]
    table, rejects = pairs.table.slice(part.start, len(numbers)).to_pylist(), []
    for number, row, count in zip(numbers.tolist(), table, counts.tolist(), strict=True):
        if count < enough:
            fault = int(pairs.fault[number])
            score = {} if fault != GOOD else {"score": float(of_rows[number])}
            why = FAULTS.get(fault, ("negatives", _TOO_FEW[count > 0]))
            rejects.append(Reject.of(text_id(row["query"]), *why, row | score))
    held = iter(
        passages.rows(chosen.ids[kept][chosen.ids[kept] != NO_NEIGHBOUR].tolist()) if len(kept) else []
    )
    rows = []
    for number, positive in zip(kept.tolist(), positives.texts(kept), strict=True):
        pair, count = table[number - part.start], int(counts[number - part.start])
        texts = [next(held) for _ in range(count)]
        query_id, positive_id = text_id(pair["query"]), text_id(positive)
        rows.append(
            {
                "id": f"{query_id}-{positive_id}",
                "query": pair["query"],
                "positive": positive,
                "negatives": [text["text"] for text in texts],
                "score": float(of_rows[number]),
                "scores": chosen.similarities[number, :count].tolist(),
                "query_id": pair["query_id"] or query_id,
                "positive_id": positive_id,
                "negative_ids": [text["id"] for text in texts],
            }
        )
    return {"train": pa.Table.from_pylist(rows, NEGATIVES)}, to_table(rejects, REJECT)


_TOO_FEW = {False: "no text of these ranks is allowed by the scores", True: "fewer negatives than wanted"}
"""Why a pair is no row, by whether it has any negatives."""
