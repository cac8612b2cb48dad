"""The step ``filter-queries``: keep queries that lead back to their own chunk, without near-copies.

queries, chunks and evaluation -> vectors -> the rank of each query's own chunk, and the query's cosine with
the nearest query of the evaluation -> a judge's scores, if there is one -> queries that are near-copies of no
earlier one -> rows
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.citations import PROMPTAGATOR
from pairsmith.core.errors import InputError, counted
from pairsmith.core.model_names import model_revision
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.schemas import REJECT, Reject, rows_at, to_table
from pairsmith.data.splits import to_train_on
from pairsmith.methods.retrieval.consistency import closest, own_places
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
from pairsmith.runs.mapped import equal_shards, finished, nothing_to_do, start_part
from pairsmith.runs.storage import ScratchFiles, hash_bytes, scratch_file
from pairsmith.search.exact import nearest
from pairsmith.steps.corpora.corpus import Corpus, encode_corpus
from pairsmith.steps.corpora.judges import warn_of_equal_scores
from pairsmith.steps.judging import SCORE_OF_TEXT, judge_texts, seconds_to_judge
from pairsmith.steps.planning import (
    CALIBRATION_TEXTS,
    count_in_run,
    read_first_passages,
    search_seconds,
    sharded_estimate,
    text_encoder,
    timed,
)
from pairsmith.steps.retrieval.compared_texts import (
    ChunkTexts,
    EncodedRows,
    EvaluationQueries,
    KeyedVectors,
    read_evaluation,
)
from pairsmith.steps.retrieval.generated_queries import QuerySource, WrittenQueries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.verdicts import (
    NO_FILTER,
    Verdicts,
    held_back,
    leave_out_by_score,
    leave_out_copies,
    leave_out_near_test,
    verdicts_by_rank,
)
from pairsmith.steps.shared import hashes, refuse_sources, unfinished_shards

SHARD_ROWS = 10_000
"""Largest number of queries in a shard."""
SEARCH_ROWS = 4_096
"""Number of queries that are searched and saved together."""
FEW_HELD_BACK = 50
"""The step warns if it holds back fewer queries; with 50, the interval of an nDCG is some 20 points wide."""
_SEARCHED: pa.Schema = pa.schema(
    [("rank", pa.int64()), ("similarity", pa.float32()), ("evaluation", pa.float32())]
)
"""For each query: the rank of its own chunk, from 1, or 0 if there is none; its cosine with this chunk; and
its cosine with the nearest query of the evaluation."""


def filter_queries(settings: FilterQueriesSettings, run: Run) -> DatasetFolder:
    """Filter queries; see ``FilterQueriesSettings`` for the settings.

    Intermediate results are saved in subfolders: the vectors in ``queries``, ``corpus`` and ``evaluation``,
    the ranks in ``search``, and the scores of a judge in ``scores``. A query that several filters leave out
    is counted under the first of them: no query, no chunk, evaluation, inconsistent, judge, duplicate. If
    queries are held back, training queries near one of these are left out last, and counted under
    evaluation.
    """
    settings = resolve_dtype(settings, run)
    evaluation = read_evaluation(settings)
    refuse_sources(run, queries=settings.queries, corpus=settings.corpus, evaluation=evaluation.sources)
    source = to_train_on(settings.queries, "filtered", run.progress.say)
    query_source = QuerySource.find(source)
    sources = {"queries": [source], "corpus": settings.corpus, "evaluation": evaluation.sources}
    inputs = {name: hashes(name, listed) for name, listed in sources.items()}
    revision = model_revision(settings.encoder)
    judge = model_revision(settings.judge) if settings.judge else ""
    writer = FolderWriter.start(
        run,
        Identity.of(
            "filter-queries",
            settings.deciding(),
            {name: digest for digests in inputs.values() for name, digest in digests.items()},
            {"encoder": revision, **({"judge": judge} if judge else {})},
        ),
        query_source.kept_schema(judged=settings.judge is not None),
        planned=-(-query_source.rows // SHARD_ROWS),
    )
    if writer.finished:
        return nothing_to_do(writer)
    texts = ChunkTexts.of(settings)
    with ScratchFiles(run.out) as scratch:
        # 1. Encode the queries, the chunks and the queries of the evaluation.
        written = query_source.mapped(scratch("rows"))
        folders = {
            name: encode_corpus(corpus, settings.encoding(), revision, run.part(name))
            for name, corpus in _to_encode(written, texts, evaluation, inputs, settings).items()
        }
        if run.rank is not None:
            return writer.folder()  # the search needs the vectors of all ranks
        sides = {name: KeyedVectors.of(folder, scratch(name)) for name, folder in folders.items()}
        # 2. Compute the rank of each query's own chunk.
        rows = EncodedRows.of(written, texts, sides)
        ranked = _search(rows, settings, run.part("search"))
        # 3. Decide which queries to keep, and write them.
        decision = _decide(rows, ranked, evaluation, judge, settings, run)
        for number, part in unfinished_shards(writer, len(written), SHARD_ROWS):
            writer.commit(number, *_shard(written, decision, part))
    _report(decision, settings.held_back, run)
    card = _card(settings, query_source.rows, len(sides["corpus"]), len(evaluation))
    return finished(writer, card)


def _to_encode(
    written: WrittenQueries,
    texts: ChunkTexts,
    evaluation: EvaluationQueries,
    inputs: Mapping[str, Mapping[str, str]],
    settings: FilterQueriesSettings,
) -> dict[str, Corpus]:
    """The texts to encode, by the name of the subfolder of their vectors.

    ``inputs`` are the hashes of their sources, by the same names.
    """
    sides = {
        "queries": Corpus("inputs", "queries", written.distinct, [], None, inputs["queries"]),
        "corpus": Corpus("outputs", "chunks", texts.documents, [], settings.corpus_column, inputs["corpus"]),
    }
    if len(evaluation):
        of_inputs, column = inputs["evaluation"], settings.evaluation_column
        sides["evaluation"] = Corpus("inputs", "the evaluation", evaluation.distinct, [], column, of_inputs)
    return sides


def _search(rows: EncodedRows, settings: FilterQueriesSettings, run: Run) -> pa.Table:
    """Compute the ranks and cosines of all rows, as ``_SEARCHED``; each block of queries is saved."""
    count = len(rows.query)
    identity = Identity.of("search", {"within": settings.within}, rows.fingerprints())
    writer = start_part(run, identity, _SEARCHED, planned=-(-count // SEARCH_ROWS))
    if writer.finished:
        return writer.folder().table()
    parts = list(unfinished_shards(writer, count, SEARCH_ROWS))
    with run.progress.task("search", count, "queries") as bar:
        bar.skip(count - sum(part.stop - part.start for _, part in parts))
        for number, part in parts:
            table = _searched(rows, np.arange(part.start, part.stop), settings.within)
            writer.commit(number, {"train": table}, to_table([], REJECT))
            bar.advance(len(table))
    return writer.finish(_search_card(settings)).table()


def _searched(rows: EncodedRows, numbers: NDArray[np.int64], within: int) -> pa.Table:
    """The ranks and cosines of the rows with these n numbers, as ``_SEARCHED``."""
    rank = np.zeros(len(numbers), np.int64)
    similarity, of_evaluation = np.full((2, len(numbers)), np.nan, np.float32)
    usable = np.flatnonzero((rows.query[numbers] >= 0) & (rows.own[numbers] >= 0))
    if len(usable):
        queries, corpus = rows.vectors(numbers[usable]), rows.sides["corpus"].vectors.tensor()
        places = own_places(queries, corpus, rows.own[numbers[usable]], within)
        rank[usable], similarity[usable] = places.ranks, places.similarities
        evaluation = rows.sides.get("evaluation")
        if evaluation is not None and len(evaluation):
            of_evaluation[usable] = closest(queries, evaluation.vectors.tensor())
    return pa.table([rank, similarity, of_evaluation], schema=_SEARCHED)


@dataclass(frozen=True, slots=True)
class _Decision:
    """Which of n queries are kept.

    Attributes:
        verdicts: the verdict on each query.
        consistent: the number of queries that led back to their chunks.
        held: ``(n,)`` bool, whether each query is held back for evaluation; None if none should be.
        ranked: the rank and cosine of each query, as ``_SEARCHED``, and the judge's score, if there is one.
    """

    verdicts: Verdicts
    consistent: int
    held: NDArray[np.bool_] | None
    ranked: pa.Table


def _decide(
    rows: EncodedRows,
    ranked: pa.Table,
    evaluation: EvaluationQueries,
    judge: str,
    settings: FilterQueriesSettings,
    run: Run,
) -> _Decision:
    """Decide which queries to keep: by rank, by the judge's score, and without near-copies.

    ``judge`` is the revision of the judge.
    """
    verdicts = verdicts_by_rank(rows, ranked, evaluation, settings)
    if settings.judge:
        judged = np.flatnonzero(verdicts.kept)
        scores = _judge_scores(rows, judged, judge, settings, run)
        warn_of_equal_scores(scores[np.isfinite(scores)], "queries", run.progress.say)
        leave_out_by_score(verdicts, scores, settings)
        ranked = ranked.append_column("judge_score", pa.array(scores, from_pandas=True))
    leave_out_copies(verdicts, rows, settings)
    consistent = sum(verdict.filter in (NO_FILTER, "judge", DUPLICATE) for verdict in verdicts)
    held = None
    if settings.held_back:
        held = held_back(rows.chunk, verdicts.kept, settings.held_back)
        leave_out_near_test(verdicts, rows, held, settings)
    return _Decision(verdicts, consistent, held, ranked)


def _judge_scores(
    rows: EncodedRows, judged: NDArray[np.int64], revision: str, settings: FilterQueriesSettings, run: Run
) -> Float32s:
    """The judge's scores of n queries, each with its own chunk and the chunk's title, ``(n,)`` float32.

    The rows ``judged``, ascending, are scored, and the scores saved in the subfolder ``scores``; the others
    get NaN. ``revision`` is that of the judge.
    """
    scores = np.full(len(rows.written), np.nan, np.float32)
    if not len(judged):
        return scores
    size, chunks = settings.shard_size, np.unique(rows.own[judged])
    with scratch_file(run.out, "texts") as file:
        texts = cache(partial(rows.sides["corpus"].texts, chunks, file))

        def shard(number: int) -> pa.Table:
            part = judged[number * size : (number + 1) * size]
            queries = pa.array(rows.written.texts_at(part), pa.string())
            own = rows_at(texts(), np.searchsorted(chunks, rows.own[part]))["text"]
            return pa.table({"input": queries, "output": own})

        folder = judge_texts(
            shard,
            equal_shards(len(judged), size),
            settings.judging(),
            revision,
            run.part("scores"),
            deciding={},
            # The filter's other settings decide which queries are judged.
            inputs={**rows.fingerprints(), "judged": hash_bytes(judged.astype("<i8").tobytes())},
        )
        scores[judged] = folder.table()["score"].to_numpy()
    return scores


def _shard(written: WrittenQueries, decision: _Decision, part: slice) -> tuple[dict[str, pa.Table], pa.Table]:
    """The kept rows of a part of the queries, by split, and the rejects."""
    verdicts, held = decision.verdicts[part], decision.held
    table = written.rows(part)
    ranked = decision.ranked.slice(part.start, len(verdicts)).drop_columns(["evaluation"])
    for name in ranked.column_names:
        table = table.append_column(name, ranked[name])
    kept = pa.array([verdict.filter == NO_FILTER for verdict in verdicts])
    rejects = []
    for at, verdict in enumerate(verdicts):
        if verdict.filter != NO_FILTER:
            row = table.slice(at, 1).to_pylist()[0]
            if not row["rank"]:
                del row["rank"], row["similarity"]
            if row.get("judge_score", 0) is None:
                del row["judge_score"]
            if verdict.like >= 0:
                row["like"] = written.name_of(verdict.like)
            rejects.append(Reject.of(written.name_of(part.start + at), verdict.filter, verdict.reason, row))
    if held is None:
        return {"train": table.filter(kept)}, to_table(rejects, REJECT)
    of_test = pa.array(held[part])
    train, test = pc.and_(kept, pc.invert(of_test)), pc.and_(kept, of_test)
    return {"train": table.filter(train), "test": table.filter(test)}, to_table(rejects, REJECT)


def _report(decision: _Decision, share: float, run: Run) -> None:
    """Report how many queries led back to their chunks, and how many of these a judge left out.

    Queries that an earlier filter left out are not counted. ``share`` is the share of the chunks to hold
    back; the report warns if few queries are held back.
    """
    verdicts, consistent, held = decision.verdicts, decision.consistent, decision.held
    if held is not None and not held.any():
        run.progress.say(f"no queries are held back: {share:g} of their chunks is none, as there are too few")
    elif held is not None:
        few = sum(verdict.filter == NO_FILTER for verdict, own in zip(verdicts, held, strict=True) if own)
        if few < FEW_HELD_BACK:
            run.progress.say(
                f"{counted(few, 'queries are')} held back: figures of so few say little; hold back a larger "
                "share of the chunks, or evaluate on queries that people wrote"
            )
    inconsistent = sum(verdict.filter == "inconsistent" for verdict in verdicts)
    low = sum(verdict.filter == "judge" for verdict in verdicts)
    if total := inconsistent + consistent:
        run.progress.say(f"{consistent:,} of {total:,} queries lead back to their chunks")
    if low:
        run.progress.say(f"{low:,} of these {consistent:,} are left out because of the judge's scores")


def plan_filter_queries(settings: FilterQueriesSettings, before: Before) -> Estimate:
    """Estimate ``filter-queries``: encode and judge a sample of texts, and search random vectors.

    The time of the search is proportional to the number of queries times the number of chunks. The estimate
    assumes that all queries are kept.
    """
    query_source = QuerySource.find(to_train_on(settings.queries, "filtered"))
    count = count_in_run(query_source.rows, [settings.queries], before)
    written = WrittenQueries.of(next(query_source.tables()), settings.queries)
    queries = [text for text in islice(written.texts(), CALIBRATION_TEXTS) if text]
    chunks, chunk_count = read_first_passages(settings.corpus, before, column=settings.corpus_column)
    if not (queries and chunks):
        sources = ", ".join([settings.queries, *settings.corpus])
        raise InputError(f"{sources}: the queries or the corpus have no texts to try")
    query_count = count + len(read_evaluation(settings))
    load = cache(partial(text_encoder, settings.encoder, settings))
    loading, seconds, size = 0.0, 0.0, written.table.nbytes * count // len(written)
    for texts, total in ((queries, query_count), (chunks, chunk_count)):
        own_loading, per_text, vectors = timed(load, texts)
        encoding = per_text * total  # after the loop, the time for the chunks
        loading, seconds = loading + own_loading, seconds + encoding
        size += (vectors.nbytes + sum(map(len, texts))) * total // max(1, len(texts))
    if settings.judge:
        judge_loading, per_query = seconds_to_judge(settings.judging(), before, queries, chunks)
        loading, seconds = loading + judge_loading, seconds + per_query * count
    seconds += search_seconds(nearest, settings.within, vectors.shape[1], 2_048, 2_048) * count * chunk_count
    shards = -(-query_count // settings.shard_size) - (-chunk_count // settings.shard_size)
    sample = written.table.slice(0, CALIBRATION_TEXTS)
    estimate = sharded_estimate(sample, count, shards, loading=loading, shared=seconds, size=size)
    test = round(settings.held_back * count)
    rows = {"train": count - test, "test": test} if settings.held_back else {"train": count}
    return replace(estimate, rows=rows, encoding=encoding)


def _search_card(settings: FilterQueriesSettings) -> Card:
    return Card(
        title="Ranks of chunks for their queries",
        description="The rank of each query's own chunk, and their cosine.",
        columns={
            "rank": "the rank of the query's chunk among all chunks, from 1; 0 without a chunk",
            "similarity": "the cosine of the query and its chunk",
            "evaluation": "the largest cosine of the query and a query of the evaluation",
        },
        provenance="The ranks were computed from the vectors of the texts.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=[settings.encoder]),
    )


def _card(settings: FilterQueriesSettings, queries: int, chunks: int, evaluation: int) -> Card:
    models, judged = [settings.encoder], ""
    columns = {
        "rank": "the rank of the query's chunk among all chunks, from 1",
        "similarity": "the cosine of the query and its chunk, from -1 to 1",
    }
    if settings.judge:
        models, judge = [*models, settings.judge], model_display_name(settings.judge)
        judged = f", and if `{judge}` scores it high"
        columns["judge_score"] = f"the {SCORE_OF_TEXT[settings.judge_kind]} {judge}"
    return Card(
        title="Queries that lead back to their chunks",
        description="Search queries, each with the chunk of a document that it was written for, if this is "
        f"among the {settings.within} chunks that are nearest to the query under the encoder "
        f"`{model_display_name(settings.encoder)}`{judged}.",
        counts={"queries read": queries, "chunks searched": chunks, "queries of an evaluation": evaluation},
        columns=columns,
        provenance="The queries were chosen by a program; no person has checked each of them.",
        tags=synthetic_tag(settings.queries, *settings.corpus),
        citations=(PROMPTAGATOR,),
        licence="The rights in the texts apply.",
        # The evaluation's queries are not sources: rows are only compared with them.
        sources=sources_of(models=models, data=[settings.queries, *settings.corpus]),
        task="text-retrieval",
    )
