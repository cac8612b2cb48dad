"""The step ``negatives``: texts of a corpus that are near a query and yet no answer to it.

pairs and corpus -> vectors -> the nearest texts of each query, without its positives -> scores of a judge, if
there is one -> the negatives that score lower than the positive -> rows
"""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import model_revision
from pairsmith.data.beir import in_beir
from pairsmith.data.query_pairs import read_query_pairs
from pairsmith.data.schemas import NEGATIVES
from pairsmith.data.splits import to_train_on
from pairsmith.data.text_keys import TextKeys
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import scratch_file
from pairsmith.steps.corpora.encoded import CorpusTexts, Encoded
from pairsmith.steps.judging import SCORE_OF_TEXT
from pairsmith.steps.negatives.choosing import choose_negatives, shard_of_rows
from pairsmith.steps.negatives.encoding import (
    EncodedPositives,
    encode_positives,
    encode_queries,
    encode_texts_of,
    have_vector,
)
from pairsmith.steps.negatives.false_negatives import LabelledQueries
from pairsmith.steps.negatives.judging import ToJudge, judge_all
from pairsmith.steps.negatives.pairs import PAIRS_AT_ONCE, QueryPairs, collect_pairs, corpus_keys, places_in
from pairsmith.steps.negatives.search import (
    Nearest,
    find_nearest,
    gather,
    leave_out,
    neighbours_per_query,
)
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.search_parts import NO_NEIGHBOUR, check_index, ids_of_stored
from pairsmith.steps.shared import hashes, refuse_sources
from pairsmith.steps.vectors import VectorFile

SHARD_ROWS = 10_000
"""Most pairs in a shard."""


def negatives(settings: NegativesSettings, run: Run) -> DatasetFolder:
    """Find hard negatives; see ``NegativesSettings`` for what can be set.

    Vectors are kept in the subfolders ``queries``, ``corpus`` and ``positives``, neighbours in ``search``,
    and the scores of a judge in ``scores``.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, pairs=settings.pairs, corpus=settings.corpus, labelled=settings.labelled or [])
    source = to_train_on(settings.pairs, "taken", run.progress.say)
    texts = [in_beir(path) for path in settings.corpus]
    of_pairs, of_corpus = hashes("pairs", [source]), hashes("corpus", texts)
    of_labelled = hashes("labelled", [settings.labelled]) if settings.labelled else {}
    revision = model_revision(settings.encoder)
    judge = model_revision(settings.judge) if settings.judge else ""
    writer = FolderWriter.start(
        run,
        step="negatives",
        schema=NEGATIVES,
        settings=settings.deciding(),
        inputs={**of_pairs, **of_corpus, **of_labelled},
        models={"encoder": revision, **({"judge": judge} if judge else {})},
    )
    if writer.finished:
        return nothing_to_do(writer, run)
    if settings.index:
        check_index(settings.index)  # before hours of encoding
    with ExitStack() as stack:

        def scratch(name: str) -> Path:
            return stack.enter_context(scratch_file(run.out, name))

        columns = {"query_column": settings.query_column, "positive_column": settings.positive_column}
        pairs = collect_pairs(read_query_pairs(source, **columns), scratch("pairs"), source)

        def labelled() -> LabelledQueries | None:
            path = settings.labelled
            return LabelledQueries.of(read_query_pairs(path, **columns), pairs, path) if path else None

        labelled()  # what is wrong with it is told before hours of encoding
        # Encode the queries, the corpus and the positives.
        query_folder = encode_queries(pairs, settings, of_pairs, revision, run.part("queries"))
        held = encode_texts_of(texts, settings, of_corpus, revision, run.part("corpus"))
        if run.rank is not None:
            return writer.folder()  # what follows needs the vectors of all ranks
        pairs = pairs.with_queries(have_vector(query_folder, pairs.queries()))
        queries = VectorFile.write(query_folder, scratch("queries"))
        corpus = Encoded.of(held, scratch("corpus"))
        passages = CorpusTexts(corpus, scratch("texts"))
        copies = corpus_keys(corpus, scratch("keys"))
        positives = encode_positives(
            pairs,
            places_in(copies, pairs),
            passages,
            settings,
            {**of_pairs, **of_corpus},
            revision,
            run.part("positives"),
            scratch("positives"),
        )
        pairs = positives.pairs
        if not len(pairs.good):
            raise InputError(
                f"{source}: no pair has a vector of its query and of its positive under the encoder"
            )
        # Find the texts nearest to each query that may be its negatives, at the ranks that are set.
        encodings = {folder.path.name: folder.manifest.fingerprint for folder in (query_folder, held)}
        search_folder = find_nearest(queries, corpus, settings, encodings, run)
        files = scratch("ids"), scratch("cosines")
        near = gather(search_folder, len(queries), min(neighbours_per_query(settings), len(corpus)), files)
        left_out = leave_out(near, pairs.forbidden(), copies, queries, corpus, settings.last_rank)
        ranks = slice(settings.first_rank - 1, settings.last_rank)
        candidates, scores = near.ids[:, ranks], near.similarities[:, ranks]
        if not candidates.size or (candidates[:, 0] == NO_NEIGHBOUR).all():  # NO_NEIGHBOUR comes last
            raise InputError(
                f"no query has a text at the ranks {settings.first_rank} to {settings.last_rank} besides its "
                f"positives, among {len(corpus):,} distinct texts of the corpus; give a larger corpus"
            )
        # Score these texts and the positives, by their cosine with the query or by a judge.
        of_rows = np.full(len(pairs.fault), np.nan, np.float32)
        for rows in in_batches(pairs.good, PAIRS_AT_ONCE):
            of_rows[rows] = positives.similarities(rows, queries, corpus)
        if settings.judge:
            todo = ToJudge.of(positives, passages, candidates)
            searched = encodings | {"search": search_folder.manifest.fingerprint}
            judged = judge_all(todo, settings, judge, searched, run.part("scores"))
            scores = np.memmap(scratch("judged"), np.float32, "w+", shape=candidates.shape)
            todo.unpack(judged, settings.shard_size, scores, of_rows)
        # Choose the negatives of each pair: texts with a clearly lower score than its positive.
        files = scratch("chosen"), scratch("chosen-scores")
        chosen = choose_negatives(pairs, candidates, scores, of_rows, settings, files)
        counts = _counts(positives, chosen, len(corpus), left_out, settings)
        if fewer := counts["pairs with fewer"]:
            run.progress.say(f"{fewer:,} pairs have some negatives, but fewer than {settings.negatives}")
        false = ""
        if labelled_pairs := labelled():
            false = _false_negatives(labelled_pairs, pairs, candidates, chosen, copies)
            run.progress.say(false)
        for number in range(-(-len(pairs.fault) // SHARD_ROWS)):
            if not writer.is_done(number):
                rows_of = slice(number * SHARD_ROWS, min((number + 1) * SHARD_ROWS, len(pairs.fault)))
                writer.commit(number, *shard_of_rows(rows_of, positives, chosen, of_rows, passages, settings))
    return finished(writer, _card(settings, counts, false), run)


def _counts(
    positives: EncodedPositives, chosen: Nearest, texts: int, left_out: int, settings: NegativesSettings
) -> dict[str, int]:
    """Numbers for the card."""
    pairs = positives.pairs
    negatives_of_pair = (chosen.ids[pairs.good] != NO_NEIGHBOUR).sum(axis=1)
    return {
        "pairs": len(pairs.good),
        "queries": len(np.unique(pairs.query[pairs.good])),
        "texts of the corpus": texts,
        "pairs whose positive is in the corpus": int((positives.place[pairs.good] >= 0).sum()),
        "nearer texts left out as positives or copies": left_out,
        "negatives": int(negatives_of_pair.sum()),
        f"pairs with {settings.negatives} negatives": int((negatives_of_pair == settings.negatives).sum()),
        "pairs with fewer": int(((negatives_of_pair > 0) & (negatives_of_pair < settings.negatives)).sum()),
        "pairs with none": int((negatives_of_pair == 0).sum()),
    }


def _false_negatives(
    labelled_pairs: LabelledQueries,
    pairs: QueryPairs,
    candidates: NDArray[np.uint32],
    chosen: Nearest,
    copies: TextKeys,
) -> str:
    """How many of the negatives, and of the candidates, are labelled as positives, in a sentence."""
    labelled = np.flatnonzero(labelled_pairs.queries)
    totals = np.zeros((2, 2), np.int64)
    for rows in in_batches(pairs.good[labelled_pairs.queries[pairs.query[pairs.good]]], PAIRS_AT_ONCE):
        totals[0] += labelled_pairs.count_false_negatives(
            pairs.query[rows], ids_of_stored(chosen.ids[rows]), copies
        )
    for queries in in_batches(labelled, PAIRS_AT_ONCE):
        totals[1] += labelled_pairs.count_false_negatives(queries, ids_of_stored(candidates[queries]), copies)
    shares = [f"{false:,} of {count:,} ({false / max(1, count):.1%})" for count, false in totals.tolist()]
    return (
        f"labelled as positives, for {len(labelled):,} labelled queries: {shares[0]} of the negatives, and "
        f"{shares[1]} of all texts at these ranks"
    )


def _card(settings: NegativesSettings, counts: dict[str, int], false: str) -> Card:
    judge = [settings.judge] if settings.judge else []
    limited = settings.positive_share or settings.margin is not None
    lower = " and score lower than that text" if limited else ", whatever their scores"
    score = "cosine under the encoder"
    if settings.judge:
        score = f"{SCORE_OF_TEXT[settings.judge_kind]} {model_display_name(settings.judge)}"
    return Card(
        title="Pairs with hard negatives",
        description=(
            "Queries, each with a text that answers it and with texts that are near it under "
            f"{model_display_name(settings.encoder)}{lower}. A program took them for "
            "wrong answers; some may be right ones." + (f"\n\nThose {false}." if false else "")
        ),
        counts=counts,
        columns={
            "query": "a query",
            "positive": "a text that answers it",
            "negatives": "texts that probably do not, those with the highest scores first",
            "score": f"of query and positive: the {score}",
            "scores": "the same of the query and each of the negatives",
            "query_id": "the query's id in the pairs, or else the same for all rows of this query",
            "positive_id": "the same for all rows with this positive",
            "negative_ids": "the same for a text wherever it occurs",
        },
        provenance="The negatives were chosen by a program; no person has checked each of them.",
        tags=("hard-negatives",),
        licence="The rights in the pairs and in the corpus apply to the texts.",
        sources=sources_of(models=[settings.encoder, *judge], data=[settings.pairs, *settings.corpus]),
        task="text-retrieval",
    )
