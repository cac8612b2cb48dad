"""The step ``filter``: keep the pairs that a judge ranks best.

pairs -> the judge's scores, shard by shard -> the best pair of each input -> the best of all

A judge is a cross-encoder (M6), an encoder's cosine, a language model's likelihoods, the likeness to labelled
pairs, or the margin that pairs were mined with. Mined pairs are ranked by its score. Where ``mine`` handed on
all candidates, those of one input compete first, and only the best of them is ranked, by the judge's score or
by other columns, such as the score of an earlier filter. Pairs that were generated for a target score are
ranked by how close the judge's score is to it. Those not kept become rejects, with their scores.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.citations import MINING
from pairsmith.core.errors import InputError
from pairsmith.core.fields import OnePer
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.schemas import REJECT, Reject, rows_at, to_table
from pairsmith.methods.mining.ranking import (
    Numbers,
    Ranking,
    probabilities,
    rank_generated,
    rank_mined,
    ranks,
)
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    hash_source,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.folder import TrainingRows, open_training_rows
from pairsmith.runs.mapped import (
    RowsAndRejects,
    RowShard,
    commit_rows,
    finished,
    nothing_to_do,
    shard_count,
    start_part,
)
from pairsmith.runs.storage import JSON, mapped_table, scratch_file
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.judges import (
    CUT,
    CUT_PASSAGES,
    KnownPairs,
    cue_for,
    known_pairs,
    load_judge,
    refuse_unreadable,
    text_columns,
    warn_of_equal_scores,
)
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.steps.shared import hashes, refuse_sources

SCORES: pa.Schema = pa.schema([("id", pa.string()), ("score", pa.float32())])
SHARD_ROWS = 100_000
"""Most rows, and most rejects, in a shard."""
TOGETHER = 5_000
"""Rejects whose texts are held in memory as Python objects at once."""


def filter_pairs(settings: FilterSettings, run: Run) -> DatasetFolder:
    """Score pairs and keep the best; see ``FilterSettings``. Scores are kept in the subfolder ``scores``.

    Of several splits ``train`` is read, or the one that is named. Rows are sorted from best to worst; in
    mined pairs the new score replaces the cosine.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, pairs=settings.pairs, model=settings.model or [], seeds=settings.seeds or [])
    training_rows = open_training_rows(settings.pairs, "judged", run.progress.say)
    source, schema = training_rows.folder, training_rows.folder.schema()
    columns = text_columns(schema.names, source, settings)
    if settings.judge != "margin":
        refuse_unreadable(training_rows, columns, settings)
    if settings.judge == "likelihood" and "answers" not in columns:
        cue = settings.cue or cue_for(source.manifest.about.task)
        settings = settings.model_copy(update={"cue": cue})
    elif settings.cue:
        raise InputError(f"{source.path}: --cue has no effect on questions with answers; leave it out")
    targets = _target_scores(training_rows, settings)
    beside, rank_by = (_numbers_of(training_rows, settings, name, targets) for name in ("beside", "rank_by"))
    inputs = {"pairs": hash_source(training_rows.source)}
    if settings.seeds:
        inputs |= hashes("seeds", [settings.seeds])
    models = {"model": model_revision(settings.model)} if settings.model else {}
    one_per = _one_per(settings, source, schema.names)
    decides = settings.model_dump(mode="json", include={"by", "best", "threshold"}) | _deciding_scores(
        settings
    )
    if one_per != "pair":
        decides["one_per"] = one_per
    if settings.share is not None:  # folders from before there was a share go on
        decides["share"] = settings.share
    if settings.beside:
        decides["beside"] = list(settings.beside)
    if settings.rank_by:
        decides["rank_by"] = list(settings.rank_by)
    writer = FolderWriter.start(
        run, step="filter", schema=schema, settings=decides, inputs=inputs, models=models
    )
    if writer.finished:
        return nothing_to_do(writer, run)
    with scratch_file(run.out, "pairs") as file:
        pairs = mapped_table(training_rows.batches(), schema, file)
        scores = _scores(pairs, columns, source.manifest.about.task, settings, inputs, models, run)
        if scores is None:
            return writer.folder()
        warn_of_equal_scores(scores, "pairs", run.progress.say)
        ranking = _ranked(pairs, scores, targets, (beside, rank_by), settings, one_per)
        _write(writer, pairs, ranking, settings, rescored=settings.judge != "margin" or bool(rank_by))
    return finished(writer, _card(settings, source), run)


def _ranked(
    pairs: pa.Table,
    scores: NDArray[np.float32],
    targets: NDArray[np.float64] | None,
    columns: tuple[Numbers, Numbers],
    settings: FilterSettings,
    one_per: OnePer,
) -> Ranking:
    """Rank the pairs; ``targets`` are the scores that generated pairs were written for, None for others.

    ``columns`` are the numbers that count beside the judge's, and those that rank what it chooses.
    """
    if targets is None:
        beside, rank_by = columns
        return rank_mined(pairs, scores.astype(np.float64), beside, rank_by, one_per)
    judged = probabilities(scores) if settings.judge == "cross-encoder" else ranks(scores)
    return rank_generated(pairs, judged, targets, one_per)


def _write(
    writer: FolderWriter, pairs: pa.Table, ranking: Ranking, settings: FilterSettings, rescored: bool
) -> None:
    """Write the pairs that are kept, best first, and the others as rejects.

    Where they are ``rescored``, rejects tell their new score, and it replaces the cosine of mined pairs.
    """
    keep = ranking.kept(settings.threshold, most_kept(settings, int(ranking.wins.sum())))
    reasons = np.where(ranking.wins, "not among the best", ranking.reasons)
    kept, lost, why = ranking.order[keep], ranking.order[~keep], reasons[~keep]
    name, values = ranking.name, ranking.values
    for number in range(max(1, -(-max(len(kept), len(lost)) // SHARD_ROWS))):
        if writer.is_done(number):
            continue
        part = slice(number * SHARD_ROWS, (number + 1) * SHARD_ROWS)
        rejects = [to_table([], REJECT)]
        for some in np.array_split(np.arange(len(lost))[part], -(-len(lost[part]) // TOGETHER) or 1):
            new = [{name: value} for value in values[lost[some]].tolist()] if rescored else [{}] * len(some)
            there = zip(rows_at(pairs, lost[some]).to_pylist(), why[some].tolist(), new, strict=True)
            some_rejects = [Reject.of(row["id"], name, reason, row | score) for row, reason, score in there]
            rejects.append(to_table(some_rejects, REJECT))
        rows = rows_at(pairs, kept[part])
        if rescored and {"margin", "score"} <= set(rows.column_names):  # of others the score is a label
            place = rows.column_names.index("score")
            column = pa.array(values[kept[part]]).cast(rows.schema.field(place).type)
            rows = rows.set_column(place, rows.schema.field(place), column)
        writer.commit(number, {"train": rows}, pa.concat_tables(rejects))


def _one_per(settings: FilterSettings, source: DatasetFolder, names: Sequence[str]) -> OnePer:
    """Which pairs compete with each other: by default those with the same input, if they are candidates.

    ``names`` are the pairs' columns.
    """
    manifest, one_per = source.manifest, settings.one_per
    if one_per == "auto":
        candidates = manifest.step == "mine" and manifest.settings.get("retrieval") == "candidates"
        one_per = "input" if candidates or settings.rank_by else "pair"
    if one_per != "pair" and not {"input", "input_id"} & set(names):
        option = f"--one-per {one_per}" if settings.one_per != "auto" else "--rank-by"
        raise InputError(
            f"{source.path}: {option} needs pairs with the columns input and output; found {', '.join(names)}"
        )
    return one_per


def _target_scores(pairs: TrainingRows, settings: FilterSettings) -> NDArray[np.float64] | None:
    """The scores that generated pairs were written for; None where only the judge's scores rank the pairs."""
    source, names = pairs.folder, pairs.folder.schema().names
    generated = {"sentence1", "sentence2", "score"} <= set(names)
    if settings.by == "score" or settings.judge == "likeness":
        return None
    if not (generated or settings.by == "agreement"):
        return None
    if not generated:
        raise InputError(
            f"{source.path}: --by agreement needs the columns sentence1, sentence2 and score; found "
            f"{', '.join(names)}"
        )
    targets: NDArray[np.float64] = pairs.table(["score"])["score"].to_numpy().astype(np.float64)
    if not (np.isfinite(targets) & (targets >= 0) & (targets <= 1)).all():
        raise InputError(
            f"{source.path}: scores of pairs must lie between 0 and 1; give --by score to ignore them"
        )
    return targets


def _numbers_of(
    pairs: TrainingRows,
    settings: FilterSettings,
    setting: Literal["beside", "rank_by"],
    targets: NDArray[np.float64] | None,
) -> Numbers:
    """The columns of numbers that a setting names; ``targets`` as for ``_ranked``."""
    where, option = pairs.folder.path, f"--{setting.replace('_', '-')}"
    wanted: list[str] = getattr(settings, setting)
    if wanted and targets is not None:
        raise InputError(
            f"{where}: these pairs are ranked by how well they agree with the scores that they were "
            f"written for, so {option} has no effect; give --by score"
        )
    names = pairs.folder.schema().names
    columns = {name: pairs.table([name])[name] for name in wanted if name in names}
    return [_numbers(columns.get(name), name, names, where, f"{option} {name}") for name in wanted]


def _numbers(
    column: pa.ChunkedArray | None, name: str, names: Sequence[str], where: object, option: str
) -> NDArray[np.float64]:
    """The values of the column ``name``, ``(n,)``, all finite; it is None where ``names`` lack it."""
    values: NDArray[np.float64] = np.array([np.nan])
    if column is not None and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        values = column.to_numpy().astype(float)
    if not np.isfinite(values).all():
        raise InputError(
            f"{where}: {option} needs a column {name} with a finite number in each row; "
            f"found {', '.join(names)}"
        )
    return values


def share_of(share: float, count: int) -> int:
    """The number that a share of ``count`` keeps, at least one."""
    return max(1, round(share * count))


def most_kept(settings: FilterSettings, count: int) -> int:
    """The largest number of ``count`` pairs that ``best`` and ``share`` keep."""
    share = 1.0 if settings.share is None else settings.share
    return min(count, settings.best or count, share_of(share, count))


def _scores(
    pairs: pa.Table,
    columns: Sequence[str],
    task: str,
    settings: FilterSettings,
    inputs: dict[str, str],
    models: dict[str, str],
    run: Run,
) -> NDArray[np.float32] | None:
    """The score of each pair, in the order of the pairs; scores are saved in a folder of their own.

    ``task`` is that of the pairs' folder. None for a rank of an array job, which scores only its share.
    """
    if not pairs.num_rows:
        return np.zeros(0, np.float32)
    if settings.judge == "margin":
        names = pairs.column_names
        margins = pairs["margin"] if "margin" in names else None
        return _numbers(margins, "margin", names, settings.pairs, "--judge margin").astype(np.float32)
    writer = start_part(
        run.part("scores"),
        step="score",
        schema=SCORES,
        settings=_deciding_scores(settings),
        inputs=inputs,
        models=models,
        planned=shard_count(pairs, settings.shard_size),
    )
    if not writer.finished:
        known = None
        if settings.judge == "likeness":
            known = known_pairs(pairs, task, settings, run.progress)
        commit_rows(
            writer,
            partial(_load_scorer, settings, known, models["model"]),
            pairs.select(["id", *columns]),
            settings.shard_size,
            ExecutorChoice.of(settings),
            run,
            title="score",
            unit="pairs",
            model=settings.model or "",
        )
        writer.finish(_scores_card(settings))
    if run.rank is not None:
        return None
    scores: NDArray[np.float32] = writer.folder().table("train", ["score"])["score"].to_numpy()
    return scores


def _deciding_scores(settings: FilterSettings) -> dict[str, JSON]:
    """The settings that decide a pair's score; folders from before there were encoders as judges go on."""
    deciding: dict[str, JSON] = settings.model_dump(
        mode="json", include={"dtype", "max_length", "shard_size"}
    )
    if settings.judge == "likelihood":
        deciding |= {"cue": settings.cue, **(CUT if settings.cue else CUT_PASSAGES)}  # passages have no cue
    return deciding if settings.judge == "cross-encoder" else {**deciding, "judge": settings.judge}


def _load_scorer(
    settings: FilterSettings, known: KnownPairs | None, revision: str, worker: int
) -> Work[RowShard, RowsAndRejects]:
    """Load the model; what is returned scores the pairs of a shard."""
    assert settings.model is not None  # a judge that loads nothing has no scorer
    check_revision(settings.model, revision, worker)
    judge = load_judge(settings, known=known)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        scores = judge(shard.rows, advance)
        ids = shard.rows["id"].combine_chunks()
        return pa.table({"id": ids, "score": scores}, schema=SCORES), to_table([], REJECT)

    return score


_JUDGES = {
    "cross-encoder": "a cross-encoder",
    "encoder": "an encoder",
    "likelihood": "a language model's likelihoods",
    "likeness": "their likeness to seeds",
    "margin": "their margins",
}
_SCORES = {
    "cross-encoder": ("a cross-encoder's unnormalised scores", "higher is better; unbounded"),
    "encoder": ("the cosines of their vectors by an encoder", "from -1 to 1"),
    "likelihood": (
        "how much likelier a language model finds one text after the other",
        "log p(text | other text) - log p(text) in nats; of questions, how well they and answers fit",
    ),
    "likeness": ("how much a pair is like the seeds", "log odds, by a classifier of the texts' vectors"),
    "margin": ("the cosine of the two vectors", ""),
}
"""What each judge gives: in words, and the column ``score``."""


def _models(settings: FilterSettings) -> list[str]:
    return [settings.model] if settings.model else []


def _judge(settings: FilterSettings) -> str:
    """The judge, and the name of its model if it has one."""
    return " ".join([settings.judge, *map(model_display_name, _models(settings))])


def _scores_card(settings: FilterSettings) -> Card:
    scores, column = _SCORES[settings.judge]
    return Card(
        title=f"Scores of pairs by {_judge(settings)}",
        description=f"Pairs by their ids, and {scores}.",
        columns={"score": column},
        provenance="The scores were computed from the pairs' texts.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=_models(settings)),
    )


def _card(settings: FilterSettings, source: DatasetFolder) -> Card:
    scores = _SCORES[settings.judge][0]
    if settings.beside:
        scores += f", standardised, plus the standardised columns {', '.join(settings.beside)}"
    folder = f"the folder `{source.path.name}` (step `{source.manifest.step}`)"
    judged = "judged best"
    if settings.rank_by:
        ranked = ", ".join(settings.rank_by)
        judged = f"chose for their inputs, and that are the best of these by {ranked}"
        scores = f"the sum of the standardised columns {ranked}"
    return Card(
        title=f"Pairs that {_JUDGES[settings.judge]} kept",
        description=f"Pairs of {folder} that the {_judge(settings)} {judged}.",
        columns={
            "input": "a text of the first corpus",
            "output": "a text of the second",
            "margin": "the pair's margin score, by which it was found",
            "score": f"{scores}, where the pairs were mined",
        },
        provenance="The pairs were put together and chosen by programs; no person has checked each of them.",
        tags=("mined",),
        citations=(MINING,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=_models(settings), data=[source.path]),
        task=source.manifest.about.task,
    )
