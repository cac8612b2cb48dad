"""The step ``negatives``: hard negatives, texts of a corpus that are near a query but do not answer it.

pairs and corpus -> vectors -> candidates: the nearest texts of each query, without its positives -> cosines,
or scores of a judge -> negatives: the candidates that score clearly lower than the positive -> rows
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import InputError, counted
from pairsmith.core.model_names import model_revision
from pairsmith.data.beir import in_beir
from pairsmith.data.query_pairs import QueryPair, read_query_pairs
from pairsmith.data.schemas import NEGATIVES
from pairsmith.data.splits import to_train_on
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
    synthetic_tag,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.exact import one_way_search
from pairsmith.steps.judging import SCORE_OF_TEXT, seconds_to_judge
from pairsmith.steps.negatives.candidates import find_candidates, neighbours_per_query, score
from pairsmith.steps.negatives.choosing import choose_negatives, shard_of_rows
from pairsmith.steps.negatives.encoding import EncodedPositives, encode_all
from pairsmith.steps.negatives.false_negatives import LabelledQueries
from pairsmith.steps.negatives.pairs import QueryPairs, collect_pairs
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.planning import (
    CALIBRATION_TEXTS,
    NEIGHBOUR_BYTES,
    evenly_spaced,
    read_first,
    read_first_passages,
    search_seconds,
    sharded_estimate,
    text_encoder,
    timed,
)
from pairsmith.steps.search_parts import NeighbourFile, check_index
from pairsmith.steps.shared import hashes, refuse_sources, unfinished_shards

SHARD_ROWS = 10_000
"""Largest number of pairs in a shard."""
_TRIED_SEARCH = (512, 32_768)
"""Numbers of queries and of texts that a plan compares."""


def negatives(settings: NegativesSettings, run: Run) -> DatasetFolder:
    """Find hard negatives; see ``NegativesSettings`` for the settings.

    Intermediate results are saved in subfolders: the vectors in ``queries``, ``corpus`` and ``positives``,
    the neighbours in ``search``, and the scores of a judge in ``scores``.
    """
    settings = resolve_dtype(settings, run)
    corpus = [in_beir(path) for path in settings.corpus]
    refuse_sources(run, pairs=settings.pairs, corpus=corpus, labelled=settings.labelled)
    source = to_train_on(settings.pairs, "taken", run.progress.say)
    of_pairs, of_corpus = hashes("pairs", source), hashes("corpus", corpus)
    of_labelled = hashes("labelled", settings.labelled)
    revision = model_revision(settings.encoder)
    judge = model_revision(settings.judge) if settings.judge else ""
    next(iter(_query_pairs(source, settings)), None)  # before the folder exists, missing columns are an error
    writer = FolderWriter.start(
        run,
        Identity.of(
            "negatives",
            settings.deciding(),
            {**of_pairs, **of_corpus, **of_labelled},
            {"encoder": revision, **({"judge": judge} if judge else {})},
        ),
        NEGATIVES,
    )
    if writer.finished:
        return nothing_to_do(writer)
    if settings.index:
        check_index(settings.index)  # before hours of encoding
    with ScratchFiles(run.out) as scratch:
        # 1. Read the pairs. Faults of the labelled pairs are reported here, too, before hours of encoding.
        pairs = collect_pairs(_query_pairs(source, settings), scratch("pairs"), source)
        _labelled(pairs, settings)
        # 2. Encode the queries, the corpus and the positives.
        texts = encode_all(pairs, corpus, (of_pairs, of_corpus), settings, revision, scratch, run)
        if texts is None:
            return writer.folder()  # the search needs the vectors of all ranks
        pairs = texts.pairs
        if not len(pairs.good):
            raise InputError(
                f"{source}: no pair has a vector of its query and of its positive under the encoder"
            )
        # 3. Search the candidates: the nearest texts of each query that are none of its positives.
        nearest, left_out, search = find_candidates(texts, settings, scratch, run)
        # 4. Score the candidates and the positives: by the cosine with the query, or by a judge.
        candidates, positive_scores = score(texts, nearest, search, settings, judge, scratch, run)
        # 5. Choose the negatives of each pair: candidates with a clearly lower score than its positive.
        chosen = choose_negatives(pairs, candidates, positive_scores, settings, scratch("chosen"))
        counts = _counts(texts.positives, chosen, len(texts.corpus), left_out, settings)
        if fewer := counts["pairs with fewer negatives"]:
            run.progress.say(
                f"{counted(fewer, 'pairs have')} some negatives, but fewer than {settings.negatives}"
            )
        false_negatives = ""
        if labelled := _labelled(pairs, settings):
            false_negatives = labelled.false_negatives(pairs, nearest, chosen, texts.copies)
            run.progress.say(false_negatives)
        # 6. Write the rows and rejects.
        for number, part in unfinished_shards(writer, len(pairs.fault), SHARD_ROWS):
            shard = shard_of_rows(part, texts.positives, chosen, positive_scores, settings)
            writer.commit(number, *shard)
    return finished(writer, _card(settings, counts, false_negatives))


def _query_pairs(source: str, settings: NegativesSettings) -> Iterator[QueryPair]:
    query, positive = settings.query_column, settings.positive_column
    return read_query_pairs(source, query_column=query, positive_column=positive)


def _labelled(pairs: QueryPairs, settings: NegativesSettings) -> LabelledQueries | None:
    """The queries whose positives are all labelled; None without the setting ``labelled``."""
    source = settings.labelled
    return LabelledQueries.of(_query_pairs(source, settings), pairs, source) if source else None


def _counts(
    positives: EncodedPositives, chosen: NeighbourFile, texts: int, left_out: int, settings: NegativesSettings
) -> dict[str, int]:
    """The counts for the card; ``texts`` is the number of distinct texts of the corpus."""
    pairs = positives.pairs
    negatives_of_pair = chosen.counts()[pairs.good]
    return {
        "pairs": len(pairs.good),
        "distinct queries": len(np.unique(pairs.query[pairs.good])),
        "distinct texts of the corpus": texts,
        "pairs whose positive is in the corpus": int((positives.place[pairs.good] >= 0).sum()),
        "nearest texts left out: positives, or copies of a text": left_out,
        "negatives of all pairs": int(negatives_of_pair.sum()),
        f"pairs with {settings.negatives} negatives": int((negatives_of_pair == settings.negatives).sum()),
        "pairs with fewer negatives": int(
            ((negatives_of_pair > 0) & (negatives_of_pair < settings.negatives)).sum()
        ),
        "pairs without negatives": int((negatives_of_pair == 0).sum()),
    }


def plan_negatives(settings: NegativesSettings, before: Before) -> Estimate:
    """Estimate ``negatives``: encode and judge a sample of texts, and search random vectors.

    The time of the search is proportional to the number of queries times the number of texts. A search with
    an index is estimated as an exact one, which takes longer, and each pair is counted as a query of its own.
    """

    def read(source: str) -> Iterator[tuple[str, str]]:
        rows = _query_pairs(to_train_on(source, "taken"), settings)
        return ((row.query, row.positive) for row in rows if row.query and row.positive)

    pairs, pair_count = read_first([settings.pairs], read, before, split="train")
    corpus, text_count = read_first_passages(settings.corpus, before, column=settings.corpus_column)
    queries, texts = [query for query, _ in pairs], evenly_spaced(corpus, CALIBRATION_TEXTS)
    if not (queries and texts):
        sources = ", ".join([settings.pairs, *settings.corpus])
        raise InputError(f"{sources}: the pairs or the corpus have no texts to try")
    # 1. Time encoding, search and judging.
    load = cache(partial(text_encoder, settings.encoder, settings))
    loading, per_query, vectors = timed(load, queries)
    _, per_text, _ = timed(load, texts)
    encoding, most, width = per_text * text_count, neighbours_per_query(settings), vectors.shape[1]
    per_product = search_seconds(one_way_search, most, width, *_TRIED_SEARCH)
    seconds = per_query * pair_count + encoding + per_product * pair_count * text_count
    if settings.judge:
        ranks = settings.last_rank - settings.first_rank + 1
        judged = 1 + (settings.negatives if settings.drawn_before_scores else ranks)
        judge_loading, per_score = seconds_to_judge(settings.judging(), before, queries, texts)
        loading, seconds = loading + judge_loading, seconds + per_score * pair_count * judged
    # 2. Count bytes: vectors and texts, neighbours, and rows of a query, a positive and its negatives.
    length = sum(len(text.encode()) for text in texts) // len(texts)
    vector_bytes = (pair_count + text_count) * np.dtype(settings.vector_dtype).itemsize * width
    encoded = vector_bytes + text_count * length
    rows = [
        {
            **dict.fromkeys(("id", "query_id", "positive_id"), str(number)),
            **{"query": query, "positive": positive, "score": 0.5, "scores": [0.4] * settings.negatives},
            "negatives": [texts[(number + k) % len(texts)] for k in range(settings.negatives)],
            "negative_ids": [str(k) for k in range(settings.negatives)],
        }
        for number, (query, positive) in enumerate(pairs)
    ]
    estimate = sharded_estimate(
        pa.Table.from_pylist(rows, NEGATIVES),
        pair_count,
        -(-pair_count // settings.shard_size) - (-text_count // settings.shard_size),
        loading=loading,
        shared=seconds,
        size=encoded + pair_count * (most * NEIGHBOUR_BYTES + length * (settings.negatives + 2)),
    )
    similarities = int(min(settings.memory * 2**30, 4.0 * settings.search_rows * text_count / 64))
    return replace(
        estimate,
        memory=estimate.memory + vector_bytes + similarities,
        scratch=encoded + pair_count * most * 8,  # bytes of a neighbour in a scratch file
        encoding=encoding,
    )


def _card(settings: NegativesSettings, counts: dict[str, int], false_negatives: str) -> Card:
    judge = [settings.judge] if settings.judge else []
    lower = ", whatever their scores"
    if settings.positive_share or settings.margin is not None:
        lower = " and score lower than that text"
    elif settings.lowest is not None or settings.highest is not None:
        lower = ", within limits of their scores"
    score = "cosine under the encoder"
    if settings.judge:
        score = f"{SCORE_OF_TEXT[settings.judge_kind]} {model_display_name(settings.judge)}"
    return Card(
        title="Pairs with hard negatives",
        description=(
            "Queries, each with a text that answers it and with texts that are near it under "
            f"the encoder `{model_display_name(settings.encoder)}`{lower} (hard negatives). A program took "
            "these for wrong answers; some may be right ones."
            + (f"\n\nThose {false_negatives}." if false_negatives else "")
        ),
        counts=counts,
        columns={
            "query": "a query",
            "negatives": "texts that probably do not answer it, those with the highest scores first",
            "score": f"the score of query and positive: the {score}",
            "scores": "the same score of the query and each of the negatives",
            "query_id": "the query's id in the pairs, or else the same for all rows with this query",
        },
        provenance="The negatives were chosen by a program; no person has checked each of them.",
        tags=("hard-negatives", *synthetic_tag(settings.pairs, *settings.corpus)),
        licence="The rights in the pairs and in the corpus apply to the texts.",
        sources=sources_of(models=[settings.encoder, *judge], data=[settings.pairs, *settings.corpus]),
        task="text-retrieval",
    )
