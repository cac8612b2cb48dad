"""The choice of each pair's negatives among the candidates of its query, and the rows and rejects."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.core.batches import in_batches
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import NEGATIVES, REJECT, Reject, rows_at, to_table
from pairsmith.methods.retrieval.negatives import lowest_of_queries
from pairsmith.runs.seeds import stream_key, uniforms
from pairsmith.search.hard_negatives import NegativesRule, chosen_places
from pairsmith.steps.negatives.encoding import EncodedPositives
from pairsmith.steps.negatives.pairs import FAULTS, GOOD, PAIRS_AT_ONCE, QueryPairs
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, NeighbourFile


def choose_negatives(
    pairs: QueryPairs,
    candidates: NeighbourFile,
    positive_scores: Float32s,
    settings: NegativesSettings,
    file: Path,
) -> NeighbourFile:
    """Choose the negatives of each row; a row that is not a pair gets none.

    Args:
        pairs: the rows that were read, with the number of each row's query.
        candidates: the candidates of each query, by their numbers in the corpus, and their scores.
        positive_scores: ``(rows,)`` float32, the score of each row's positive.
        settings: the settings of ``negatives``: the limits of the scores, and how negatives are picked.
        file: the file into which the chosen negatives are written.

    Returns:
        the negatives of each row, by their numbers in the corpus, and their scores.
    """
    rule = _rule(settings)
    chosen = NeighbourFile.empty(len(pairs.fault), settings.negatives, file)
    ids, scores, good, limit = candidates.ids, candidates.similarities, pairs.good, positive_scores
    if settings.compare == "lowest":
        limit = lowest_of_queries(positive_scores[good], pairs.query[good], len(ids))[pairs.query]
    for rows in in_batches(good, PAIRS_AT_ONCE):
        queries = pairs.query[rows]
        candidate_scores = np.where(ids[queries] == NO_NEIGHBOUR, -np.inf, scores[queries])
        draws = _draws(pairs, rows, ids.shape[1], settings.seed) if settings.pick == "random" else None
        places = chosen_places(candidate_scores, limit[rows], rule, draws)
        missing = places < 0
        at = np.maximum(places, 0)
        chosen.ids[rows] = np.where(missing, NO_NEIGHBOUR, np.take_along_axis(ids[queries], at, axis=1))
        chosen_scores = np.take_along_axis(candidate_scores, at, axis=1)
        chosen.similarities[rows] = np.where(missing, -np.inf, chosen_scores)
        candidates.release()
        chosen.release()
    return chosen


def drawn_candidates(
    pairs: QueryPairs, candidates: NeighbourFile, settings: NegativesSettings, file: Path
) -> NeighbourFile:
    """The candidates that at least one pair of their query draws, for ``drawn_before_scores``.

    From these, ``choose_negatives`` chooses the same negatives as from all candidates, whatever the scores
    are. The drawn candidates are written into ``file``, with ``NO_NEIGHBOUR`` in place of all others and
    without scores.
    """
    rule = _rule(settings)
    count, width = candidates.ids.shape
    drawn = NeighbourFile.empty(count, width, file)
    for rows in in_batches(pairs.good, PAIRS_AT_ONCE):
        queries = pairs.query[rows]
        ids = candidates.ids[queries]
        alike = np.where(ids == NO_NEIGHBOUR, -np.inf, 0.0)
        draws = _draws(pairs, rows, width, settings.seed)
        places = chosen_places(alike, np.zeros(len(rows)), rule, draws)
        row, column = np.nonzero(places >= 0)
        place = places[row, column]
        drawn.ids[queries[row], place] = ids[row, place]
        candidates.release()
        drawn.release()
    return drawn


def _rule(settings: NegativesSettings) -> NegativesRule:
    share = settings.positive_share or None
    return NegativesRule(settings.negatives, share, settings.margin, settings.lowest, settings.highest)


def _draws(pairs: QueryPairs, rows: NDArray[np.int64], width: int, seed: int) -> Float64s:
    """A random number for each of the ``width`` candidates of these n rows: ``(n, width)``, in [0, 1)."""
    streams = np.array([stream_key("negatives", row) for row in _ids(pairs, rows)], np.uint64)
    numbers = uniforms(seed, np.repeat(streams, width), np.tile(np.arange(width), len(rows)))
    return numbers.reshape(len(rows), width)


def _ids(pairs: QueryPairs, rows: NDArray[np.int64]) -> list[str]:
    """The id of each pair: the ids of its query and its positive, as they were read, joined by a hyphen."""
    table = rows_at(pairs.table, rows)
    texts = (table[name].to_pylist() for name in ("query", "positive"))
    return ["-".join(map(text_id, pair)) for pair in zip(*texts, strict=True)]


def shard_of_rows(
    part: slice,
    positives: EncodedPositives,
    chosen: NeighbourFile,
    positive_scores: Float32s,
    settings: NegativesSettings,
) -> tuple[dict[str, pa.Table], pa.Table]:
    """A shard of the result: the rows of ``NEGATIVES``, and rejects for pairs without enough negatives.

    Args:
        part: the range of the rows that were read.
        positives: the rows, the text of each row's positive, and the texts of the corpus.
        chosen: the negatives of each row, as ``choose_negatives`` returns them.
        positive_scores: ``(rows,)`` float32, the score of each row's positive.
        settings: the settings of ``negatives``.
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
            score = {} if fault != GOOD else {"score": float(positive_scores[number])}
            why = FAULTS.get(fault, ("negatives", _TOO_FEW[count > 0]))
            rejects.append(Reject.of(text_id(row["query"]), *why, row | score))
    ids = chosen.ids[kept]
    negatives = iter(positives.passages.rows(ids[ids != NO_NEIGHBOUR].tolist()) if len(kept) else [])
    rows = []
    for number, positive in zip(kept.tolist(), positives.texts(kept), strict=True):
        pair, count = table[number - part.start], int(counts[number - part.start])
        texts = [next(negatives) for _ in range(count)]
        query_id, positive_id = text_id(pair["query"]), text_id(positive)
        rows.append(
            {
                "id": f"{query_id}-{positive_id}",
                "query": pair["query"],
                "positive": positive,
                "negatives": [text["text"] for text in texts],
                "score": float(positive_scores[number]),
                "scores": chosen.similarities[number, :count].tolist(),
                "query_id": pair["query_id"] or query_id,
                "positive_id": positive_id,
                "negative_ids": [text["id"] for text in texts],
            }
        )
    chosen.release()
    return {"train": pa.Table.from_pylist(rows, NEGATIVES)}, to_table(rejects, REJECT)


_TOO_FEW = {False: "no text of these ranks is allowed by the scores", True: "fewer negatives than wanted"}
"""The reason of the reject for a pair with too few negatives, by whether it has any."""
