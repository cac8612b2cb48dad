"""The step ``filter``: keep the pairs that a judge ranks best.

pairs -> the judge's scores, shard by shard -> the best pair of each input -> the best of all

A judge is a cross-encoder (M6), an encoder's cosine, a language model's likelihoods, the likeness to labelled
pairs, or the margin that pairs were mined with. Mined pairs are ranked by the judge's score. If ``mine``
wrote all candidates, the judge first chooses the best candidate of each input; only the chosen ones are
ranked, by the judge's score or by other columns, such as the score of an earlier filter. Pairs that were
generated for a target score are ranked by how close the judge's score is to the target. Pairs that are not
kept become rejects, with their scores.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.core.batches import in_batches
from pairsmith.core.citations import MINING
from pairsmith.core.errors import InputError
from pairsmith.core.fields import OnePer
from pairsmith.core.model_names import model_revision
from pairsmith.core.settings import option_name
from pairsmith.data.schemas import ANSWERS, REJECT, Reject, rows_at, to_table
from pairsmith.methods.mining.ranking import (
    Numbers,
    Ranking,
    probabilities,
    rank_generated,
    rank_mined,
    ranks,
    winners,
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
    synthetic_tag,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.folder import TrainingRows, open_training_rows
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import JSON, mapped_table, scratch_file
from pairsmith.steps.corpora.judges import (
    LEARNED_FROM,
    cue_for,
    judge_examples,
    likelihood_record,
    refuse_unreadable,
    text_columns,
    timed_judge,
    warn_of_equal_scores,
)
from pairsmith.steps.judging import JUDGES_OF_PAIRS, judge_pairs, other_judges_named
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.steps.planning import CALIBRATION_TEXTS, count_in_run, sharded_estimate
from pairsmith.steps.shared import check_types, hashes, refuse_sources, unfinished_shards

SHARD_ROWS = 100_000
"""Largest number of rows, and of rejects, in a shard."""
_MINED = {"margin", "score"}
"""Columns that mined pairs have, and other pairs do not have both of."""
REJECTS_AT_ONCE = 5_000
"""Number of rejects whose texts are held in memory as Python objects at once."""


def filter_pairs(settings: FilterSettings, run: Run) -> DatasetFolder:
    """Score pairs and keep the best; see ``FilterSettings`` for the settings.

    The scores are saved in the subfolder ``scores``. If there are several splits, ``train`` is read unless
    another one is named. Rows are sorted from best to worst. In mined pairs, the column ``score`` then holds
    the judge's score instead of the cosine.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, pairs=settings.pairs, model=settings.model, seeds=settings.seeds)
    training_rows = open_training_rows(settings.pairs, "judged", run.progress.say)
    source, schema = training_rows.folder, training_rows.folder.schema()
    columns = text_columns(schema.names, source, settings.judge)
    types = {name: ANSWERS if name == "answers" else pa.string() for name in ("id", *columns)}
    if set(schema.names) >= _MINED:  # their score is replaced
        types["score"] = pa.float64()
    check_types(schema, pa.schema(types.items()), training_rows.source)
    if settings.judge != "margin":
        refuse_unreadable(training_rows, columns, settings.judge)
    if settings.judge == "likelihood" and "answers" not in columns:
        cue = settings.cue or cue_for(source.manifest.about.task)
        settings = settings.model_copy(update={"cue": cue})
    elif settings.cue:
        raise InputError(f"{source.path}: --cue has no effect on questions with answers; leave it out")
    targets = _target_scores(training_rows, settings)
    beside, rank_by = (_numbers_of(training_rows, settings, name, targets) for name in ("beside", "rank_by"))
    inputs = {"pairs": hash_source(training_rows.source), **hashes("seeds", settings.seeds)}
    models = {"model": model_revision(settings.model)} if settings.model else {}
    one_per = _one_per(settings, source, schema.names)
    writer = FolderWriter.start(
        run, Identity.of("filter", _deciding(settings, one_per), inputs, models), schema
    )
    if writer.finished:
        return nothing_to_do(writer)
    with scratch_file(run.out, "pairs") as file:
        pairs = mapped_table(training_rows.batches(), schema, file)
        scores = _scores(training_rows, pairs, columns, settings, inputs, models, run)
        if scores is None:
            return writer.folder()
        warn_of_equal_scores(scores, "pairs", run.progress.say)
        if targets is None:
            ranking = rank_mined(pairs, scores.astype(np.float64), beside, rank_by, one_per)
        else:
            judged = probabilities(scores) if settings.judge == "cross-encoder" else ranks(scores)
            ranking = rank_generated(pairs, judged, targets, one_per)
        _write(writer, pairs, ranking, settings, rescored=settings.judge != "margin" or bool(rank_by))
    return finished(writer, _card(settings, source))


def _deciding(settings: FilterSettings, one_per: OnePer) -> dict[str, JSON]:
    """The settings that decide which pairs are kept; ``one_per`` replaces the setting ``auto``."""
    deciding = settings.model_copy(update={"one_per": one_per}).deciding()
    return deciding | (likelihood_record(settings.cue) if settings.judge == "likelihood" else {})


def _scores(
    training_rows: TrainingRows,
    pairs: pa.Table,
    columns: Sequence[str],
    settings: FilterSettings,
    inputs: Mapping[str, str],
    models: Mapping[str, str],
    run: Run,
) -> Float32s | None:
    """The judge's score of each of n pairs, ``(n,)`` float32.

    ``pairs`` are the rows, mapped from a file, and ``columns`` the columns that the judge reads. The result
    is None for a rank of an array job, which scores only its share of the pairs.
    """
    if not pairs.num_rows:
        return np.zeros(0, np.float32)
    if settings.judge == "margin":
        return _numbers(training_rows, "margin", "--judge margin").astype(np.float32)
    learns_from = None
    if settings.seeds:
        task = training_rows.folder.manifest.about.task
        learns_from = partial(judge_examples, pairs, task, settings.seeds, run.progress)
    judged = pairs.select(["id", *columns])
    folder = judge_pairs(judged, settings.judging(), learns_from, inputs, models["model"], run.part("scores"))
    if run.rank is not None:
        return None
    scores: Float32s = folder.table("train", ["score"])["score"].to_numpy()
    return scores


def _write(
    writer: FolderWriter, pairs: pa.Table, ranking: Ranking, settings: FilterSettings, rescored: bool
) -> None:
    """Write the pairs that are kept, the best one first, and the other pairs as rejects.

    If the pairs are ``rescored``, rejects have the new score in their row, and the new score replaces the
    cosine of mined pairs.
    """
    keep = ranking.kept(settings.threshold, most_kept(settings, int(ranking.wins.sum())))
    least = -np.inf if settings.threshold is None else settings.threshold
    low = ranking.values[ranking.order] < least
    of_winners = np.where(low, f"below {settings.threshold}", "not among the best")
    reasons = np.where(ranking.wins, of_winners, ranking.reasons)
    kept, rejected, why = ranking.order[keep], ranking.order[~keep], reasons[~keep]
    for number, part in unfinished_shards(writer, max(len(kept), len(rejected)), SHARD_ROWS):
        rows = rows_at(pairs, kept[part])
        if rescored and set(rows.column_names) >= _MINED:  # in other pairs the score is a label
            place = rows.column_names.index("score")
            column = pa.array(ranking.values[kept[part]]).cast(rows.schema.field(place).type)
            rows = rows.set_column(place, rows.schema.field(place), column)
        writer.commit(number, {"train": rows}, _rejects(pairs, rejected[part], why[part], ranking, rescored))


def _rejects(
    pairs: pa.Table, rejected: NDArray[np.int64], reasons: NDArray[np.str_], ranking: Ranking, rescored: bool
) -> pa.Table:
    """The pairs with the row numbers ``rejected``, ``(n,)``, as rejects with their ``reasons``, ``(n,)``."""
    tables = [to_table([], REJECT)]
    for numbers, why in zip(
        in_batches(rejected, REJECTS_AT_ONCE), in_batches(reasons, REJECTS_AT_ONCE), strict=True
    ):
        rows = rows_at(pairs, numbers).to_pylist()
        if rescored:
            values = ranking.values[numbers].tolist()
            rows = [row | {ranking.name: value} for row, value in zip(rows, values, strict=True)]
        rejects = [
            Reject.of(row["id"], ranking.name, reason, row)
            for row, reason in zip(rows, why.tolist(), strict=True)
        ]
        tables.append(to_table(rejects, REJECT))
    return pa.concat_tables(tables)


def _one_per(settings: FilterSettings, source: DatasetFolder, names: Sequence[str]) -> OnePer:
    """Which pairs compete with each other, with ``auto`` resolved; ``names`` are the columns of the pairs.

    ``auto`` becomes ``input`` if ``mine`` wrote all candidates or if ``rank_by`` is given, else ``pair``.
    """
    manifest, one_per = source.manifest, settings.one_per
    if one_per == "auto":
        candidates = manifest.rows_of == "mine" and manifest.settings.get("retrieval") == "candidates"
        one_per = "input" if candidates or settings.rank_by else "pair"
    if one_per != "pair" and not {"input", "input_id"} & set(names):
        option = f"--one-per {one_per}" if settings.one_per != "auto" else "--rank-by"
        raise InputError(
            f"{source.path}: {option} needs pairs with the columns input and output; found {', '.join(names)}"
        )
    return one_per


def _target_scores(pairs: TrainingRows, settings: FilterSettings) -> Float64s | None:
    """The scores that n generated pairs were written for, ``(n,)``; None if pairs are not ranked by them."""
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
    targets: Float64s = pairs.table(["score"])["score"].to_numpy().astype(np.float64)
    if not (np.isfinite(targets) & (targets >= 0) & (targets <= 1)).all():
        raise InputError(
            f"{source.path}: scores of pairs must lie between 0 and 1; give --by score to ignore them"
        )
    return targets


def _numbers_of(
    pairs: TrainingRows,
    settings: FilterSettings,
    setting: Literal["beside", "rank_by"],
    targets: Float64s | None,
) -> Numbers:
    """The values of the columns that a setting names, each ``(n,)``; ``targets`` are ``_target_scores``."""
    option, names = option_name(setting), getattr(settings, setting)
    if names and targets is not None:
        raise InputError(
            f"{pairs.folder.path}: these pairs are ranked by how well they agree with the scores that they "
            f"were written for, so {option} has no effect; give --by score"
        )
    return [_numbers(pairs, name, f"{option} {name}") for name in names]


def _numbers(pairs: TrainingRows, name: str, option: str) -> Float64s:
    """The values of a column, ``(n,)``, all finite; ``option`` is the option that needs it."""
    names = pairs.folder.schema().names
    if name in names:
        column = pairs.table([name])[name]
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            values: Float64s = column.to_numpy().astype(float)
            if np.isfinite(values).all():
                return values
    raise InputError(
        f"{pairs.folder.path}: {option} needs a column {name} with a finite number in each row; "
        f"found {', '.join(names)}"
    )


def share_of(share: float, count: int) -> int:
    """How many of ``count`` pairs a share keeps: at least one."""
    return max(1, round(share * count))


def most_kept(settings: FilterSettings, count: int) -> int:
    """How many of ``count`` pairs ``best`` and ``share`` keep at most."""
    share = 1.0 if settings.share is None else settings.share
    return min(count, settings.best or count, share_of(share, count))


def plan_filter_pairs(settings: FilterSettings, before: Before) -> Estimate:
    """Estimate ``filter``: judge a sample of the pairs."""
    pairs = open_training_rows(settings.pairs, "judged")
    sample, count = pairs.head(CALIBRATION_TEXTS), count_in_run(len(pairs), [settings.pairs], before, "train")
    names = pairs.folder.schema().names
    one_per, left = _one_per(settings, pairs.folder, names), count
    if one_per != "pair" and len(pairs):
        # The run ranks the pairs by their scores, which are not known yet; here they are in the rows' order.
        keys = [f"{side}_id" if f"{side}_id" in names else side for side in ("input", "output")]
        texts = pairs.table([name for name in keys if name in names])
        left = round(count * float(winners(texts, np.arange(len(texts)), one_per).mean()))
    loading = per_pair = 0.0
    if settings.model is not None:
        with other_judges_named("--judge", JUDGES_OF_PAIRS):
            loading, per_pair = timed_judge(settings.judging(), before, sample)
    if settings.judge == "likeness":  # its classifier first learns from encoded pairs
        loading += per_pair * min(count, LEARNED_FROM)
    return sharded_estimate(
        sample,
        most_kept(settings, left),
        -(-count // settings.shard_size),
        loading=loading,
        shared=per_pair * count,
        size=sample.nbytes * count // max(1, sample.num_rows),
    )


def _card(settings: FilterSettings, source: DatasetFolder) -> Card:
    models = [settings.model] if settings.model else []
    texts = JUDGES_OF_PAIRS[settings.judge]
    scores = texts.scores
    if settings.beside:
        scores += f", standardised, plus {_standardised(settings.beside)}"
    judge = texts.chosen + "".join(f" (`{model_display_name(model)}`)" for model in models)
    judge = " and by ".join([judge, *settings.beside])
    kept = f"those judged best {judge}"
    if settings.rank_by:
        kept = (
            f"of those that were chosen for their inputs {judge}, the best by {', '.join(settings.rank_by)}"
        )
        scores = f"the sum of {_standardised(settings.rank_by)}"
    folder = f"the folder `{source.path.name}` (step `{source.manifest.step}`)"
    is_mined = set(source.schema().names) >= _MINED
    columns = dict(source.manifest.about.columns)
    if is_mined:
        columns["score"] = f"{scores}, from the mined pairs" if settings.judge == "margin" else scores
    how = "put together and chosen by programs" if is_mined else "chosen by a program"
    return Card(
        title=f"The best {'mined ' if is_mined else ''}pairs, chosen {texts.chosen}",
        description=f"Pairs of {folder}: {kept}. {source.manifest.about.description}".strip(),
        columns=columns,
        provenance=f"The pairs were {how}; no person has checked each of them.",
        tags=(*(("mined",) if is_mined else ()), *synthetic_tag(source.path)),
        citations=(MINING,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=models, data=filter(None, [source.path, settings.seeds])),
        task=source.manifest.about.task,
    )


def _standardised(columns: Sequence[str]) -> str:
    """The columns of a sum in words."""
    return f"the standardised {'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}"
